//! Which ranks a launch names.

use crate::plan_cache::LoadedPlan;
use antiphon_plan::program::Layout;
use std::collections::BTreeSet;

/// Lists of ranks, as a launch names them: where they begin among a context's lists, and how long they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Those that touch the rank's input or output.
    pub readers: (u64, u32),
    /// Those that must have completed the launch before last.
    pub behind: (u64, u32),
    /// As `behind`, where the last launch heard from fewer peers than the plan says.
    pub behind_silent: (u64, u32),
    /// Those that may write the rank's buffers to the end.
    pub late: (u64, u32),
}

/// The lists of ranks of a plan's launches, one behind the other, and where each is.
pub fn lists(plan: &LoadedPlan, rank: u32) -> (Vec<u32>, Lists) {
    let uses = plan.uses(rank);
    let readers = readers(plan.layout(), rank);
    let with = |others: &[u32]| -> Vec<u32> {
        let all: BTreeSet<u32> = readers.iter().chain(others).copied().collect();
        all.into_iter().collect()
    };
    let mut words = Vec::new();
    let mut add = |ranks: &[u32]| {
        let start = words.len() as u64 * 4;
        words.extend_from_slice(ranks);
        (start, ranks.len() as u32)
    };
    let lists = Lists {
        readers: add(&readers),
        behind: add(&with(&uses.unheard)),
        behind_silent: add(&with(&uses.packet_targets)),
        late: add(&uses.late_writers),
    };
    (words, lists)
}

/// The other ranks that touch a rank's input or output.
pub fn readers(layout: &Layout, rank: u32) -> Vec<u32> {
    let touches = |own: &&antiphon_plan::program::RankLayout| own.buffer_peers.contains(&rank);
    let ranks = (0..).zip(&layout.ranks).filter(|(_, own)| touches(own));
    ranks.map(|(other, _)| other).filter(|&other| other != rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::builder::ProgramBuilder;
    use antiphon_plan::model::Collective;

    #[test]
    fn who_touches_a_ranks_buffers_is_told_where_they_are() {
        let program = ProgramBuilder::new("lists", Collective::SendRecv, 3);
        program.channel(0, 1);
        program.channel(0, 2);
        let scratch = program.scratch(2, 1);
        let block = program.block(0);
        block.put(program.input(0).all(), program.output(1).all());
        block.put_packets(program.input(0).all(), scratch.all());
        let plan = LoadedPlan::new(&program.build().unwrap()).unwrap();
        let of = |rank, which: fn(&Lists) -> (u64, u32)| {
            let (words, lists) = lists(&plan, rank);
            let (start, count) = which(&lists);
            words[start as usize / 4..][..count as usize].to_vec()
        };
        assert_eq!(of(1, |lists| lists.readers), [0]);
        assert_eq!(of(1, |lists| lists.behind), [0]);
        assert_eq!(of(0, |lists| lists.readers), [] as [u32; 0]);
        assert_eq!(of(0, |lists| lists.behind), [2], "it never hears from rank 2");
        assert_eq!(of(1, |lists| lists.late), [0]);
    }
}
