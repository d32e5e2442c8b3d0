//! Which wires a rank has.

use crate::error::ExecutorError;
use antiphon_hal::Memory;
use antiphon_memory::SharedMemory;
use antiphon_port::{
    LocalWire, MappedRegions, Settings, TcpDriver, Wire, WireDriver, WireError, plugin,
};
use log::debug;
use std::sync::{Arc, OnceLock};

/// The name of the wire between ranks that map each other's memory.
pub const LOCAL: &str = "local";

/// Peers' regions as the memory transport has mapped them.
#[derive(Debug)]
struct Mapped(Arc<SharedMemory>);

impl MappedRegions for Mapped {
    fn region(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>> {
        self.0.region(peer, region)
    }
}

/// All kinds of wires that this build and this machine's plugins have, but for the local one; of plugins that cannot be
/// loaded the reason. Found once.
pub fn drivers() -> &'static [Result<Arc<dyn WireDriver>, WireError>] {
    static DRIVERS: OnceLock<Vec<Result<Arc<dyn WireDriver>, WireError>>> = OnceLock::new();
    DRIVERS.get_or_init(|| {
        let own: [Arc<dyn WireDriver>; 1] = [Arc::new(TcpDriver::default())];
        let plugins = plugin::search();
        own.into_iter().map(Ok).chain(plugins.iter().map(|path| plugin::load(path))).collect()
    })
}

/// The wires of port channels that this build and this machine's plugins have, cheapest first as a rule: over what they
/// go, or why they cannot be used.
pub fn wires() -> Vec<(String, Result<String, WireError>)> {
    let local = (LOCAL.to_owned(), Ok("copies between memories of one host".to_owned()));
    let found = drivers().iter().map(|driver| match driver {
        Ok(driver) => {
            // An end that nobody will connect to.
            let end = driver.open(&Settings::new(0, [0; 32]));
            (driver.name().to_owned(), end.map(|end| end.describe()))
        }
        Err(error) => ("plugin".to_owned(), Err(error.clone())),
    });
    std::iter::once(local).chain(found).collect()
}

/// One rank's ends of all wires that can be used, or of the one that is forced. Where all ranks share a node there is
/// but the local one, unless another is forced.
///
/// # Errors
/// If the one that is forced is unknown or unavailable: why, and what would help.
pub fn open_wires(
    forced: Option<&str>,
    one_node: bool,
    settings: &Settings,
    memory: &Arc<SharedMemory>,
) -> Result<Vec<Arc<dyn Wire>>, ExecutorError> {
    let local = || Arc::new(LocalWire::new(Arc::new(Mapped(Arc::clone(memory))))) as Arc<dyn Wire>;
    let Some(name) = forced else {
        let mut wires = vec![local()];
        if !one_node {
            let opened = drivers().iter().map(|driver| {
                driver.as_ref().map_err(Clone::clone).and_then(|driver| driver.open(settings))
            });
            wires.extend(opened.filter_map(|wire| wire.map_err(|error| debug!("{error}")).ok()));
        }
        return Ok(wires);
    };
    if name == LOCAL {
        return Ok(vec![local()]);
    }
    let known = || drivers().iter().flatten();
    let Some(driver) = known().find(|driver| driver.name() == name) else {
        let names = known().map(|driver| driver.name()).collect::<Vec<_>>().join(", ");
        let broken = drivers().iter().filter_map(|driver| driver.as_ref().err());
        let broken: String = broken.map(|error| format!("; {error}")).collect();
        return Err(unusable(WireError::Unavailable {
            wire: name.to_owned(),
            reason: format!("there is no such wire; there are {LOCAL}, {names}{broken}"),
            cure: "name one of these, or put the wire's plugin where they are looked for"
                .to_owned(),
        }));
    };
    Ok(vec![driver.open(settings).map_err(unusable)?])
}

fn unusable(error: WireError) -> ExecutorError {
    ExecutorError::Wire { source: error }
}
