//! How a communicator comes up: greetings, probes, what follows from them, and, where plans are installed, which of these all
//! ranks can load. Where devices of a node do not reach each other, greetings and probes come once more.
//!
//! Each step begins an exchange that the next one finishes, so that one thread can bring up several ranks.

mod greeting;
mod islands;

use super::*;
use crate::gpu::neighbours::{Gap, RankDevice};
use crate::ports::{Introduction, LOCAL, open_wires};
use crate::reach;
use crate::selection::Spread;
use crate::selection::table::Kind;
use antiphon_bootstrap::PeerName;
use antiphon_port::Settings;
use greeting::{Build, Cores, Crowds, Greeting, Unread, machine};
pub(super) use islands::Parted;
use islands::{Answers, neighbours, shared_wire};

/// How often a wait for something of a peer looks whether that can still come.
const LOOK: Duration = Duration::from_millis(20);
/// The least time that a peer's page is waited for. All ranks have come by then: the wait is for this process's own control
/// thread, and for no call.
const LEAST: Duration = Duration::from_secs(10);

/// A communicator in the making. Each step begins an exchange that the next one finishes, so that one thread can
/// bring up several ranks.
pub(super) struct Join {
    subscription: Subscription,
    bootstrap: Arc<dyn Bootstrap>,
    device: Arc<dyn Device>,
    options: Options,
    regions: Arc<Regions>,
    ports: Arc<Ports>,
    mirrors: Option<Mirrors>,
    failure: Arc<Failure>,
    invitations: Arc<Invitations>,
    coded: Arc<CodedCalls>,
    page: Arc<dyn Memory>,
    token: Box<u64>,
    tuning: Tuning,
    installed: Installed,
    /// Whether it is part of a communicator of more ranks than cores.
    crowd: bool,
    whose: Whose,
}

/// A communicator that waits for its peers' greetings.
pub(super) struct Greeted {
    join: Join,
    ticket: Ticket,
    /// The greetings, if they were waited for.
    blobs: Option<Vec<Vec<u8>>>,
}

/// A communicator that waits for its peers' probes.
pub(super) struct Probed {
    join: Join,
    greetings: Vec<Greeting>,
    answers: Answers,
}

