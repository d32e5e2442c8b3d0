//! What is said about a choice: for people, and for programs.

use super::order::{Candidate, Choice};
use std::fmt::{self, Write as _};

impl fmt::Display for Choice {
    /// Several lines, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "chosen: {} ({})", self.candidate.name(), self.candidate.kind())?;
        for (rule, said) in &self.rules {
            writeln!(f, "  {}: {said}", rule.name())?;
        }
        if !self.considered.is_empty() {
            writeln!(f, "considered:")?;
        }
        for (candidate, fits) in &self.considered {
            write!(f, "  {} ({}): ", candidate.name(), candidate.kind())?;
            match fits {
                Ok(()) => writeln!(f, "fits")?,
                Err(misfit) => writeln!(f, "{misfit}")?,
            }
        }
        if !self.left_out.is_empty() {
            writeln!(f, "left out:")?;
        }
        self.left_out.iter().try_for_each(|note| writeln!(f, "  {note}"))
    }
}

impl Choice {
    /// The same as one object of JSON: `chosen` (`name` and `kind`), `rule`, `rules` (`rule` and `said`), `considered`
    /// (`name`, `kind`, `fits`, and a `reason` where it does not), and `left_out` (files that are no installed plans, and why).
    pub fn to_json(&self) -> String {
        let pair = |candidate: &Candidate| {
            format!("\"name\":{},\"kind\":{}", text(candidate.name()), text(candidate.kind()))
        };
        let rules = self.rules.iter().map(|(rule, said)| {
            format!("{{\"rule\":{},\"said\":{}}}", text(rule.name()), text(said))
        });
        let considered = self.considered.iter().map(|(candidate, fits)| match fits {
            Ok(()) => format!("{{{},\"fits\":true}}", pair(candidate)),
            Err(misfit) => {
                let reason = text(&misfit.to_string());
                format!("{{{},\"fits\":false,\"reason\":{reason}}}", pair(candidate))
            }
        });
        let left_out = self.left_out.iter().map(|note| text(note));
        format!(
            "{{\"chosen\":{{{}}},\"rule\":{},\"rules\":[{}],\"considered\":[{}],\"left_out\":[{}]}}",
            pair(&self.candidate),
            text(self.rule.name()),
            rules.collect::<Vec<_>>().join(","),
            considered.collect::<Vec<_>>().join(","),
            left_out.collect::<Vec<_>>().join(","),
        )
    }
}

/// A string of JSON.
fn text(plain: &str) -> String {
    let mut quoted = String::with_capacity(plain.len() + 2);
    quoted.push('"');
    for letter in plain.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            control if u32::from(control) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::selection::{Devices, Question, Spread, select};
    use antiphon_plan::model::Collective;
    use antiphon_types::DataType;

    #[test]
    fn a_choice_is_said_in_json_whatever_names_hold() {
        assert_eq!(text("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
        let spread = Spread { ranks: 2, nodes: 1, crowded: false, devices: Devices::Host };
        let question = Question::new(&Collective::AllReduce, spread, 4, DataType::F32);
        let json = Registry::new().choose(&question).unwrap().to_json();
        let name = select(spread, question.wish()).unwrap().name();
        let chosen = format!(r#"{{"chosen":{{"name":"{name}","kind":"built-in algorithm"}},"#);
        let parts = [
            chosen.as_str(),
            r#""rule":"rule by size","#,
            r#"{"rule":"selector","said":"there is none"}"#,
            r#"{"name":"allreduce_ring","kind":"built-in algorithm","fits":true}"#,
        ];
        for part in parts {
            assert!(json.contains(part), "{part}: {json}");
        }
    }
}
