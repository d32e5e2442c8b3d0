//! What broke a communicator, and what ends with it.

use super::losses::{Losses, Whole};
use super::{Log, Page, Shared, rank_page};
use crate::context::ContextState;
use crate::error::{Doing, ExecutorError};
use crate::gpu::{self, Gpu};
use crate::launch::QUIET_LIMIT;
use crate::shared::control::{BROKEN, LEFT};
use crate::sync::{lock, shielded};
use antiphon_bootstrap::{Bootstrap, BootstrapError, Ticket, Voice};
use antiphon_hal::Memory;
use antiphon_transport::Peer;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Instant;

/// The first thing that broke a communicator.
pub(super) struct Failure {
    /// The rank that reports it.
    rank: u32,
    failed: AtomicBool,
    first: Mutex<Option<ExecutorError>>,
    /// Tells the peers of the failure, once.
    voice: Voice,
    told: AtomicBool,
    /// For a pair that another communicator's calls made: that communicator.
    whole: OnceLock<Whole>,
    pub(super) log: Mutex<Log>,
    /// What must end with the communicator.
    pub(super) devices: Option<Arc<gpu::Peers>>,
    /// This rank's ends of groups whose ranks have not all come yet.
    forming: Mutex<Vec<Forming>>,
    /// The pairs that the communicator's transfers go through: what breaks the communicator ends them.
    pairs: Mutex<Vec<Weak<Failure>>>,
    /// The rank's control page.
    page: Arc<dyn Memory>,
    /// The pages of the other ranks, once all have come; none on devices, and none if the ranks are on several hosts.
    near: OnceLock<BTreeMap<u32, Page>>,
    /// Peers that were lost before `near` was set.
    early: Mutex<Vec<(u32, Loss, ExecutorError)>>,
    losses: Arc<Losses>,
    /// Since when peers that are not quiet have been looked for by who [polls](Shared::is_settled).
    polled: OnceLock<Instant>,
}

/// How a peer was lost.
pub(super) struct Loss {
    /// All that it posted has come. Over a wire some of it may not have, which only this rank knows.
    pub landed: bool,
    /// Only this rank has lost the peer, because it has given the peer up.
    pub alone: bool,
}

struct Forming {
    end: Voice,
    /// Whatever breaks the communicator ends it; otherwise only an abort of this rank does.
    ends_with_it: bool,
}

impl Failure {
    /// The state of a rank with this control page. A failure stops the launches of `devices`, and `bootstrap` tells the peers.
    pub(super) fn new(
        bootstrap: &Arc<dyn Bootstrap>,
        devices: Option<Arc<gpu::Peers>>,
        page: &Arc<dyn Memory>,
    ) -> Self {
        Failure {
            rank: bootstrap.rank(),
            failed: AtomicBool::new(false),
            first: Mutex::default(),
            voice: bootstrap.voice(),
            told: AtomicBool::new(false),
            whole: OnceLock::new(),
            log: Mutex::default(),
            devices,
            forming: Mutex::default(),
            pairs: Mutex::default(),
            page: Arc::clone(page),
            near: OnceLock::new(),
            early: Mutex::default(),
            losses: Arc::default(),
            polled: OnceLock::new(),
        }
    }

    /// For a pair: sets the communicator whose transfers go through it, and the numbers of the pair's ranks there.
    pub(super) fn is_part_of(&self, whole: &Failure, names: [u32; 2]) {
        self.whole.get_or_init(|| Whole { names, losses: Arc::clone(&whole.losses) });
    }

    /// Sets the pages by which all ranks judge alike whether a lost rank is missed; one without a page is. Judges earlier losses.
    pub(super) fn look_at(&self, near: BTreeMap<u32, Page>) {
        let early = {
            let mut early = self.early();
            let _ = self.near.set(near);
            std::mem::take(&mut *early)
        };
        early.into_iter().for_each(|(peer, loss, error)| self.miss(peer, loss, error));
    }

