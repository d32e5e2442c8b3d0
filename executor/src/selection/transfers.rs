//! Calls by name that come to transfers between two ranks, not to one launch of all, unless code serves them: what is said about
//! them.

use super::order::{Candidate, Choice, Rule, Sources, choose};
use super::question::brings_sizes;
use super::{Devices, Question, SelectionError, Spread};
use crate::registry::{Contents, Installed};
use antiphon_plan::model::Collective;

/// What a call by name comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// A launch of what serves the collective.
    Launch,
    /// Transfers between pairs of ranks.
    Transfers,
}

/// What calls by name of a collective come to where no code serves them. Runtime blocks move between ranks that map each other's memory.
pub(crate) fn made(collective: &Collective, spread: Spread) -> Made {
    match collective {
        Collective::SendRecv => Made::Transfers,
        _ if spread.nodes > 1 && brings_sizes(collective) => Made::Transfers,
        _ => Made::Launch,
    }
}

/// Whether a block of an allgatherv that comes to transfers crosses once to each other node, where a rank passes it on to the others.
/// On devices it crosses to each rank: what passes something on is launched before it is known whether that has come.
pub(crate) fn passes_on(spread: Spread) -> bool {
    spread.nodes > 1 && spread.per_node() > 1 && spread.devices == Devices::Host
}

/// What serves a call by name, and why.
///
/// # Errors
/// As [`choose`].
pub(crate) fn explain(
    sources: &Sources<'_>,
    question: &Question<'_>,
) -> Result<Choice, SelectionError> {
    // As calls by name ask.
    let either = question.collective.has_root() || *question.collective == Collective::AllToAllV;
    let in_place = question.in_place && !either;
    let question = &Question { in_place, ..*question };
    match question.collective {
        // Two ranks make it, and no others need be there to choose.
        Collective::SendRecv => {
            let said =
                said(sources, question)? + "; what is registered or installed serves none of them";
            Ok(Choice {
                candidate: Candidate::Transfers,
                rule: Rule::Transfers,
                rules: vec![(Rule::Transfers, said.into())],
                considered: Vec::new(),
                left_out: Vec::new(),
            })
        }
        _ => {
            let mut choice = choose(sources, question, [0; 2])?;
            for (rule, text) in &mut choice.rules {
                if *rule == Rule::Transfers {
                    *text = said(sources, question)?.into();
                }
            }
            Ok(choice)
        }
    }
}

