//! Which wires a rank has, and why it lacks others.

use crate::error::ExecutorError;
use crate::regions::Regions;
use crate::sync::lock;
use antiphon_bootstrap::launcher::Environment;
use antiphon_bootstrap::{Bootstrap, Voice};
use antiphon_hal::Memory;
use antiphon_memory::SharedMemory;
use antiphon_port::{
    LocalWire, MappedRegions, Settings, SharedRegions, SharedWire, TcpDriver, Wire, WireDriver,
    WireError, plugin,
};
use antiphon_transport::{ChannelKind, Mapping, Peer, Reach, Transport};
use log::{debug, warn};
use std::collections::BTreeSet;
use std::env;
use std::sync::{Arc, Mutex, OnceLock};

/// The name of the wire between ranks that map each other's memory.
pub const LOCAL: &str = "local";
/// The name of the wire between ranks of one machine that count as on different nodes.
pub const SHARED: &str = SharedWire::NAME;

/// The RDMA wire, built in or a plugin.
const RDMA: &str = "rdma";
/// What the names of variables begin with that are for the RDMA wire alone.
const RDMA_VARIABLES: [&str; 3] = ["ANTIPHON_HCA", "ANTIPHON_GID_INDEX", "ANTIPHON_RDMA_"];

/// Peers' regions as the memory transport has mapped them.
#[derive(Debug)]
struct Mapped(Arc<SharedMemory>);

impl MappedRegions for Mapped {
    fn region(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>> {
        self.0.region(peer, region)
    }
}

/// Memory that ranks of this machine pass on to those of them that count as on other nodes.
#[derive(Debug)]
struct AtHome {
    regions: Arc<Regions>,
    voice: Voice,
    peers: Vec<u32>,
}

impl MappedRegions for AtHome {
    fn region(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>> {
        self.regions.memory.region(peer, region)
    }
}

impl SharedRegions for AtHome {
    fn reaches(&self, peer: u32) -> bool {
        self.peers.contains(&peer)
    }

    fn share(&self, memory: &Arc<dyn Memory>) -> Result<(), WireError> {
        self.regions.share(memory, &self.peers, &self.voice).map_err(|error| WireError::System {
            operation: "pass memory on",
            wire: SHARED.to_owned(),
            reason: error.to_string(),
        })
    }

    fn forget(&self, peer: u32, region: u64) {
        drop(self.regions.memory.retire(peer, region));
    }
}

/// The wire to these ranks, which are on this machine and count as on other nodes.
pub fn shared_wire(
    regions: &Arc<Regions>,
    bootstrap: &Arc<dyn Bootstrap>,
    peers: Vec<u32>,
) -> Arc<dyn Wire> {
    let (regions, voice) = (Arc::clone(regions), bootstrap.voice());
    Arc::new(SharedWire::new(Arc::new(AtHome { regions, voice, peers })))
}

/// All kinds of wires that this build and this machine's plugins have, but for the local one; of plugins that cannot be
/// loaded the reason. What is built in goes before a plugin of the same name. Found once.
pub fn drivers() -> &'static [Result<Arc<dyn WireDriver>, WireError>] {
    static DRIVERS: OnceLock<Vec<Result<Arc<dyn WireDriver>, WireError>>> = OnceLock::new();
    DRIVERS.get_or_init(|| {
        let own: Vec<Arc<dyn WireDriver>> = vec![
            Arc::new(TcpDriver::default()),
            #[cfg(feature = "rdma")]
            Arc::new(antiphon_wire_rdma::RdmaDriver),
        ];
        with_plugins(own, plugin::search().iter().map(|path| plugin::load(path)))
    })
}

/// What is built in, and the plugins of other names.
fn with_plugins(
    own: Vec<Arc<dyn WireDriver>>,
    plugins: impl Iterator<Item = Result<Arc<dyn WireDriver>, WireError>>,
) -> Vec<Result<Arc<dyn WireDriver>, WireError>> {
    let names: Vec<String> = own.iter().map(|driver| driver.name().to_owned()).collect();
    let others = plugins.filter(|plugin| {
        let known = names.iter().any(|name| name == name_of(plugin));
        if known {
            debug!("the plugin of the wire {} is left out: it is built in", name_of(plugin));
        }
        !known
    });
    own.into_iter().map(Ok).chain(others).collect()
}

/// The wires of port channels that this build and this machine's plugins have, cheapest first as a rule: over what they
/// go, or why they cannot be used.
pub fn wires() -> Vec<(String, Result<String, WireError>)> {
    let own = [
        (LOCAL, "copies between memories of one host"),
        (
            SHARED,
            "copies by way of the host's memory, between ranks whose GPUs do not reach each other's",
        ),
    ];
    // As ranks that meet here would choose it. Errors in what the environment asks for are reported by those ranks.
    let interface = Environment::of_process().interface().ok().flatten();
    let settings = Settings::new(0, [0; 32]).with_interface(interface);
    let found = drivers().iter().map(|driver| match driver {
        Ok(driver) => {
            // An end that nobody will connect to.
            let end = driver.open(&settings);
            (driver.name().to_owned(), end.map(|end| end.describe()))
        }
        Err(error) => (error.wire().to_owned(), Err(error.clone())),
    });
    own.map(|(name, over)| (name.to_owned(), Ok(over.to_owned())))
        .into_iter()
        .chain(found)
        .collect()
}

/// One rank's ends of wires.
#[derive(Debug)]
pub struct Wires {
    /// Those that it has.
    pub open: Vec<Arc<dyn Wire>>,
    /// Those that it lacks.
    pub closed: Vec<Arc<Closed>>,
}

/// A wire that a rank lacks: to its errors, a transport that reaches nobody.
#[derive(Debug)]
pub struct Closed {
    name: String,
    why: String,
}

impl Transport for Closed {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> ChannelKind {
        ChannelKind::Port
    }