impl Join {
    pub(super) fn begin(
        bootstrap: Arc<dyn Bootstrap>,
        device: &Arc<dyn Device>,
        options: &Options,
    ) -> Result<Greeted, ExecutorError> {
        // Ranks may meet for longer than calls wait, and a bootstrap may come from anywhere.
        let limit = options.timeout.unwrap_or(NO_LIMIT);
        let bootstrap = bootstrap.within(limit, options.name.as_deref().map(name::called));
        let host = if device.backend() == Backend::Host { Arc::clone(device) } else { host()? };
        let other = (device.backend() != Backend::Host).then(|| Arc::clone(device));
        let devices = match &other {
            Some(device) => Some(Arc::new(gpu::Peers::new(device, bootstrap.world())?)),
            None => None,
        };
        let regions = Arc::new(Regions::new(Arc::clone(&host), other));
        let page = host.allocate(RankPage::BYTES as u64)?;
        let failure = Arc::new(Failure::new(&bootstrap, devices, &page));
        let pid = std::process::id();
        let (rank, world) = (bootstrap.rank(), bootstrap.world());
        rank_page(&page).control.initialise(rank, pid);
        let nodes = nodes(&*bootstrap)?;
        let one_node = nodes.iter().all(|node| *node == nodes[rank as usize]);
        let whose = options.whose(rank, world);
        let settings = Settings::new(rank, bootstrap.key(WIRES))
            .with_interface(options.interface.clone())
            .with_met(bootstrap.peer(rank)?.address)
            .with_device(device.caps().pci);
        let shared = shared_wire(&bootstrap, &regions, &**device, &page);
        let wires =
            open_wires(options.wire.as_deref(), one_node, &settings, &regions.memory, shared)?;
        // Without a wire that reaches other nodes the mirrors stay as they are: those ranks never come.
        let apart = !one_node || wires.open.iter().any(|wire| wire.name() != LOCAL);
        let mirrors = if apart { Some(Mirrors::new(&*host, world)?) } else { None };
        let ports = Ports::new(&bootstrap, &whose, wires);
        let mirrored = mirrors.as_ref().map(Mirrors::memory);
        [Some(&page), mirrored].into_iter().flatten().for_each(|memory| ports.keep(memory));
        let invitations = Arc::<Invitations>::default();
        let coded = Arc::new(CodedCalls::new(rank, world));
        let listener = Listener {
            invitations: Arc::clone(&invitations),
            coded: Arc::clone(&coded),
            regions: Arc::clone(&regions),
            ports: Arc::clone(&ports),
            failure: Arc::clone(&failure),
        };
        let subscription = Subscription::new(&bootstrap, Hearing::of(listener))?;
        // Sent before the greeting, and messages of one peer arrive in order: whoever has the greeting has the page.
        let region = regions.announce(&page, &*bootstrap)?;
        let tuning = match &options.tuning {
            // Times are measured on the host.
            _ if device.backend() != Backend::Host => Tuning::none("the ranks are on a device"),
            Some(tuning) => tuning.clone(),
            None => Tuning::of_process(),
        };
        let installed = options.installed.clone().unwrap_or_else(Installed::of_process);
        // Random: equal builds in two containers may have equal pids, regions and addresses.
        let token = Box::new(RandomState::new().hash_one(pid));
        let address = std::ptr::from_ref(&*token).addr() as u64;
        let greeting = Greeting {
            page: region,
            mirrors: mirrors.as_ref().map_or(0, |mirrors| mirrors.memory().id()),
            pid,
            token: (address, *token),
            tuning: tuning.fingerprint(),
            installed: installed.fingerprint(),
            machine: machine(),
            cores: Cores::of_this_thread(),
            device: RankDevice::of(&**device).with_multicast(options.multicast),
            wires: ports.names().map(str::to_owned).collect(),
        };
        let ticket = bootstrap.exchange_begin(&greeting.encode())?;
        let device = Arc::clone(device);
        let options = options.clone();
        let join = Join {
            subscription,
            bootstrap,
            device,
            options,
            regions,
            ports,
            mirrors,
            failure,
            invitations,
            coded,
            page,
            token,
            tuning,
            installed,
            crowd: false,
            whose,
        };
        Ok(Greeted { join, ticket, blobs: None })
    }
}

impl Join {
    /// For every rank, whether it is on this rank's node.
    fn near(&self) -> Result<Vec<bool>, ExecutorError> {
        let own = self.bootstrap.node_of(self.bootstrap.rank())?;
        let world = self.bootstrap.world();
        Ok((0..world)
            .map(|peer| Ok(self.bootstrap.node_of(peer)? == own))
            .collect::<Result<_, BootstrapError>>()?)
    }

    /// A rank's control page: this rank's own, one that is mapped, or a mirror.
    fn page(
        &self,
        peer: &Peer,
        greeting: &Greeting,
    ) -> Result<(NonNull<ControlPage>, Arc<dyn Memory>), ExecutorError> {
        let mirror = self.mirrors.as_ref().filter(|_| !peer.same_node);
        if let Some(mirrors) = mirror {
            let page = mirrors.page(peer.rank).ok_or_else(|| garbled(peer.rank, 0))?;
            return Ok((page, Arc::clone(mirrors.memory())));
        }
        let memory = if peer.rank == self.bootstrap.rank() {
            Arc::clone(&self.page)
        } else {
            self.mapped(peer, greeting.page)?
        };
        let short = memory.len() < RankPage::BYTES as u64;
        if short || rank_page(&memory).control.recognise().is_err() {
            let found = format!("{} bytes of another layout", memory.len());
            let peer = peer.rank;
            return Err(ExecutorError::Layout { what: "control page", peer, found });
        }
        Ok((NonNull::from(&rank_page(&memory).control), memory))
    }

