//! How a communicator comes up: greetings, probes, and what follows from them.
//!
//! Each step begins an exchange that the next one finishes, so that one thread can bring up several ranks.

use super::*;

/// A communicator in the making. Each step begins an exchange that the next one finishes, so that one thread can
/// bring up several ranks.
pub(super) struct Join {
    bootstrap: Arc<dyn Bootstrap>,
    device: Arc<dyn Device>,
    options: Options,
    regions: Arc<Regions>,
    failure: Arc<Failure>,
    control: Arc<dyn Memory>,
    token: Box<u64>,
}

/// A communicator that waits for its peers' greetings.
pub(super) struct Greeted {
    join: Join,
    ticket: Ticket,
}

/// What ranks tell each other first.
struct Greeting {
    control: u64,
    pid: u32,
    token: (u64, u64),
    cores: Cores,
}

/// The CPU time a rank may use.
#[derive(Debug, PartialEq, Eq)]
struct Cores {
    /// Numbers of the cores its thread may run on.
    numbers: Vec<u32>,
    /// How many of them the container's quota grants; `u64::MAX` without a quota.
    quota: u64,
}

impl Cores {
    fn of_this_thread() -> Self {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
        let numbers = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let numbers: Vec<u32> = numbers.map(|core| core as u32).collect();
        let usable = antiphon_hal::host::usable_cores();
        let limited = (usable as usize) < numbers.len();
        Cores { numbers, quota: if limited { usable.into() } else { u64::MAX } }
    }

    /// Cores that ranks with these may keep busy together.
    fn together<'a>(all: impl Iterator<Item = &'a Cores> + Clone) -> u64 {
        let numbers: BTreeSet<u32> =
            all.clone().flat_map(|cores| cores.numbers.iter().copied()).collect();
        let quota = all.map(|cores| cores.quota).min().unwrap_or(u64::MAX);
        quota.min(numbers.len() as u64)
    }
}

impl Greeting {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let words = [self.control, self.pid.into(), self.token.0, self.token.1, self.cores.quota];
        let cores = self.cores.numbers.iter().copied().map(u64::from);
        for word in words.into_iter().chain(cores) {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [control, pid, address, token, quota, cores @ ..] = &words[..] else { return None };
        let numbers = cores.iter().map(|&core| core as u32).collect();
        let cores = Cores { numbers, quota: *quota };
        Some(Greeting { control: *control, pid: *pid as u32, token: (*address, *token), cores })
    }
}

/// A communicator that waits for its peers' probes.
pub(super) struct Probed {
    join: Join,
    greetings: Vec<Greeting>,
    ticket: Ticket,
}

impl Join {
    pub(super) fn begin(
        bootstrap: Arc<dyn Bootstrap>,
        device: &Arc<dyn Device>,
        options: &Options,
    ) -> Result<Greeted, ExecutorError> {
        let regions = Arc::new(Regions::new(Arc::clone(device)));
        let failure = Arc::new(Failure::default());
        let control = device.allocate(ControlPage::BYTES as u64)?;
        let pid = std::process::id();
        control_page(&control).initialise(bootstrap.rank(), pid);
        let listener = Listener {
            regions: Arc::clone(&regions),
            failure: Arc::clone(&failure),
            page: Arc::clone(&control),
        };
        bootstrap.subscribe(REGIONS, Arc::new(listener))?;
        // Sent before the greeting, and messages of one peer arrive in order: whoever has the greeting has the page.
        let region = regions.announce(&control, &*bootstrap)?;
        // Random: equal builds in two containers may have equal pids, regions and addresses.
        let token = Box::new(RandomState::new().hash_one(pid));
        let address = std::ptr::from_ref(&*token).addr() as u64;
        let greeting = Greeting {
            control: region,
            pid,
            token: (address, *token),
            cores: Cores::of_this_thread(),
        };
        let ticket = bootstrap.exchange_begin(&greeting.encode())?;
        let device = Arc::clone(device);
        let options = options.clone();
        let join = Join { bootstrap, device, options, regions, failure, control, token };
        Ok(Greeted { join, ticket })
    }
}

impl Greeted {
    pub(super) fn probe(self) -> Result<Probed, ExecutorError> {
        let Greeted { join, ticket } = self;
        let blobs = ticket.wait()?;
        let greetings = (0..)
            .zip(&blobs)
            .map(|(rank, blob)| Greeting::decode(blob).ok_or_else(|| garbled(rank, blob.len())));
        let greetings = greetings.collect::<Result<Vec<_>, _>>()?;
        let reachable = join.options.process_access
            && greetings.iter().all(|greeting| {
                process::probe(greeting.pid as i32, greeting.token.0, greeting.token.1)
            });
        let ticket = join.bootstrap.exchange_begin(&[u8::from(reachable)])?;
        Ok(Probed { join, greetings, ticket })
    }
}

impl Probed {
    pub(super) fn finish(self) -> Result<Communicator, ExecutorError> {
        let Probed { join, greetings, ticket } = self;
        let answers = ticket.wait()?;
        let process_access = answers.iter().all(|answer| answer[..] == [1]);
        let rank = join.bootstrap.rank();
        let world = join.bootstrap.world();
        let mut control = Vec::new();
        for (peer, greeting) in (0..world).zip(&greetings) {
            let page = if peer == rank {
                Arc::clone(&join.control)
            } else {
                let limit = join.options.timeout.unwrap_or(NO_LIMIT);
                let page = join.regions.memory.await_region(peer, greeting.control, limit);
                page.ok_or_else(|| garbled(peer, 0))?
            };
            let short = page.len() < ControlPage::BYTES as u64;
            if short || control_page(&page).recognise().is_err() {
                let found = format!("{} bytes of another layout", page.len());
                return Err(ExecutorError::Layout { what: "control page", peer, found });
            }
            control.push(Page { page: NonNull::from(control_page(&page)), _memory: page });
        }
        let own_node = join.bootstrap.node_of(rank)?;
        let mut peers = Vec::new();
        for (peer, greeting) in (0..world).zip(&greetings) {
            peers.push(Peer {
                rank: peer,
                pid: greeting.pid,
                same_process: join.bootstrap.peer(peer)?.same_process,
                same_node: join.bootstrap.node_of(peer)? == own_node,
                process_access,
            });
        }
        let mut registry = Registry::default();
        let memory: Arc<dyn Transport> = Arc::clone(&join.regions.memory) as _;
        registry.register(Arc::clone(&memory));
        registry.register(Arc::new(SoftwareGroups::new(memory)));
        let here = peers.iter().filter(|peer| peer.same_process).count();
        let cores = Cores::together(greetings.iter().map(|greeting| &greeting.cores));
        let shared = Shared {
            rank,
            world,
            process_access,
            crowded: u64::from(world) > cores,
            one_process: here == peers.len(),
            shared_process: here > 1,
            peers,
            registry,
            options: join.options,
            device: join.device,
            bootstrap: join.bootstrap,
            regions: join.regions,
            control,
            failure: join.failure,
            splits: AtomicU64::new(0),
        };
        drop(join.token);
        Ok(Communicator { shared: Arc::new(shared) })
    }
}