/// What transfers go by. Each is a call of a communicator of two ranks, for which nothing is registered.
fn said(sources: &Sources<'_>, question: &Question<'_>) -> Result<String, SelectionError> {
    let (contents, installed) = (Contents::default(), Installed::none("transfers use none"));
    let sources = Sources { contents: &contents, tuning: sources.tuning, installed: &installed };
    let devices = question.spread.devices;
    let pair = |nodes| Spread { ranks: 2, nodes, crowded: false, devices };
    let near =
        Question { bytes: 0, ..Question::new(&Collective::AllToAllV, pair(1), 0, question.dtype) };
    let near = choose(&sources, &near, [0; 2])?;
    let mut said = match question.collective {
        Collective::SendRecv => "each send, with its receive, is a launch of two ranks".to_owned(),
        Collective::AllGatherV if passes_on(question.spread) => {
            "each block goes to the rank's node, and to one rank of each other node, which passes it on to the others there; each time \
             it is a launch of two ranks"
                .to_owned()
        }
        _ => "each block that goes to another rank is a launch of two ranks".to_owned(),
    };
    said.push_str(&format!(": of one node by `{}`", near.candidate.name()));
    if question.spread.nodes > 1 {
        let bytes = question.bytes;
        if *question.collective == Collective::SendRecv {
            let far = Question::new(&Collective::Broadcast, pair(2), bytes, question.dtype);
            let far = choose(&sources, &Question { in_place: true, ..far }, [0; 2])?;
            said.push_str(&format!(", of two nodes by `{}`", far.candidate.name()));
        } else {
            said.push_str(", of two nodes by a broadcast that its length decides");
        }
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Registry, Terms};
    use crate::selection::table::{Kind, Machine, Setting, Table, Times};
    use crate::selection::{Tuning, Wish, select};
    use antiphon_plan::algorithms::devices::DeviceClass;
    use antiphon_plan::algorithms::{Algorithm, Shape};
    use antiphon_plan::model::Plan;
    use antiphon_types::DataType;

    fn explained(collective: &Collective, (nodes, devices): (u32, Devices), bytes: u64) -> Choice {
        let registry = Registry::new();
        let plan = Algorithm::AllToAllZeroCopy.plan(Shape::new(4)).unwrap();
        let plan = Plan { name: "mine".to_owned(), ..plan };
        registry.register(plan, Terms::default()).unwrap();
        let spread = Spread { ranks: 4, nodes, crowded: false, devices };
        let question = Question::new(collective, spread, bytes, DataType::F32);
        let none = Installed::none("so");
        registry.choose_with(&question, &Tuning::none("so"), &none).unwrap()
    }

    #[test]
    fn no_buffer_of_a_call_with_a_root_is_said_to_be_in_place() {
        use Collective::{Broadcast, Gather, Reduce, Scatter};
        let registry = Registry::new();
        let mut table = Table::new(Machine::here());
        for (in_place, fastest) in [(false, "broadcast_zero_copy"), (true, "broadcast_packets")] {
            let (collective, kind) = (Broadcast, Kind::Processes);
            let setting = Setting { collective, ranks: 2, nodes: 1, kind, in_place };
            let time = |name: &str| (name.to_owned(), if name == fastest { 1 } else { 9 });
            let times = ["broadcast_zero_copy", "broadcast_packets"].map(time);
            table.record(&setting, 1 << 20, Times::new(times));
        }
        let (tuned, not_tuned) = (Tuning::new(table), Tuning::none("so"));
        for (collective, nodes, tuning) in [
            (&Broadcast, 1, &tuned),
            (&Broadcast, 1, &not_tuned),
            (&Broadcast, 2, &not_tuned),
            (&Reduce, 1, &not_tuned),
            (&Gather, 1, &not_tuned),
            (&Scatter, 2, &not_tuned),
        ] {
            let spread = Spread { ranks: 2, nodes, crowded: false, devices: Devices::Host };
            let question = Question::new(collective, spread, 1 << 20, DataType::F32);
            let said = |in_place| {
                let (question, none) = (Question { in_place, ..question }, Installed::none("so"));
                registry.choose_with(&question, tuning, &none).unwrap().to_string()
            };
            assert_eq!(said(true), said(false), "{question}");
        }
    }

    #[test]
    fn what_calls_by_name_really_do_is_said() {
        use Collective::{AllGatherV, AllToAllV, Broadcast, Gather, Scatter, SendRecv};
        let near = "of one node by `alltoallv_zero_copy`";
        // What a broadcast from one node to another goes by.
        let chosen = |ranks, bytes| {
            let spread = Spread { ranks, nodes: 2, crowded: false, devices: Devices::Host };
            let wish = Wish { collective: &Broadcast, bytes, in_place: false, root: 0 };
            select(spread, wish).unwrap().name()
        };
        let far = |bytes| format!("of two nodes by `{}`", chosen(2, bytes));
        let spread = Spread { ranks: 4, nodes: 1, crowded: false, devices: Devices::Host };
        let wish = Wish { collective: &Gather, bytes: 64, in_place: false, root: 0 };
        let gather = select(spread, wish).unwrap().name();
        let rooted = |collective| {
            let spread = Spread { nodes: 2, ..spread };
            let name = select(spread, Wish { collective, ..wish }).unwrap().name();
            assert!(name.contains("hierarchical"), "{name}");
            name
        };
        let (whole, large) = (far(64), far(1 << 18));
        let cases = [
            (&SendRecv, 1, 64, "transfers", "each send, with its receive"),
            (&SendRecv, 1, 64, "transfers", near),
            (&SendRecv, 2, 64, "transfers", whole.as_str()),
            (&SendRecv, 2, 1 << 18, "transfers", large.as_str()),
            (&AllToAllV, 1, 64, "alltoallv_zero_copy", "rule by size"),
            (&AllToAllV, 2, 64, "transfers", "by a broadcast that its length decides"),
            (&AllGatherV, 1, 64, "allgatherv_zero_copy", "rule by size"),
            (&AllGatherV, 2, 64, "transfers", "by a broadcast that its length decides"),
            (&AllGatherV, 2, 64, "transfers", "to one rank of each other node, which passes it on"),
            (&Gather, 1, 64, gather, "rule by size"),
            (&Gather, 2, 64, rooted(&Gather), "rule by size"),
            (&Scatter, 2, 64, rooted(&Scatter), "rule by size"),
            (&Broadcast, 2, 64, chosen(4, 64), "rule by size"),
        ];
        for (collective, nodes, bytes, name, part) in cases {
            let choice = explained(collective, (nodes, Devices::Host), bytes);
            let text = choice.to_string();
            assert_eq!(choice.candidate.name(), name, "{collective}: {text}");
            assert!(text.contains(part), "{collective}: no {part} in {text}");
        }
        let apart = explained(&AllGatherV, (4, Devices::Host), 64).to_string();
        assert!(!apart.contains("passes it on"), "{apart}");
        // On GPUs as the simulator predicts for these, which is not what hosts go by.
        let gpus = Devices::of(DeviceClass::Nvidia);
        let text = explained(&SendRecv, (2, gpus), 256 << 10).to_string();
        assert!(text.contains("of two nodes by `broadcast_hierarchical_packets`"), "{text}");
        let hosts = explained(&SendRecv, (2, Devices::Host), 256 << 10).to_string();
        assert_ne!(text, hosts);
        for (collective, nodes) in [(&Gather, 1), (&Scatter, 1), (&Gather, 2), (&Scatter, 2)] {
            let text = explained(collective, (nodes, gpus), 64).to_string();
            assert!(text.contains("as the simulator predicts for `a100x8`"), "{text}");
            assert_eq!(text.starts_with(&format!("chosen: {collective}_hier")), nodes > 1);
        }
    }
}