    /// Notes that a peer is lost. If the peer was in a launch, others may wait for it, and this breaks the communicator.
    /// Otherwise it breaks only calls that need the peer from now on: programs end without a word after their last call, even
    /// before this rank has seen that all ranks came.
    pub(super) fn lose(&self, peer: u32, loss: Loss, error: ExecutorError) {
        let error = error.on_rank(self.rank);
        {
            let mut early = self.early();
            if self.near.get().is_none() && !loss.alone {
                return early.push((peer, loss, error));
            }
        }
        self.miss(peer, loss, error);
    }

    /// The loss of a peer, if that came before this rank [looked at](Self::look_at) the peer's page.
    pub(super) fn early_loss_of(&self, peer: u32) -> Option<ExecutorError> {
        let early = self.early();
        early.iter().find(|(lost, ..)| *lost == peer).map(|(_, _, error)| error.clone())
    }

    fn early(&self) -> MutexGuard<'_, Vec<(u32, Loss, ExecutorError)>> {
        lock(&self.early)
    }

    /// Judges a loss by how far the peer had come.
    fn miss(&self, peer: u32, loss: Loss, error: ExecutorError) {
        let through = |page: &Page| {
            let page = page.get();
            let begun = page.last().map_or(0, |last| last.seq);
            begun <= page.completed.0.load(Ordering::Acquire)
        };
        let through = self.near.get().and_then(|near| near.get(&peer)).is_some_and(through);
        if through && loss.landed {
            self.losses.add(peer, error, loss.alone);
        } else if through || loss.alone {
            self.tell(error);
            self.quieten();
        } else {
            self.hear(error);
        }
    }

    /// A peer that is gone, and was not through with launch `seq`.
    #[inline]
    pub(super) fn missing(&self, seq: u64) -> Option<u32> {
        if !self.losses.are_there() {
            return None;
        }
        let near = self.near.get()?;
        let through = |peer| near[&peer].get().completed.0.load(Ordering::Acquire);
        self.losses.find(|peer| through(peer) < seq)
    }

    /// The loss of a peer that was through with all that it had begun.
    pub(super) fn loss_of(&self, peer: u32) -> Option<ExecutorError> {
        self.losses.of(peer)
    }

    /// The loss of a rank that was through, if other ranks hear of it as this one does: of a peer, or, for a pair, of a rank of
    /// the whole.
    pub(super) fn bereavement(&self) -> Option<ExecutorError> {
        let of_whole = || self.whole.get()?.losses.heard().map(ExecutorError::of_whole);
        self.losses.heard().or_else(of_whole)
    }

    /// What broke the communicator; otherwise the loss of a peer, by which calls that need that peer fail.
    pub(super) fn known(&self) -> Option<ExecutorError> {
        self.check().err().or_else(|| self.losses.first())
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.log)
    }

    /// Breaks the communicator by what only this rank knows, here and, without waiting, on every other rank; the first failure
    /// counts.
    pub(super) fn tell(&self, error: ExecutorError) {
        let error = error.on_rank(self.rank);
        let reason = match &error {
            // What the caller of `abort` said; the peers' errors add who did it.
            ExecutorError::Aborted { reason, .. } => reason.clone(),
            other => match self.whole.get() {
                Some(Whole { names, .. }) => other.clone().renumbered(names).to_string(),
                None => other.to_string(),
            },
        };
        self.set(error, Some(&reason));
    }

    /// Breaks the communicator, on this rank, by a failure that the other ranks hear of by themselves. Does not wait.
    pub(super) fn hear(&self, error: ExecutorError) {
        self.set(error, None);
        self.quieten();
    }

    /// Breaks the communicator on this rank; if there is a `reason`, of which the other ranks do not hear otherwise, there as well.
    fn set(&self, error: ExecutorError, reason: Option<&str>) {
        let error = error.on_rank(self.rank);
        let text = error.to_string();
        {
            let mut first = lock(&self.first);
            let is_first = first.is_none();
            if is_first {
                *first = Some(error);
            }
            match reason {
                // Peers are told before anything here finds the failure and ends: otherwise they might hear of that end, and not
                // of its cause.
                Some(reason) if !self.told.swap(true, Ordering::Relaxed) => {
                    // Everything here ends by the failure, and waits for it, also if the peers cannot be told.
                    shielded(|| self.voice.abort(reason))
                }
                // The others hear of this failure by themselves. They are never told, since they might hear this rank's words first.
                None if is_first => self.told.store(true, Ordering::Relaxed),
                _ => {}
            }
            if !is_first {
                return;
            }
            self.failed.store(true, Ordering::Release);
        }
        if let Some(devices) = &self.devices {
            devices.stop();
        }
        self.end_forming(&text, |forming| forming.ends_with_it);
        let pairs = std::mem::take(&mut *self.pairs());
        pairs.iter().filter_map(Weak::upgrade).for_each(|pair| pair.hear_of_whole(&text));
    }

    /// Marks the rank as quiet, unless a launch is being worked on at this moment: the thread that works on it finds the failure
    /// and marks the rank itself. Returns whether it did. Does not wait, since it is for the control thread. Launches that have
    /// begun end by it.
    pub(super) fn quieten(&self) -> bool {
        if let Some(devices) = &self.devices {
            // Kernels may run: the thread that watches them marks the rank once none does. Without that thread there is none.
            let idle = !devices.is_watched();
            if idle {
                self.mark_quiet();
            }
            return idle;
        }
        self.log.try_lock().is_ok_and(|log| self.end_idle(&log))
    }

    /// Marks the rank as quiet, unless a launch is being worked on; returns whether it did.
    fn end_idle(&self, log: &Log) -> bool {
        self.quieten_if(log, |_| true)
    }

    /// Marks the rank as quiet if no launch is being worked on and `holds` is true for all contexts; returns whether it did.
    fn quieten_if(&self, log: &Log, holds: impl Fn(&ContextState) -> bool) -> bool {
        let states: Option<Vec<_>> =
            log.contexts.all().map(|context| context.idle_state()).collect();
        let Some(mut states) = states.filter(|states| states.iter().all(|state| holds(state)))
        else {
            return false;
        };
        states.iter_mut().for_each(|state| state.ended = true);
        self.mark_quiet();
        true
    }

    /// Shows the peers that this rank has stopped touching their memory.
    fn mark_quiet(&self) {
        rank_page(&self.page).control.quiet.0.store(1, Ordering::Release);
        // Before anything that the caller does with its buffers.
        fence(Ordering::SeqCst);
    }

    /// Ends a pair, which this communicator's transfers go through, when the communicator is broken.
    pub(super) fn ends_too(&self, pair: &Arc<Failure>) {
        self.pairs().push(Arc::downgrade(pair));
        if let Err(error) = self.check() {
            pair.hear_of_whole(&error.to_string());
        }
    }

    /// For a pair: breaks it, because the communicator whose transfers go through it is broken. The peer hears of that, and how,
    /// as well. Whoever reports the pair's failure finds the communicator's first.
    fn hear_of_whole(&self, reason: &str) {
        let (by, reason) = (0, reason.to_owned());
        self.hear(ExecutorError::Aborted { by, reason, doing: Doing::default() });
    }

    fn pairs(&self) -> MutexGuard<'_, Vec<Weak<Failure>>> {
        lock(&self.pairs)
    }

    /// Ends the forming of all groups.
    pub(super) fn give_up_forming(&self, reason: &str) {
        self.end_forming(reason, |_| true);
    }

    fn end_forming(&self, reason: &str, ends: impl Fn(&Forming) -> bool) {
        let ended: Vec<Forming> = self.forming().extract_if(.., |forming| ends(forming)).collect();
        ended.iter().for_each(|forming| forming.end.abort(reason));
    }

    /// The failure, if there is one.
    pub(super) fn check(&self) -> Result<(), ExecutorError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.cause().map_or(Ok(()), Err)
    }

    /// The failure, also while peers are still being told of it: for callers whose own error may be its echo. Waits for no peer.
    pub(super) fn cause(&self) -> Option<ExecutorError> {
        lock(&self.first).clone()
    }

    /// Forms a group from this rank's end of it, which waits for its peers until the communicator is broken.
    ///
    /// # Errors
    /// What broke the communicator, else what the forming reports.
    pub(super) fn unless_broken<T>(
        &self,
        end: &Arc<dyn Bootstrap>,
        form: impl FnOnce() -> Result<T, ExecutorError>,
    ) -> Result<T, ExecutorError> {
        // A failure from before this end was entered has not ended it.
        let form = || self.check().and_then(|()| form());
        let formed = self.form(end, true, form);
        formed.map_err(|error| self.cause().unwrap_or(error))
    }

    /// Forms a group from this rank's end of it, which waits for its peers even if the communicator breaks. From now on only an
    /// abort by this rank ends the forming.
    ///
    /// # Errors
    /// What the forming reports.
    pub(super) fn unless_aborted<T>(
        &self,
        end: &Arc<dyn Bootstrap>,
        form: impl FnOnce() -> Result<T, ExecutorError>,
    ) -> Result<T, ExecutorError> {
        self.form(end, false, form)
    }

    fn form<T>(
        &self,
        end: &Arc<dyn Bootstrap>,
        ends_with_it: bool,
        form: impl FnOnce() -> Result<T, ExecutorError>,
    ) -> Result<T, ExecutorError> {
        let end = end.voice();
        self.forming().push(Forming { end: end.clone(), ends_with_it });
        let formed = form();
        self.forming().retain(|known| !known.end.is(&end));
        formed
    }

    fn forming(&self) -> MutexGuard<'_, Vec<Forming>> {
        lock(&self.forming)
    }
}

