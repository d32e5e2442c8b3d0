//! One mutant in full, for whoever looks into what the judges say of it.

use super::choose::Mutant;
use super::judge::{Judgement, Said};
use super::kinds::KINDS;
use crate::{Error, Result};
use antiphon::plan::json::{self, Style};

/// The plan as a file, then everything the judges say, as lines of text.
///
/// # Errors
/// A plan that cannot be written.
pub fn show(mutant: &Mutant, judgement: &Judgement) -> Result<String> {
    let mut file = Vec::new();
    json::write(&mutant.plan, Style::Compact, &mut file).map_err(Error::io("write the plan"))?;
    let mut text = String::from_utf8_lossy(&file).into_owned();
    let mut line = |what: String| {
        text.push('\n');
        text += &what;
    };
    let Mutant { kind, number, base, what, .. } = mutant;
    line(format!("{}:{number} of {base}: {what}", KINDS[*kind].name));
    match &judgement.shown {
        Some((case, schedule)) => {
            line(format!("a schedule shows a fault: {schedule:?} of {case:?}"))
        }
        None => line(format!("none of {} schedules shows a fault", judgement.schedules)),
    }
    match &judgement.said {
        Said::Proven(notes) => {
            line("the verifier: proven".to_owned());
            notes.iter().for_each(|note| line(format!("  but of users: {note}")));
        }
        Said::NotProven(reasons) => {
            line("the verifier: not proven".to_owned());
            reasons.iter().for_each(|reason| line(format!("  {reason}")));
        }
        Said::Refuted(refutations) => {
            line("the verifier: refuted".to_owned());
            for (refutation, replay) in refutations {
                line(format!("  {}", refutation.fault));
                line(format!("  in {:?}, {:?}", refutation.case, refutation.schedule));
                refutation.steps.iter().for_each(|step| line(format!("    {step}")));
                line(format!("  played: {replay:?}"));
            }
        }
    }
    line(format!("the verifier took {:?}", judgement.time));
    judgement.broken.iter().for_each(|broken| line(format!("broken: {broken}")));
    Ok(text)
}