    /// Every rank's control page, and the first page of a rank on this node.
    fn control_pages(
        &self,
        peers: &[Peer],
        greetings: &[Greeting],
    ) -> Result<(Vec<Page>, Arc<dyn Memory>), ExecutorError> {
        let mut control = Vec::new();
        let mut first_page = None;
        for (peer, greeting) in peers.iter().zip(greetings) {
            let (page, memory) = self.page(peer, greeting)?;
            if peer.same_node {
                first_page.get_or_insert_with(|| Arc::clone(&memory));
            }
            control.push(Page { page, _memory: memory });
        }
        Ok((control, first_page.unwrap_or_else(|| Arc::clone(&self.page))))
    }

    /// The ranks, as this one sees them. `near` says, by rank, which are on its node; `process_access`, whether ranks of a node may
    /// read and write each other's memory through the kernel.
    fn peers_of(
        &self,
        greetings: &[Greeting],
        near: &[bool],
        process_access: bool,
    ) -> Result<Vec<Peer>, ExecutorError> {
        let mut peers = Vec::new();
        for ((rank, greeting), &same_node) in (0..).zip(greetings).zip(near) {
            let (pid, same_process) = (greeting.pid, self.bootstrap.peer(rank)?.same_process);
            let process_access = process_access && same_node;
            peers.push(Peer { rank, pid, same_process, same_node, process_access });
        }
        Ok(peers)
    }

    /// The transports that channels may use.
    fn transports(&self) -> Registry {
        let memory = Arc::clone(&self.regions.memory);
        let mut registry = Registry::default();
        registry.register(Arc::clone(&memory) as Arc<dyn Transport>);
        registry.register(Arc::new(SoftwareGroups::new(memory)));
        self.ports.transports().for_each(|wire| registry.register(wire));
        registry
    }

    /// Waits until memory that a peer has offered is mapped. If it cannot be, the listener hears of that, and not this thread.
    fn mapped(&self, peer: &Peer, region: u64) -> Result<Arc<dyn Memory>, ExecutorError> {
        let limit = self.options.timeout.unwrap_or(NO_LIMIT).max(LEAST);
        let since = Instant::now();
        loop {
            // What a peer offered is here before its loss is heard of.
            let lost = self.failure.early_loss_of(peer.rank);
            let left = limit.saturating_sub(since.elapsed());
            let look = if lost.is_some() { Duration::ZERO } else { LOOK.min(left) };
            if let Some(memory) = self.regions.memory.await_region(peer.rank, region, look) {
                return Ok(memory);
            }
            lost.map_or(Ok(()), Err)?;
            self.failure.check()?;
            if since.elapsed() >= limit {
                let missing = vec![PeerName { rank: peer.rank, pid: peer.pid }];
                let doing = "map the control pages of the other ranks";
                return Err(BootstrapError::Timeout { doing, limit, missing }.into());
            }
        }
    }
}

impl Greeted {
    /// Makes it part of a communicator whose waits yield, or do not, since the other ranks of that one want the same cores.
    pub(super) fn among(mut self, yields: bool) -> Self {
        self.join.crowd = yields;
        self
    }

    /// Says that its group was made for this communicator alone, and is let go of with it.
    pub(super) fn in_own_group(mut self) -> Self {
        self.join.subscription.own = true;
        self
    }

    /// Waits for the greetings. `false` if a peer `has_left` the communicator that this one is made of before its greeting came:
    /// it makes no more there.
    pub(super) fn greet(&mut self, has_left: impl Fn() -> bool) -> Result<bool, ExecutorError> {
        loop {
            let left = has_left();
            // All that it had sent is here by now.
            let pause = if left { Duration::ZERO } else { LOOK };
            if let Some(blobs) = self.ticket.wait_for(pause)? {
                self.blobs = Some(blobs);
                return Ok(true);
            }
            if left {
                return Ok(false);
            }
        }
    }

