//! What the library says beside its results: on standard error, since C has nothing to hand it to.

use std::sync::Once;

/// Names the variable that says what to log, e.g. `debug`, or `off`; warnings, unless it is set. The command has the same.
const LOG: &str = "ANTIPHON_LOG";

/// Sees to it that warnings are seen, from what is called before anything can warn. A program in Rust that has a logger keeps
/// it.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let mut logger = env_logger::Builder::new();
        // Of whom there may be one already.
        drop(logger.filter_level(log::LevelFilter::Warn).parse_env(LOG).try_init());
    });
}
