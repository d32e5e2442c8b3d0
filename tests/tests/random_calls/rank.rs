//! One rank that runs a program, and looks at its memory on the way.

use crate::calls::{Asked, asked, typed};
use crate::hash;
use crate::memory::Slots;
use crate::model;
use crate::places::Place;
use crate::program::{Call, How, Members, Name, Program, Ranks, Step, WORLD, What};
use crate::served::change;
use antiphon::executor::Group;
use antiphon::executor::hal::Stream;
use antiphon::{Communicator, Registry};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Display;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Outcome = Result<(), String>;

pub struct Rank<'p> {
    program: &'p Program,
    /// The rank in [`WORLD`].
    me: u32,
    members: Members<'p>,
    ends: BTreeMap<Name, Communicator>,
    /// Other collectives of the same communicators.
    twins: BTreeMap<Name, Communicator>,
    streams: Vec<Arc<dyn Stream>>,
    slots: Slots,
    /// What streams still copy from.
    fed: Vec<(usize, Vec<u8>)>,
    process: &'p Process<'p>,
    /// Whether it does what one rank does for its process.
    leads: bool,
}

/// What the ranks of a process share.
#[derive(Default)]
pub struct Process<'p> {
    pub registry: Registry,
    /// Calls that one of them is to make.
    handed: Mutex<Vec<Part<'p>>>,
}

/// One call of a step, as this rank makes it.
struct Part<'p> {
    call: &'p Call,
    on: Communicator,
    stream: Option<Arc<dyn Stream>>,
    at: (*const u8, *mut u8),
    asked: Vec<Asked>,
}

// SAFETY: the buffers are in slots that are the call's until it is complete, whichever thread makes it.
unsafe impl Send for Part<'_> {}
// SAFETY: as above.
unsafe impl Sync for Part<'_> {}

fn text(error: impl Display) -> String {
    error.to_string()
}

impl<'p> Rank<'p> {
    /// Runs a program as one rank. Where that fails, every communicator of the rank is ended, so that the others end, too.
    ///
    /// # Errors
    /// What went wrong, and at which step.
    pub fn run(program: &'p Program, all: Communicator, process: &'p Process<'p>) -> Outcome {
        let me = all.rank();
        let streams =
            (0..program.streams).map(|_| all.stream()).collect::<Result<_, _>>().map_err(text)?;
        let slots = Slots::new(&all, program.room, program.seed)?;
        let leads = (0..me).all(|rank| all.pid_of(rank) != all.pid_of(me));
        let mut rank = Rank {
            program,
            me,
            members: Members::new(&program.hosts),
            ends: BTreeMap::from([(WORLD, all)]),
            twins: BTreeMap::new(),
            streams,
            slots,
            fed: Vec::new(),
            process,
            leads,
        };
        let outcome = rank.all_steps();
        if let Err(error) = &outcome {
            rank.ends.values().for_each(|end| end.abort(error));
        }
        // Before memory that calls may still use is freed.
        let through = rank.streams.iter().try_for_each(|stream| rank.wait(stream));
        outcome.and(through)
    }

    fn all_steps(&mut self) -> Outcome {
        for (number, step) in self.program.steps.iter().enumerate() {
            if self.members.have(step) {
                let done = self.step(number as u64, step);
                done.map_err(|error| format!("rank {} at step {number}: {error}", self.me))?;
                self.members.take(step);
            }
        }
        let end = (0..self.program.streams).try_for_each(|stream| self.synchronize(stream));
        let end = end.and_then(|()| self.ends[&WORLD].barrier().map_err(text));
        end.and_then(|()| self.slots.check())
            .map_err(|error| format!("rank {} at the end: {error}", self.me))
    }

    fn wait(&self, stream: &Arc<dyn Stream>) -> Outcome {
        self.ends[&WORLD].collectives().executor().synchronize(stream).map_err(text)
    }

    fn synchronize(&mut self, stream: usize) -> Outcome {
        self.wait(&self.streams[stream])?;
        self.slots.take_from(stream);
        self.fed.retain(|(of, _)| *of != stream);
        Ok(())
    }

    /// Waits for the stream whose calls may still touch a slot, unless it is this one.
    fn free(&mut self, slot: usize, but_for: Option<usize>) -> Outcome {
        match self.slots.stream_of(slot) {
            Some(other) if Some(other) != but_for => self.synchronize(other),
            _ => Ok(()),
        }
    }

