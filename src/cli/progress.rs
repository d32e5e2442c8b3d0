//! Progress of long work: a bar on standard error, where that is a terminal.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

/// How steps take their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// About as long each: what is left can be estimated.
    Even,
    /// As it comes, e.g. longer for larger messages.
    Uneven,
}

/// A progress bar; nothing where standard error is not a terminal.
pub struct Progress(Option<ProgressBar>);

/// The bar, how many steps are done, what is being done, and the times.
fn style(pace: Pace) -> Option<ProgressStyle> {
    let template = match pace {
        Pace::Even => "[{bar:30}] {pos}/{len} {msg}, {elapsed}, {left}",
        Pace::Uneven => "[{bar:30}] {pos}/{len} {msg}, {elapsed}",
    };
    let left = |state: &ProgressState, line: &mut dyn Write| {
        // Before a step is done nothing is known, which would be shown as no time.
        let _ = match state.pos() {
            0 => write!(line, "time left not known yet"),
            _ => write!(line, "about {} left", HumanDuration(state.eta())),
        };
    };
    let style = ProgressStyle::with_template(template).ok()?;
    Some(style.with_key("left", left).progress_chars("=> "))
}

impl Progress {
    /// A bar that counts to `steps`.
    pub fn new(steps: u64, pace: Pace) -> Self {
        if !std::io::stderr().is_terminal() {
            return Progress(None);
        }
        Progress::on(ProgressDrawTarget::stderr(), steps, pace)
    }

    fn on(target: ProgressDrawTarget, steps: u64, pace: Pace) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        if let Some(style) = style(pace) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(Some(bar))
    }

    /// No bar, for those who leave the talking to another.
    pub fn silent() -> Self {
        Progress(None)
    }

    /// Says what is being done.
    pub fn say(&self, what: impl Into<String>) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.into());
        }
    }

    /// One step is done.
    pub fn step(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }

    /// Runs `print` with the bar out of the way.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A terminal that keeps what is written to it.
    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<String>>);

    impl Kept {
        fn keep(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        /// What was written since the last time.
        fn take(&self) -> String {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl TermLike for Kept {
        fn width(&self) -> u16 {
            200
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.keep(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.keep(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is shown of two steps of four, before the first and after the second.
    fn shown(pace: Pace) -> [String; 2] {
        let terminal = Kept::default();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(terminal.clone()), 255);
        let progress = Progress::on(target, 4, pace);
        progress.say("measuring");
        let draw = || progress.0.as_ref().unwrap().force_draw();
        draw();
        let before = terminal.take();
        progress.step();
        progress.step();
        draw();
        [before, terminal.take()]
    }

    #[test]
    fn a_bar_grows_and_what_is_left_is_estimated_where_it_can_be() {
        let [before, after] = shown(Pace::Even);
        assert!(before.contains("0/4 measuring") && before.contains("not known yet"), "{before}");
        assert!(!before.contains('='), "{before}");
        assert!(after.contains("2/4 measuring") && after.contains(" left"), "{after}");
        assert!(after.contains("[===============") && after.contains("about "), "{after}");
        let [_, after] = shown(Pace::Uneven);
        assert!(after.contains("[===") && !after.contains("left"), "{after}");
    }
}
