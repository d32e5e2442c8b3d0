//! What this process logs.

use std::sync::Mutex;

struct Ear;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl log::Log for Ear {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

/// Listens from now on.
pub fn listen() {
    // Of several tests in one process, as on a card, the first one listens for all.
    let _ = log::set_logger(&Ear);
    log::set_max_level(log::LevelFilter::Debug);
}

/// How many lines with these words were heard.
pub fn heard(words: &str) -> usize {
    LINES.lock().unwrap().iter().filter(|line| line.contains(words)).count()
}