    fn step(&mut self, number: u64, step: &'p Step) -> Outcome {
        let mine = |ranks: &u32| ranks >> self.me & 1 == 1;
        match step {
            Step::Renew { slot, ranks } => {
                let mine = mine(ranks);
                self.free(*slot, None)?;
                if mine {
                    let seed = hash(&[self.program.seed, 7, number, self.me.into()]);
                    self.slots.renew(&self.ends[&WORLD], *slot, seed)?;
                }
            }
            Step::Make { calls, how } => {
                self.make(calls, *how)?;
                self.slots.check()?;
            }
            Step::Synchronize { stream } => {
                self.synchronize(*stream)?;
                self.slots.check()?;
            }
            Step::Query { stream, ranks } if mine(ranks) => {
                let executor = self.ends[&WORLD].collectives().executor().clone();
                executor.query(&self.streams[*stream]).map_err(text)?;
            }
            Step::Query { .. } => {}
            Step::Dawdle { ranks } if mine(ranks) => std::thread::sleep(Duration::from_millis(3)),
            Step::Dawdle { .. } => {}
            Step::Barrier { on } => {
                self.ends.get(on).map_or(Ok(()), |end| end.barrier()).map_err(text)?;
            }
            Step::Exchange { on } => {
                let Some(end) = self.ends.get(on) else { return Ok(()) };
                let bytes = |rank: u32| {
                    let seed = [self.program.seed, 10, number, rank.into()];
                    let length = hash(&seed) % [1, 100, 100_000][number as usize % 3];
                    (0..length).map(|at| (hash(&seed) ^ at) as u8).collect::<Vec<_>>()
                };
                let found = end.exchange(&bytes(end.rank())).map_err(text)?;
                if found != (0..end.world()).map(bytes).collect::<Vec<_>>() {
                    return Err("wrong bytes from an exchange".to_owned());
                }
            }
            Step::Split { of, groups } => {
                let Some(end) = self.ends.get(of) else { return Ok(()) };
                let own = groups.iter().enumerate().find_map(|(color, (name, ranks))| {
                    let key = ranks.iter().position(|&rank| rank == end.rank())?;
                    Some((*name, color as u32, key as i64))
                });
                let (color, key) = (own.map(|own| own.1), own.map_or(0, |own| own.2));
                let made = end.split(color, key).map_err(text)?;
                self.ends.extend(own.map(|own| own.0).zip(made));
            }
            Step::Subset { of, name, ranks } => {
                let Some(end) = self.ends.get(of) else { return Ok(()) };
                if ranks.contains(&end.rank()) {
                    let made = end.subset(ranks).map_err(text)?;
                    self.ends.insert(*name, made);
                }
            }
            Step::Leave { of } => {
                self.ends.remove(of);
                self.twins.remove(of);
            }
            Step::Register { .. } | Step::Unregister { .. } | Step::Select { .. } => {
                let all = &self.ends[&WORLD];
                // In a process one rank registers for all, while the others make no calls.
                all.barrier().map_err(text)?;
                if self.leads {
                    change(&self.process.registry, step)?;
                }
                all.barrier().map_err(text)?;
            }
        }
        Ok(())
    }

    fn make(&mut self, calls: &'p [(Call, Option<usize>)], how: How) -> Outcome {
        // Also by ranks that have no part in a call, so that all wait for the same streams.
        for (call, stream) in calls {
            self.free(call.slots.0, *stream)?;
            self.free(call.slots.1, *stream)?;
        }
        let mut parts = Vec::new();
        for (call, stream) in calls {
            if let Some(stream) = *stream {
                self.slots.give(call.slots.0, stream);
                self.slots.give(call.slots.1, stream);
            }
            if self.ends.contains_key(&call.on) {
                parts.push(self.prepare(call, *stream)?);
            }
        }
        match how {
            How::Grouped(ranks) if ranks >> self.me & 1 == 1 => make_together(&parts),
            How::Grouped(_) => parts.iter().try_for_each(make_alone),
            How::Beside => std::thread::scope(|scope| {
                let threads: Vec<_> =
                    parts.iter().map(|part| scope.spawn(|| make_alone(part))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("a panic of a call"))
            }),
            How::Driven => self.drive(parts),
        }
    }

    /// Hands calls to the rank that makes those of all ranks of the process.
    fn drive(&mut self, parts: Vec<Part<'p>>) -> Outcome {
        let meet = || self.ends[&WORLD].barrier().map_err(text);
        let handed = || self.process.handed.lock().expect("nobody panics with it");
        handed().extend(parts);
        meet()?;
        if self.leads {
            let all = std::mem::take(&mut *handed());
            make_together(&all)?;
        }
        meet()
    }