/// Whether a peer has said goodbye, and how it leaves. The peer stores how before it says goodbye, so goodbye is read first.
fn parting(goodbye: impl FnOnce() -> bool, how: &AtomicU64) -> (bool, u64) {
    let goodbye = goodbye();
    (goodbye, how.load(Ordering::Acquire))
}

impl Shared {
    #[inline]
    pub fn failed(&self) -> bool {
        self.failure.failed.load(Ordering::Acquire)
    }

    /// A peer that is gone and will never make launch `seq`.
    #[inline]
    pub fn missing(&self, seq: u64) -> Option<u32> {
        self.failure.missing(seq)
    }

    /// Whether a peer is missing, or the communicator is broken.
    pub fn is_bereft(&self) -> bool {
        self.failed() || self.failure.losses.are_there()
    }

    /// The failure of the communicator, if there is one.
    pub fn check(&self) -> Result<(), ExecutorError> {
        self.failure.check()
    }

    /// Breaks the communicator, here and on every rank; the first failure counts.
    pub fn fail(&self, error: ExecutorError) {
        self.failure.tell(error);
    }

    /// Breaks the communicator, here and on every rank, and then [settles](Self::settle) this rank's launches: not before the
    /// failure is known, as a launch that ends early must not look complete. The caller holds no context's state.
    pub fn end(&self, error: ExecutorError) {
        // Callers have yet to wait for the peers, whom a panic would not keep from their buffers.
        shielded(|| self.fail(error));
        self.settle();
    }