    fn reach(&self, _: &Peer) -> Reach {
        Reach::No { why: self.why.clone() }
    }
}

/// One rank's ends of all wires that can be used, or of the one that is forced. Where all ranks share a node there is
/// but the local one, unless another is forced; `shared` is the wire between ranks of this machine that do not, which nobody forces.
///
/// # Errors
/// If the one that is forced is unknown or unavailable: why, and what would help.
pub fn open_wires(
    forced: Option<&str>,
    one_node: bool,
    settings: &Settings,
    memory: &Arc<SharedMemory>,
    shared: Option<Arc<dyn Wire>>,
) -> Result<Wires, ExecutorError> {
    let local = || Arc::new(LocalWire::new(Arc::new(Mapped(Arc::clone(memory))))) as Arc<dyn Wire>;
    let known = || drivers().iter().flatten();
    let Some(name) = forced else {
        let mut wires = Wires { open: vec![local()], closed: Vec::new() };
        wires.open.extend(shared);
        // Loading plugins starts what they need, which ranks of one node have no use for.
        let others = if one_node { &[] } else { drivers() };
        for driver in others {
            let name = name_of(driver);
            match driver.as_ref().map_err(Clone::clone).and_then(|driver| driver.open(settings)) {
                Ok(wire) => {
                    debug!("rank {}: the wire {name} is {}", settings.rank, wire.describe());
                    wires.open.push(wire);
                }
                Err(error) => {
                    lack(name, &error.to_string());
                    wires.closed.push(closed(name, error.to_string()));
                }
            }
        }
        if !one_node && others.iter().all(|driver| name_of(driver) != RDMA) {
            let cure = format!(
                "put its plugin where they are looked for, or name it in {}",
                plugin::PATHS
            );
            lack(RDMA, &format!("it is not built in, and no plugin has it; {cure}"));
        }
        return Ok(wires);
    };
    if name == LOCAL {
        let why = format!("{LOCAL} is forced instead; force this one, or none");
        let others = if one_node { &[] } else { drivers() };
        let closed = others.iter().map(|driver| match driver {
            Ok(driver) => closed(driver.name(), why.clone()),
            Err(error) => closed(error.wire(), error.to_string()),
        });
        return Ok(Wires { open: vec![local()], closed: closed.collect() });
    }
    if name == SHARED {
        return Err(unusable(WireError::Unavailable {
            wire: SHARED.to_owned(),
            reason: "it is for ranks of one machine whose GPUs do not reach each other, which take it by themselves".to_owned(),
            cure: "name another wire, or none".to_owned(),
        }));
    }
    let Some(driver) = known().find(|driver| driver.name() == name) else {
        let names = known().map(|driver| driver.name()).collect::<Vec<_>>().join(", ");
        let broken = drivers().iter().filter_map(|driver| driver.as_ref().err());
        let broken: String = broken.map(|error| format!("; {error}")).collect();
        return Err(unusable(WireError::Unavailable {
            wire: name.to_owned(),
            reason: format!("there is no such wire; there are {LOCAL}, {names}{broken}"),
            cure: "name one of these (--wire, ANTIPHON_WIRE, or the option `wire`), or put the wire's plugin where they are looked for"
                .to_owned(),
        }));
    };
    let wire = driver.open(settings).map_err(unusable)?;
    debug!("rank {}: the wire {name} is {}", settings.rank, wire.describe());
    Ok(Wires { open: vec![wire], closed: Vec::new() })
}

/// Says that ranks do without a wire, and warns if the environment asks for it: they take another one, or none.
fn lack(wire: &str, why: &str) {
    let set = env::vars_os().filter(|(_, value)| !value.is_empty());
    let set = set.filter_map(|(name, _)| name.into_string().ok());
    match asking(wire, set, plugin::is_named(wire)) {
        Some(name) if is_news(&format!("no {wire}: {why}")) => {
            warn!("{name} asks for the wire {wire}, which cannot be used: {why}");
        }
        _ => debug!("the wire {wire} cannot be used: {why}"),
    }
}

/// Which of the variables that are set asks for a wire; whether its plugin is named is known.
fn asking(wire: &str, mut set: impl Iterator<Item = String>, is_named: bool) -> Option<String> {
    if is_named {
        return Some(plugin::PATHS.to_owned());
    }
    let is_of_rdma = |name: &String| RDMA_VARIABLES.iter().any(|start| name.starts_with(start));
    if wire == RDMA { set.find(is_of_rdma) } else { None }
}

/// Whether this is said for the first time in this process, in which every communicator, also of the two ends of a transfer,
/// opens wires.
pub(super) fn is_news(text: &str) -> bool {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    lock(&SAID).insert(text.to_owned())
}

fn name_of(driver: &Result<Arc<dyn WireDriver>, WireError>) -> &str {
    driver.as_ref().map_or_else(WireError::wire, |driver| driver.name())
}

fn closed(name: &str, why: String) -> Arc<Closed> {
    Arc::new(Closed { name: name.to_owned(), why })
}

fn unusable(error: WireError) -> ExecutorError {
    ExecutorError::Wire { source: error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_goes_before_a_plugin_of_its_name() {
        let tcp = || Arc::new(TcpDriver::default()) as Arc<dyn WireDriver>;
        let broken = |wire: &str| WireError::Unavailable {
            wire: wire.to_owned(),
            reason: "it is broken".to_owned(),
            cure: "mend it".to_owned(),
        };
        let plugins = [Ok(tcp()), Err(broken("tcp")), Err(broken("other")), Err(broken("other"))];
        let all = with_plugins(vec![tcp()], plugins.into_iter());
        let names: Vec<_> = all.iter().map(|driver| (name_of(driver), driver.is_ok())).collect();
        assert_eq!(names, [("tcp", true), ("other", false), ("other", false)]);
    }

    #[test]
    fn a_wire_is_asked_for_by_its_own_variables_and_by_the_name_of_its_plugin() {
        let asked = |wire, set: &[&str], is_named| {
            asking(wire, set.iter().map(|name| (*name).to_owned()), is_named)
        };
        for name in ["ANTIPHON_HCA", "ANTIPHON_GID_INDEX", "ANTIPHON_RDMA_LANES"] {
            let set = ["ANTIPHON_INTERFACE", name];
            assert_eq!(asked("rdma", &set, false).as_deref(), Some(name));
            assert_eq!(asked("tcp", &set, false), None);
        }
        assert_eq!(asked("rdma", &["ANTIPHON_INTERFACE", "ANTIPHON_WIRE_PLUGINS"], false), None);
        assert_eq!(asked("unix", &[], true).as_deref(), Some("ANTIPHON_WIRE_PLUGINS"));
    }
}