    /// A communicator as a call uses it.
    fn end_for(&mut self, call: &Call) -> Result<Communicator, String> {
        let end = &self.ends[&call.on];
        if !hash(&[call.seed, 9, self.me.into()]).is_multiple_of(8) {
            return Ok(end.clone());
        }
        match self.twins.entry(call.on) {
            Entry::Occupied(twin) => Ok(twin.get().clone()),
            Entry::Vacant(none) => Ok(none.insert(Communicator::new(end).map_err(text)?).clone()),
        }
    }

    /// Gives a call its input, and notes what it must leave.
    fn prepare(&mut self, call: &'p Call, stream: Option<usize>) -> Result<Part<'p>, String> {
        let on = self.end_for(call)?;
        let (world, rank, size) = (on.world(), on.rank(), call.dtype.size());
        let places = call.places(world, rank);
        let bytes =
            |place: Place| (place.slot, place.at as usize * size, place.count as usize * size);
        if let Some(place) = places[0] {
            let input = model::input(call, rank, place.count);
            self.feed(place, size, input, stream)?;
        }
        if call.what == What::ReduceScatter && call.is_in_place(rank) {
            let (slot, at, bytes) = places[0].map(bytes).expect("all ranks send");
            self.slots.forget(slot, at, bytes);
        }
        let ranks: &Ranks = self.members.of(call.on).expect("a rank of it");
        if let Some(place) = places[1] {
            for (at, run) in model::output(call, ranks, rank, place.count) {
                self.slots.expect(place.slot, (place.at + at) as usize * size, &run);
            }
        }
        let address = |place: Option<Place>, side: u64| match place {
            Some(place) => self.slots.address(place, size),
            // It has no part in it: nothing is touched there.
            None if hash(&[call.seed, 8, side, rank.into()]).is_multiple_of(2) => null_mut(),
            None => self.slots.address(Place { slot: call.slots.1, at: 0, count: 0 }, size),
        };
        let at = (address(places[0], 0).cast_const(), address(places[1], 1));
        let stream = stream.map(|stream| Arc::clone(&self.streams[stream]));
        Ok(Part { call, on, stream, at, asked: asked(call, world, rank, at) })
    }

    /// Puts bytes into a place, in the order of a stream.
    fn feed(
        &mut self,
        place: Place,
        size: usize,
        input: Vec<u8>,
        stream: Option<usize>,
    ) -> Outcome {
        let at = place.at as usize * size;
        self.slots.expect(place.slot, at, &input);
        let Some(stream) = stream else {
            self.slots.write(place.slot, at, &input);
            return Ok(());
        };
        let to = self.slots.address(place, size);
        // SAFETY: the bytes are kept until the stream is through, and the slot is the stream's.
        let copied = unsafe { self.streams[stream].copy(to, input.as_ptr(), input.len() as u64) };
        self.fed.push((stream, input));
        copied.map(drop).map_err(text)
    }
}

impl Part<'_> {
    fn gather(&self, group: &mut Group) -> Outcome {
        self.asked.iter().try_for_each(|asked| {
            // SAFETY: the buffers are in slots that are the call's until it is complete.
            unsafe { asked.gather(group, &self.on, self.call.dtype, self.stream.as_ref()) }
                .map_err(|error| format!("{error}, of {:?}", self.call))
        })
    }
}

fn make_together(parts: &[Part<'_>]) -> Outcome {
    let mut group = Group::new();
    parts.iter().try_for_each(|part| part.gather(&mut group))?;
    group.end().map_err(text)
}

/// Makes a call by itself.
fn make_alone(part: &Part<'_>) -> Outcome {
    let told = |error| format!("{error}, of {:?}", part.call);
    if part.call.typed && part.stream.is_none() {
        // SAFETY: the buffers are in slots that are the call's until it is complete.
        if let Some(outcome) = unsafe { typed(part.call, &part.on, part.at) } {
            return outcome.map_err(told);
        }
    }
    match &part.asked[..] {
        [one] if !matches!(part.call.what, What::Transfers | What::Shift(_)) => {
            // SAFETY: as above.
            unsafe { one.make(&part.on, part.call.dtype, part.stream.as_ref()) }.map_err(told)
        }
        _ => make_together(std::slice::from_ref(part)),
    }
}