    /// All steps that are left, for a thread that brings up one rank.
    pub(super) fn come(self) -> Result<Communicator, ExecutorError> {
        let rank = self.join.bootstrap.rank();
        let come = || self.probe()?.part()?.probe()?.settle()?.finish();
        come().map_err(|error: ExecutorError| error.on_rank(rank))
    }

    pub(super) fn probe(self) -> Result<Probed, ExecutorError> {
        let Greeted { join, ticket, blobs } = self;
        let blobs = blobs.map_or_else(|| ticket.wait(), Ok)?;
        let own = join.bootstrap.rank();
        let greetings = (0..).zip(&blobs).map(|(rank, blob)| {
            Greeting::decode(blob).map_err(|unread| match unread {
                Unread::Other(build) => other_build(own, rank, &build),
                Unread::Garbled => garbled(rank, blob.len()),
            })
        });
        let greetings = greetings.collect::<Result<Vec<_>, _>>()?;
        let near = join.near()?;
        let mut here = greetings.iter().zip(&near).filter(|(_, near)| **near);
        let reachable = join.options.process_access
            && here.all(|(greeting, _)| {
                process::probe(greeting.pid as i32, greeting.token.0, greeting.token.1)
            });
        let mut answer = vec![u8::from(reachable)];
        for ((peer, greeting), near) in (0..).zip(&greetings).zip(&near) {
            // What is on another node is not reached by its address.
            if !near {
                answer.push(Gap::to_byte(None));
                continue;
            }
            let same_process = join.bootstrap.peer(peer)?.same_process;
            let gap = greeting.device.gap(&*join.device, same_process);
            if same_process && gap.is_none() {
                // Done now: later, when memory of the peer is mapped, launches may wait for this call.
                greeting.device.enable(&*join.device)?;
            }
            answer.push(Gap::to_byte(gap));
        }
        let answers = Answers::ToCome(join.bootstrap.exchange_begin(&answer)?);
        Ok(Probed { join, greetings, answers })
    }
}

/// A communicator that waits to hear which installed plans its peers cannot load, if plans are installed.
pub(super) struct Settled {
    shared: Shared,
    ticket: Option<Ticket>,
}

impl Settled {
    pub(super) fn finish(self) -> Result<Communicator, ExecutorError> {
        let Settled { mut shared, ticket } = self;
        if let Some(ticket) = ticket {
            shared.installed = shared.installed.loadable(&ticket.wait()?, &shared.whose);
        }
        let shared = Arc::new(shared);
        if let Some(gpu) = &shared.gpu {
            gpu.come(&shared);
        }
        exit::watch(&shared);
        Ok(Communicator { shared })
    }
}