    /// After a failure: waits until no thread works on a launch of this rank, stops the links, so that peers that have not heard
    /// of the failure yet cannot write here, and marks the rank as quiet. A thread that comes back to a launch that has begun
    /// leaves it, even if all that the launch needs has come. The caller holds no context's state.
    pub fn settle(&self) {
        let contexts: Vec<_> = self.log().contexts.all().map(Arc::clone).collect();
        for context in contexts {
            context.state().ended = true;
        }
        let quiet = self.gpu.as_ref().is_none_or(Gpu::quiet);
        self.ports.stop();
        if quiet {
            self.failure.mark_quiet();
        }
    }

    /// After a failure, on devices: marks the rank as quiet, if no launch of it runs.
    pub fn quieten_device(&self, gpu: &Gpu) {
        if gpu.is_quiet() {
            self.ports.stop();
            self.failure.mark_quiet();
        }
    }

    /// After a failure, on devices, once this rank has [settled](Self::settle): waits until the peers of this node are out of this rank's
    /// memory, which it does from `began` on, unless it did before. Kernels end within moments, or never.
    pub fn await_near(&self, began: Instant) {
        let since = *self.failure.polled.get_or_init(|| began);
        while self.reaching(since, |_| true).is_some() && since.elapsed() < gpu::QUIET_LIMIT {
            std::thread::sleep(gpu::PAUSE);
        }
    }

