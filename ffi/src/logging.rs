//! What the library reports beside its results. It goes to standard error, since C has no logger to give it to.

use antiphon_executor::hal::log_line;
use std::io::Write;
use std::sync::Once;

/// The variable that says what to log, e.g. `debug`, or `off`; if it is not set, warnings are logged. The command reads it too.
const LOG: &str = "ANTIPHON_LOG";

/// Makes warnings visible; it is called before anything can warn. A Rust program that has a logger of its own keeps it.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let mut logger = env_logger::Builder::new();
        logger.filter_level(log::LevelFilter::Warn).parse_env(LOG);
        logger.format(|out, record| {
            out.write_all(log_line(record.level(), record.args()).as_bytes())
        });
        // This fails if there is a logger already.
        drop(logger.try_init());
    });
}
