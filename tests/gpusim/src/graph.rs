//! Graphs: captured work, done again with every launch.

use crate::abi::Out;
use crate::status::Status;
use crate::stream::{self, Work};
use crate::table::{Table, lock};
use std::sync::{Arc, Mutex};

static GRAPHS: Table<Vec<Work>> = Table::new();
static EXECUTABLE: Table<Mutex<Vec<Work>>> = Table::new();

/// Adds a graph of work in order.
pub fn add(work: Vec<Work>) -> u64 {
    GRAPHS.add(Arc::new(work))
}

driver_calls! {
    fn cuGraphInstantiateWithFlags(out: Out<u64>, graph: u64, _flags: u64) {
        let graph = GRAPHS.get(graph)?;
        out.set(EXECUTABLE.add(Arc::new(Mutex::new(graph.to_vec()))))
    }

    fn cuGraphUpload(executable: u64, stream: u64) {
        stream::find(stream)?;
        EXECUTABLE.get(executable).map(drop)
    }

    fn cuGraphLaunch(executable: u64, stream: u64) {
        let work = lock(&*EXECUTABLE.get(executable)?).clone();
        stream::find(stream)?.submit(Arc::new(move || work.iter().try_for_each(|one| one())))
    }

    fn cuGraphExecUpdate_v2(executable: u64, graph: u64, _result: *mut u8) {
        let work = GRAPHS.get(graph)?.to_vec();
        *lock(&*EXECUTABLE.get(executable)?) = work;
        Ok(())
    }

    fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) {
        let graph = GRAPHS.get(graph)?;
        if !nodes.address().is_null() {
            // Nodes have no handles here.
            return Err(Status::NOT_SUPPORTED);
        }
        count.set(graph.len())
    }

    fn cuGraphDestroy(graph: u64) {
        GRAPHS.take(graph).map(drop)
    }

    fn cuGraphExecDestroy(executable: u64) {
        EXECUTABLE.take(executable).map(drop)
    }
}
