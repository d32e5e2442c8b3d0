//! What the executor makes of a verdict, held against the verifier itself.

use antiphon::executor::{ExecutorError, Verdict};
use antiphon::plan::model::Plan;
use antiphon::plan::program::Layout;
use antiphon::plan::verify::{self, Options, verify};

/// Asserts that loading a plan that can be lowered ended as the verifier says: refused with the first fault, or accepted
/// with what is known of it.
///
/// # Panics
/// If not.
pub fn assert_verdict(plan: &Plan, loaded: Result<Verdict, ExecutorError>) {
    let name = &plan.name;
    let layout = Layout::new(plan).unwrap_or_else(|error| panic!("{name}: {error}"));
    let report = verify(plan, &layout, Options::default());
    match (&report.verdict, loaded) {
        (verify::Verdict::Proven, Ok(Verdict::Proven)) => {}
        (verify::Verdict::NotProven(reasons), Ok(Verdict::NotProven(text))) => {
            let first = reasons.first().map_or("", |reason| head(reason));
            assert!(text.starts_with(first), "{name}: no `{first}` in: {text}");
        }
        (verify::Verdict::Refuted(refutations), Err(error @ ExecutorError::Refuted { .. })) => {
            let fault = refutations.first().map(|refutation| refutation.fault.to_string());
            let fault = fault.unwrap_or_else(|| panic!("{name}: refuted, but by nothing"));
            let text = error.to_string();
            for part in [head(&fault), name, "plan verify"] {
                assert!(text.contains(part), "{name}: no `{part}` in: {text}");
            }
        }
        (verdict, loaded) => panic!("{name}: {verdict:?}, but loading gave {loaded:?}"),
    }
}

/// The start of a text; the executor cuts long ones.
fn head(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}