    /// Whether what a device has done stands. What it read of a peer that knows of a failure may have been the peer's callers' again: then
    /// this rank hears of the failure, too.
    ///
    /// # Errors
    /// The failure.
    pub fn check_with_near(&self) -> Result<(), ExecutorError> {
        // Whatever the device has read, it read before this look.
        fence(Ordering::Acquire);
        let knows = |peer: &Peer| {
            let is_near = peer.same_node && peer.rank != self.rank;
            is_near && self.control(peer.rank).quiet.0.load(Ordering::Acquire) != 0
        };
        if self.peers.iter().any(knows) {
            let began = Instant::now();
            while !self.failed() && began.elapsed() < QUIET_LIMIT {
                std::thread::sleep(gpu::PAUSE);
            }
        }
        self.check()
    }

    /// After a failure: whether the caller has the buffers of its launches back, on devices of those that are over. Nobody works on one,
    /// which on hosts ends them; nothing is copied for one; and the peers of this node are out of this rank's memory. It waits for no peer.
    pub fn is_settled(&self) -> bool {
        if self.gpu.is_some() {
            return self.is_released();
        }
        if !self.failure.end_idle(&self.log()) {
            return false;
        }
        self.ports.stop();
        let since = *self.failure.polled.get_or_init(Instant::now);
        let busy = || self.reaching(since, |_| true).is_some();
        if busy() {
            self.quieten_near();
        }
        !busy()
    }

    /// The same on devices, where the threads that end launches say so. What has not been quiet for five seconds has been stopped.
    fn is_released(&self) -> bool {
        // No thread says so if there never was a launch.
        self.failure.quieten();
        let since = *self.failure.polled.get_or_init(Instant::now);
        let own = self.control(self.rank).quiet.0.load(Ordering::Acquire) != 0;
        (own && self.reaching(since, |_| true).is_none()) || since.elapsed() >= gpu::QUIET_LIMIT
    }

    /// After a failure: a peer of this node, of those that could, which may still reach into this rank's memory. One of another
    /// process may until [`QUIET_LIMIT`] after `since`: if it is not quiet then, it has been stopped.
    pub fn reaching(&self, since: Instant, could: impl Fn(u32) -> bool) -> Option<u32> {
        let quiet = |peer: u32| {
            let page = self.control(peer);
            // Who has left has no launches, nor has one whose communicator never came up.
            [&page.quiet, &page.left].into_iter().any(|word| word.0.load(Ordering::Acquire) != 0)
                || self.has_left(peer)
        };
        // In this process a peer cannot be stopped alone, and its memory is the callers'.
        let waited = |peer: &Peer| peer.same_process || since.elapsed() < QUIET_LIMIT;
        let lost = self.lost_peer();
        let busy = |peer: &&Peer| {
            let near = peer.same_node && peer.rank != self.rank && could(peer.rank);
            near && !quiet(peer.rank) && waited(peer) && lost != Some(peer.rank)
        };
        self.peers.iter().find(busy).map(|peer| peer.rank)
    }

    /// After a failure, once a launch is over all the same: marks the rank as quiet, which tells peers that it no longer reaches
    /// into their memory, unless another launch has begun and is not over. The last one does it.
    pub fn quieten_behind_the_last(&self) {
        self.failure.quieten_if(&self.log(), |state| state.active.is_none());
    }

