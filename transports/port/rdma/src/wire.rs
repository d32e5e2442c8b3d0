//! The driver, and a rank's end.

use crate::NAME;
use crate::settings::RdmaSettings;
use antiphon_port::{Settings, Wire, WireDriver, WireError};
use std::sync::Arc;

#[cfg(feature = "rdma")]
pub(crate) use with_verbs::End;

/// Opens ends over the RDMA devices of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RdmaDriver;

impl WireDriver for RdmaDriver {
    fn name(&self) -> &str {
        NAME
    }

    fn open(&self, settings: &Settings) -> Result<Arc<dyn Wire>, WireError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let own = RdmaSettings::parse(settings.interface.as_deref(), variable)
            .map_err(|(saw, allowed)| invalid("open an end", saw, allowed))?;
        open(settings, own)
    }
}

pub(crate) fn invalid(operation: &'static str, saw: String, allowed: String) -> WireError {
    WireError::Invalid { operation, wire: NAME.to_owned(), saw, allowed }
}

#[cfg(not(feature = "rdma"))]
fn open(_: &Settings, _: RdmaSettings) -> Result<Arc<dyn Wire>, WireError> {
    Err(WireError::Unavailable {
        wire: NAME.to_owned(),
        reason: "this plugin was built without libibverbs".to_owned(),
        cure: "build it with `cargo build -p antiphon-wire-rdma --features rdma`".to_owned(),
    })
}

#[cfg(feature = "rdma")]
fn open(settings: &Settings, own: RdmaSettings) -> Result<Arc<dyn Wire>, WireError> {
    with_verbs::open(settings, own)
}

#[cfg(feature = "rdma")]
mod with_verbs {
    use super::invalid;
    use crate::NAME;
    use crate::address::encode_region;
    use crate::choose::{choose, sysfs};
    use crate::link::RdmaOpening;
    use crate::settings::RdmaSettings;
    use crate::verbs::{Nic, Region, refused_by};
    use antiphon_hal::Memory;
    use antiphon_port::{Opening, Registration, Settings, Wire, WireError};
    use antiphon_transport::topology::Topology;
    use antiphon_transport::{Peer, Reach};
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex, PoisonError, Weak};

    /// What an end's links share.
    #[derive(Debug)]
    pub(crate) struct End {
        pub(crate) rank: u32,
        pub(crate) settings: RdmaSettings,
        pub(crate) nics: Vec<Arc<Nic>>,
        /// Why these.
        why: String,
        /// By the number of their memory: registering is slow, and memory is registered again and again.
        regions: Mutex<HashMap<u64, Weak<Region>>>,
    }

    impl End {
        /// The registration of a memory, while somebody holds it.
        pub(crate) fn region(&self, memory: u64) -> Option<Arc<Region>> {
            let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
            regions.get(&memory).and_then(Weak::upgrade)
        }

        pub(crate) fn describe(&self) -> String {
            let shown = |nic: &Arc<Nic>| match &nic.choice.gid {
                Some(gid) => format!("{} as {} (index {})", nic.name(), gid.address(), gid.index),
                None => nic.name(),
            };
            let ports: Vec<_> = self.nics.iter().map(shown).collect();
            format!("RDMA over {}, {}", ports.join(", "), self.why)
        }
    }

    pub(super) fn open(settings: &Settings, own: RdmaSettings) -> Result<Arc<dyn Wire>, WireError> {
        let topology = Topology::of_machine();
        let ports = sysfs::ports(&topology).map_err(|e| {
            let root = topology.root().join("class/infiniband");
            refused_by("list devices", &root.display().to_string(), &e)
        })?;
        let from = topology.viewpoint_of_thread(settings.device);
        let chosen = choose(&ports, &own, (&topology, &from)).map_err(|(reason, cure)| {
            WireError::Unavailable { wire: NAME.to_owned(), reason, cure }
        })?;
        let (why, chosen) = (chosen.why, chosen.ports);
        let nics = chosen.into_iter().map(Nic::open).collect::<Result<Vec<_>, _>>()?;
        let regions = Mutex::new(HashMap::new());
        let end = End { rank: settings.rank, settings: own, nics, why, regions };
        Ok(Arc::new(RdmaWire(Arc::new(end))))
    }

    #[derive(Debug)]
    struct RdmaWire(Arc<End>);

    impl Wire for RdmaWire {
        fn name(&self) -> &str {
            NAME
        }

        fn reach(&self, _: &Peer) -> Reach {
            Reach::At { cost: 10 }
        }

        fn describe(&self) -> String {
            self.0.describe()
        }

        fn register(&self, memory: &Arc<dyn Memory>) -> Result<Registration, WireError> {
            let mut regions = self.0.regions.lock().unwrap_or_else(PoisonError::into_inner);
            let known = regions.get(&memory.id()).and_then(Weak::upgrade);
            let region = match known {
                Some(region) => region,
                None => {
                    let region = Arc::new(Region::new(&self.0.nics, memory)?);
                    regions.retain(|_, region| region.strong_count() > 0);
                    regions.insert(memory.id(), Arc::downgrade(&region));
                    region
                }
            };
            let blob = encode_region(&region.address());
            Ok(Registration {
                region: memory.id(),
                bytes: memory.len(),
                blob,
                keep: Box::new(region),
            })
        }

        fn open(&self, peer: u32) -> Result<Box<dyn Opening>, WireError> {
            if peer == self.0.rank {
                let saw = format!("rank {peer} itself");
                return Err(invalid("open a link", saw, "other ranks".to_owned()));
            }
            Ok(Box::new(RdmaOpening::new(&self.0, peer)?))
        }
    }
}
