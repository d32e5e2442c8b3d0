//! The plugin: what the program loads.

use crate::{NAME, RdmaDriver};
use antiphon_port::{WireDriver, WireError, export_wire};
use std::sync::Arc;

/// The driver, where there is a device that it could use.
fn driver() -> Result<Arc<dyn WireDriver>, WireError> {
    let unavailable = |reason: &str, cure: &str| WireError::Unavailable {
        wire: NAME.to_owned(),
        reason: reason.to_owned(),
        cure: cure.to_owned(),
    };
    if cfg!(not(feature = "rdma")) {
        return Err(unavailable(
            "this plugin was built without libibverbs",
            "build it with `cargo build --release -p antiphon-wire-rdma --features rdma`",
        ));
    }
    Ok(Arc::new(RdmaDriver))
}

export_wire!(c"rdma", driver);