impl Probed {
    pub(super) fn settle(self) -> Result<Settled, ExecutorError> {
        let Probed { join, greetings, answers } = self;
        let answers = answers.wait()?;
        let near = join.near()?;
        let one_node = near.iter().all(|&near| near);
        let process_access =
            answers.iter().zip(&near).all(|(answer, near)| !near || answer.first() == Some(&1));
        let (rank, world) = (join.bootstrap.rank(), join.bootstrap.world());
        let peers = join.peers_of(&greetings, &near, process_access)?;
        let neighbours = neighbours(rank, &peers, &greetings, &answers)?;
        let neighbours = neighbours.at_home_on(islands::homes(&*join.bootstrap)?);
        let (control, first_page) = join.control_pages(&peers, &greetings)?;
        let seen = join.failure.devices.is_none() && one_node;
        let others = peers.iter().zip(&control).filter(|(peer, _)| seen && peer.rank != rank);
        join.failure.look_at(others.map(|(peer, page)| (peer.rank, page.clone())).collect());
        let registry = join.transports();
        let introductions = peers.iter().zip(&greetings).map(|(peer, greeting)| Introduction {
            peer: *peer,
            wires: greeting.wires.clone(),
            mirrors: greeting.mirrors,
        });
        join.ports.introduce(introductions.collect());
        let here = peers.iter().filter(|peer| peer.same_process).count();
        let crowds = Crowds::of(&greetings, rank);
        join.failure.log().contexts.crowd = crowds.largest_process;
        // Drawn at random by the first rank.
        let identity = greetings.first().map_or(0, |first| first.token.1);
        let gpu = match &join.failure.devices {
            Some(peers) => Some(Gpu::new(identity, &join.device, peers, &join.options)?),
            None => None,
        };
        let one_process = here == peers.len();
        let kind = if one_process { Kind::Threads } else { Kind::Processes };
        let tuning = agreed_tuning(join.tuning, &greetings, crowds.machines);
        let installed = greetings.iter().map(|greeting| greeting.installed);
        let installed = join.installed.agreed(installed);
        let shared = Shared {
            _subscription: join.subscription,
            tuning: tuning.with_kind(kind),
            installed,
            rank,
            world,
            whose: join.whose,
            identity,
            gpu,
            process_access,
            one_node,
            crowded: crowds.here,
            crowded_anywhere: crowds.anywhere,
            yields: crowds.here || join.crowd,
            one_process,
            shared_process: here > 1,
            peers,
            neighbours,
            registry,
            options: join.options,
            device: join.device,
            bootstrap: join.bootstrap,
            regions: join.regions,
            ports: join.ports,
            control,
            first_page,
            page: join.page,
            failure: join.failure,
            invitations: join.invitations,
            coded: join.coded,
            queues: Queues::default(),
            splits: AtomicU64::new(0),
            subsets: Mutex::default(),
            mirrors: join.mirrors,
        };
        drop(join.token);
        if let Some(gpu) = &shared.gpu {
            gpu.provide_links(&shared)?;
        }
        let ticket = compare_installed(&shared)?;
        Ok(Settled { shared, ticket })
    }
}

/// The times that all ranks choose by, given this rank's own: none if the ranks are on several machines.
fn agreed_tuning(own: Tuning, greetings: &[Greeting], machines: usize) -> Tuning {
    if machines != 1 {
        return Tuning::none("its times are of one machine, and the ranks are on several");
    }
    let cores = Cores::together(greetings.iter().map(|greeting| &greeting.cores));
    let tuning = own.agreed(greetings.iter().map(|greeting| greeting.tuning));
    tuning.with_cores(u32::try_from(cores).unwrap_or(u32::MAX))
}

/// Begins to tell the peers which installed plans this rank cannot load. All ranks have the same plans here, or none; without
/// plans nothing is told.
fn compare_installed(shared: &Shared) -> Result<Option<Ticket>, ExecutorError> {
    if shared.installed.plans().is_empty() {
        return Ok(None);
    }
    let spread = Spread::over(&nodes(&*shared.bootstrap)?, shared.crowded_anywhere);
    let refused = shared.installed.refused(spread, |plan| {
        if shared.gpu.is_some() {
            Gpu::admits(shared, plan)?;
        }
        reach::check(shared, plan)
    });
    Ok(Some(shared.bootstrap.exchange_begin(&refused)?))
}

/// The nodes that the ranks are on, by rank.
///
/// # Errors
/// As [`Bootstrap::node_of`].
pub(crate) fn nodes(ranks: &dyn Bootstrap) -> Result<Vec<u32>, BootstrapError> {
    (0..ranks.world()).map(|rank| ranks.node_of(rank)).collect()
}