    /// The peer whose death broke the communicator, if that is what did.
    pub fn lost_peer(&self) -> Option<u32> {
        match &*lock(&self.failure.first) {
            Some(ExecutorError::PeerLost { peer, .. }) => Some(*peer),
            _ => None,
        }
    }

    /// Whether a peer on this node has left this communicator in good order, or was through when its process ended. All that it did
    /// for its launches is there by then.
    pub fn has_left(&self, peer: u32) -> bool {
        if !self.peers[peer as usize].same_node || peer == self.rank {
            return false;
        }
        let goodbye = || self.bootstrap.has_left(peer) == Ok(true);
        match parting(goodbye, &self.control(peer).left.0) {
            (_, LEFT) => true,
            // This rank is about to hear why. From a peer that it has given up, however, it hears nothing more.
            (_, BROKEN) => self.has_lost(peer) || self.failure.bereavement().is_some(),
            // A peer whose communicator never came up says so only by the goodbye of its bootstrap.
            (goodbye, _) => goodbye || self.has_lost(peer),
        }
    }

    /// The loss that is to blame for a peer which has left: its own, or one that it knew of.
    pub fn blamed_for(&self, peer: u32) -> Option<ExecutorError> {
        let knew = self.control(peer).left.0.load(Ordering::Acquire) == BROKEN;
        let known = || if knew { self.failure.bereavement() } else { None };
        self.failure.loss_of(peer).or_else(known)
    }

    /// Whether a peer was lost when it was through. One that this rank has given up lives, and may come to launches since.
    pub fn has_lost(&self, peer: u32) -> bool {
        self.failure.loss_of(peer).is_some()
    }

    /// Takes an error of a call that has no number yet. If only this rank may lack something, the others are in the call or will
    /// be: then it breaks the communicator, and they hear of it.
    pub fn lacking(&self, error: ExecutorError) -> ExecutorError {
        if error.is_of_one_rank() {
            self.end(error.clone());
        }
        error
    }

    /// The error of this rank, which was `doing` something, when it waits for a peer that has left.
    pub fn deserted(&self, peer: u32, doing: Doing) -> ExecutorError {
        if let Some(loss) = self.blamed_for(peer) {
            return loss.while_doing(doing);
        }
        let reason = "it has left the communicator without making this call".to_owned();
        ExecutorError::PeerLost { peer, pid: self.peers[peer as usize].pid, reason, doing }
    }

    /// Meets all ranks by the bootstrap, and waits for them.
    ///
    /// # Errors
    /// What the bootstrap reports. A meeting that has begun and fails breaks the communicator, unless a rank has left in good order.
    pub fn meet(
        &self,
        begin: impl FnOnce(&dyn Bootstrap) -> Result<Ticket, BootstrapError>,
    ) -> Result<Vec<Vec<u8>>, ExecutorError> {
        let begun = begin(&*self.bootstrap).map_err(|error| self.failure_or(error))?;
        begun.wait().map_err(|error| match error {
            // The control thread may be about to say so.
            BootstrapError::Aborted { by, reason, .. } => {
                let (by, doing) = (by.rank, Doing::nothing_on(self.rank));
                let aborted = ExecutorError::Aborted { by, reason, doing };
                self.failure.hear(aborted.clone());
                self.unmet(self.failure.cause().unwrap_or(aborted))
            }
            error => self.unmet(self.failure_or(error)),
        })
    }

    /// Breaks the communicator after a meeting of all ranks failed: some ranks may take it for done and others may come to it yet, so
    /// that ranks would be in different meetings the next time. Not if a rank has left in good order: then all meetings fail alike.
    pub fn unmet(&self, error: ExecutorError) -> ExecutorError {
        if !matches!(error, ExecutorError::Bootstrap(BootstrapError::PeerLeft { .. })) {
            self.end(error.clone());
        }
        error
    }

    pub fn failure_or(&self, error: BootstrapError) -> ExecutorError {
        let own = || ExecutorError::from(error).on_rank(self.rank);
        self.failure.cause().unwrap_or_else(own)
    }
}

#[cfg(test)]
mod tests;
