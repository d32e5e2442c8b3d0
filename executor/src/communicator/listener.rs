//! What the control thread hears from peers: memory, links, device memory, and the end.

use super::failure::Loss;
use super::*;
use crate::tags::PAIR;

/// Receives what the control thread hears from peers.
pub(super) struct Listener {
    pub(super) regions: Arc<Regions>,
    pub(super) ports: Arc<Ports>,
    pub(super) failure: Arc<Failure>,
    pub(super) invitations: Arc<Invitations>,
    pub(super) coded: Arc<CodedCalls>,
}

/// A listener of a communicator, as the bootstrap has it.
pub(super) struct Hearing(Option<Listener>);

impl Hearing {
    pub(super) fn of(listener: Listener) -> Arc<Self> {
        Arc::new(Hearing(Some(listener)))
    }
}

impl Handler for Hearing {
    fn message(&self, from: u32, tag: u32, payload: &[u8], descriptors: Vec<OwnedFd>) {
        if let Some(listener) = &self.0 {
            listener.message(from, tag, payload, descriptors);
        }
    }

    fn peer_lost(&self, peer: u32, why: &Lost) {
        if let Some(listener) = &self.0 {
            listener.peer_lost(peer, why);
        }
    }

    fn aborted(&self, by: u32, reason: &str) {
        if let Some(listener) = &self.0 {
            listener.aborted(by, reason);
        }
    }
}

impl Drop for Hearing {
    /// A message that is being heard while the communicator ends leaves all that it has mapped to the control thread, which other
    /// communicators' kernels wait for.
    fn drop(&mut self) {
        let Some(Listener { regions, ports, failure, .. }) = self.0.take() else { return };
        if failure.devices.is_none() {
            return;
        }
        let ports = Arc::into_inner(ports);
        let (regions, failure) = (Arc::into_inner(regions), Arc::into_inner(failure));
        if ports.is_some() || regions.is_some() || failure.is_some() {
            gpu::free_later((ports, regions, failure));
        }
    }
}

/// What comes on [`CONTROL`] is heard until this goes.
pub(super) struct Subscription {
    ranks: Arc<dyn Bootstrap>,
    /// The group was made for who listens, and is made for nobody else.
    pub(super) own: bool,
}

impl Subscription {
    pub(super) fn new(
        bootstrap: &Arc<dyn Bootstrap>,
        listener: Arc<dyn Handler>,
    ) -> Result<Self, BootstrapError> {
        bootstrap.subscribe(CONTROL, listener)?;
        Ok(Subscription { ranks: Arc::clone(bootstrap), own: false })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.ranks.unsubscribe(CONTROL);
        if self.own {
            self.ranks.let_go();
        }
    }
}

impl Handler for Listener {
    fn message(&self, from: u32, tag: u32, payload: &[u8], descriptors: Vec<OwnedFd>) {
        let devices = self.failure.devices.as_ref();
        if Regions::takes(tag) {
            match (self.regions.receive(from, tag, payload, descriptors), devices) {
                (Ok(Some(gone)), Some(devices)) => devices.tables.retire(from, gone),
                (Ok(gone), _) => drop(gone),
                (Err(error), _) => self.end(error),
            }
            return;
        }
        let (what, received) = if let Some(devices) = devices.filter(|_| gpu::Peers::takes(tag)) {
            let mapped = |region| self.regions.offered(from, region);
            (
                "message about device memory",
                devices.receive(from, tag, (payload, descriptors), mapped),
            )
        } else if tag == PAIR {
            ("message about a pair", self.invitations.receive(from, payload))
        } else if let Some(series) = CallSeries::of_tag(tag) {
            let heard = self.coded.hear(series, from, payload);
            let heard = heard.map(|differs| differs.into_iter().for_each(|error| self.end(error)));
            ("message about a call by code", heard)
        } else {
            ("message about a link", self.ports.receive(from, tag, payload))
        };
        if let Err(found) = received {
            self.end(ExecutorError::Layout { what, peer: from, found });
        }
    }

    fn peer_lost(&self, peer: u32, why: &Lost) {
        let (pid, reason, doing) = (why.pid, why.reason.clone(), Doing::default());
        let error = ExecutorError::PeerLost { peer, pid, reason, doing };
        let landed = !self.ports.is_mirrored(peer);
        self.failure.lose(peer, Loss { landed, alone: why.alone }, error);
    }

    fn aborted(&self, by: u32, reason: &str) {
        self.failure.hear(ExecutorError::Aborted {
            by,
            reason: reason.to_owned(),
            doing: Doing::default(),
        });
    }
}

impl Listener {
    /// Breaks the communicator by what nobody else knows; this rank may make no call that would tell them.
    fn end(&self, error: ExecutorError) {
        self.failure.tell(error);
        self.failure.quieten();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_bootstrap::Message;

    /// Rank 0 makes no call that would find what its control thread has heard.
    #[test]
    fn peers_hear_of_what_only_this_ranks_control_thread_knows() {
        let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
        let ranks = Communicator::in_process(2, &options).unwrap();
        let message =
            Message { channel: CONTROL, tag: PAIR, payload: vec![9], descriptors: Vec::new() };
        ranks[1].shared.bootstrap.send(0, message).unwrap();
        let error = ranks[1].barrier().unwrap_err();
        let own = ranks[0].shared.check().unwrap_err();
        assert!(matches!(error, ExecutorError::Aborted { by: 0, .. }), "{error}");
        assert!(matches!(own, ExecutorError::Layout { peer: 1, .. }), "{own}");
        assert!(error.to_string().contains("message about a pair"), "{error}");
    }

    /// Rank 1 makes no call that would say that it has given rank 2 up; rank 0 has nothing to complain of either.
    #[test]
    fn peers_hear_of_whom_this_rank_alone_has_given_up() {
        let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
        let ranks = Communicator::in_process_on(&["here", "here", "there"], &options).unwrap();
        let shared = &ranks[1].shared;
        let reason = "it cannot be reached".to_owned();
        let error = ExecutorError::PeerLost { peer: 2, pid: 7, reason, doing: Doing::default() };
        shared.failure.lose(2, Loss { landed: true, alone: true }, error);
        let error = ranks[0].barrier().unwrap_err();
        assert!(matches!(error, ExecutorError::Aborted { by: 1, .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("rank 2") && text.contains("it cannot be reached"), "{text}");
    }

    /// Else a rank could hear of a failure and leave, and its peers of that alone.
    #[test]
    fn peers_are_told_before_this_rank_finds_a_failure() {
        let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
        for round in 0..200 {
            let ranks = Communicator::in_process(2, &options).unwrap();
            let failure = Arc::clone(&ranks[0].shared.failure);
            let (by, reason, doing) = (0, "enough".to_owned(), Doing::default());
            let error = ExecutorError::Aborted { by, reason, doing };
            let teller = std::thread::spawn(move || failure.tell(error));
            while !ranks[0].shared.failed() {
                std::hint::spin_loop();
            }
            let told = ranks[1].shared.bootstrap.check();
            assert!(matches!(told, Err(BootstrapError::Aborted { .. })), "{round}: {told:?}");
            teller.join().unwrap();
        }
    }
}
