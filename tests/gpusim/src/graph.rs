//! Graphs: captured work, done again with every launch.

use crate::abi::Out;
use crate::object::{Kept, retained};
use crate::status::Status;
use crate::stream::{self, Work, capture};
use crate::table::{Table, lock};
use std::sync::{Arc, Mutex};

/// What was captured.
#[derive(Clone, Default)]
pub struct Content {
    pub work: Vec<Work>,
    /// What the application wants kept as long as the work may be done.
    pub kept: Vec<Arc<Kept>>,
}

static GRAPHS: Table<Mutex<Content>> = Table::new();
static EXECUTABLE: Table<Mutex<Content>> = Table::new();

/// Adds a graph of work in order, under the handle that it had while it was captured.
pub fn add(handle: u64, content: Content) -> u64 {
    GRAPHS.put(handle, Arc::new(Mutex::new(content)));
    handle
}

driver_calls! {
    fn cuGraphInstantiateWithFlags(out: Out<u64>, graph: u64, _flags: u64) {
        // As seen of CUDA's driver: it ends what another thread records by the strictest rules.
        capture::refuse()?;
        let content = lock(&*GRAPHS.get(graph)?).clone();
        out.set(EXECUTABLE.add(Arc::new(Mutex::new(content))))
    }

    fn cuGraphLaunch(executable: u64, stream: u64) {
        let content = lock(&*EXECUTABLE.get(executable)?).clone();
        stream::find(stream)?.submit(Arc::new(move || {
            // All of it, since what is kept stays until the execution is over.
            let content = &content;
            content.work.iter().try_for_each(|one| one())
        }))
    }

    fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) {
        let graph = GRAPHS.get(graph)?;
        if !nodes.address().is_null() {
            // Nodes have no handles here.
            return Err(Status::NOT_SUPPORTED);
        }
        let nodes = lock(&*graph).work.len();
        count.set(nodes)
    }

    fn cuGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32) {
        if count == 0 || flags > 1 {
            return Err(Status::INVALID_VALUE);
        }
        let moved = flags == 1;
        if let Some(capture) = capture::live(graph) {
            lock(&capture.kept).push(retained(object, count, moved)?);
            return Ok(());
        }
        let graph = GRAPHS.get(graph)?;
        lock(&*graph).kept.push(retained(object, count, moved)?);
        Ok(())
    }

    fn cuGraphDestroy(graph: u64) {
        GRAPHS.take(graph).map(drop)
    }

    fn cuGraphExecDestroy(executable: u64) {
        EXECUTABLE.take(executable).map(drop)
    }
}