fn other_build(rank: u32, peer: u32, theirs: &Build) -> ExecutorError {
    let (own, theirs) = (Build::own().to_string(), theirs.to_string());
    ExecutorError::Build { rank, own, peer, theirs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_bootstrap::in_process_with;

    #[test]
    fn ranks_of_different_versions_say_both() {
        let mut ends = in_process_with(&["this"; 2], Duration::from_secs(60)).unwrap();
        let other = ends.remove(1);
        // As a rank greets whose version has another number.
        let mut blob = crate::shared::LAYOUT_VERSION.to_le_bytes().to_vec();
        blob.extend(b"\x0699.1.0, and what else it says");
        let greets = other.exchange_begin(&blob).unwrap();
        let greeted = Join::begin(ends.remove(0), &host().unwrap(), &Options::default()).unwrap();
        let error = greeted.probe().map(drop).unwrap_err().to_string();
        drop(greets);
        let own = Build::own();
        assert_eq!(
            error,
            format!(
                "cannot form a communicator: rank 1 runs Antiphon 99.1.0 (layout {}), and rank 0 {own}; install the same build of \
                 Antiphon on every rank",
                own.layout
            )
        );
    }

    #[test]
    fn who_waits_for_a_peers_memory_hears_what_breaks_the_communicator() {
        let mut ends = in_process_with(&["this"; 2], Duration::from_secs(60)).unwrap();
        let join = Join::begin(ends.remove(0), &host().unwrap(), &Options::default()).unwrap().join;
        join.failure.hear(ExecutorError::Aborted {
            by: 1,
            reason: "it cannot be mapped".to_owned(),
            doing: Doing::default(),
        });
        let peer = Peer {
            rank: 1,
            pid: std::process::id(),
            same_process: true,
            same_node: true,
            process_access: false,
        };
        let error = join.mapped(&peer, 1234).map(drop).unwrap_err().to_string();
        assert!(error.contains("it cannot be mapped"), "{error}");
    }

    /// Rank 1 had come, and had been through with its calls, before rank 0 was there to see it.
    #[test]
    fn a_peer_that_is_lost_before_this_rank_sees_that_all_came_breaks_nothing() {
        let ends = in_process_with(&["this"; 2], Duration::from_secs(60)).unwrap();
        let (device, options) = (host().unwrap(), Options::default());
        let [first, second] = [0, 1]
            .map(|rank: usize| Join::begin(Arc::clone(&ends[rank]), &device, &options).unwrap());
        let second = std::thread::spawn(move || second.come().unwrap());
        let first = first.probe().unwrap();
        // Its page comes before the word that it is lost.
        let region = first.greetings[1].page;
        let page = first.join.regions.memory.await_region(1, region, Duration::from_secs(60));
        assert!(page.is_some());
        let (reason, doing) = ("its process ended".to_owned(), Doing::default());
        let lost = ExecutorError::PeerLost { peer: 1, pid: 7, reason, doing };
        let heard = super::super::failure::Loss { landed: true, alone: false };
        first.join.failure.lose(1, heard, lost);
        let first = first.settle().unwrap().finish().unwrap();
        assert!(first.shared.check().is_ok() && first.shared.has_lost(1));
        drop(second.join().unwrap());
    }

    #[test]
    fn a_communicator_that_did_not_form_hears_nothing_any_more() {
        let ends = in_process_with(&["this"; 2], NO_LIMIT).unwrap();
        let options = Options::default().with_timeout(Some(Duration::from_millis(50)));
        for _ in 0..2 {
            let error = Communicator::join(Arc::clone(&ends[0]), &options);
            let error = error.map(drop).unwrap_err().to_string();
            assert!(error.contains("rank 1"), "{error}");
        }
    }

    #[test]
    fn calls_wait_as_long_as_the_communicator_says_and_not_the_bootstrap() {
        let limit = Duration::from_secs(1);
        let options = Options::default().with_timeout(Some(limit));
        let ends = in_process_with(&["one", "other"], NO_LIMIT).unwrap();
        let device = host().unwrap();
        let ends = ends.into_iter().map(|end| (end, Arc::clone(&device)));
        let ranks = form(ends, &options).unwrap();
        let told = |error| match error {
            ExecutorError::Bootstrap(BootstrapError::Timeout { limit, .. }) => limit,
            error => panic!("{error}"),
        };
        assert_eq!(told(ranks[0].barrier().unwrap_err()), limit);
        assert_eq!(told(ranks[0].split(Some(0), 0).map(drop).unwrap_err()), limit);
        assert_eq!(told(ranks[0].subset(&[1, 0]).map(drop).unwrap_err()), limit);
    }
}
