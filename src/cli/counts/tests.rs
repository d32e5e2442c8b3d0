//! What blocks the rules give, and what is refused.

use super::*;
use antiphon::plan::algorithms::{self, allgatherv, alltoallv};
use antiphon::plan::builder::ProgramBuilder;

fn alltoall(ranks: usize) -> Plan {
    alltoallv::zero_copy(algorithms::Shape::new(ranks)).unwrap()
}

fn allgather(ranks: usize, in_place: bool) -> Plan {
    allgatherv::zero_copy(algorithms::Shape { in_place, ..algorithms::Shape::new(ranks) }).unwrap()
}

fn blocks(plan: &Plan, text: &str, size: u64) -> Result<Blocks, String> {
    let rule = parse(text)?.rule(5).map_err(|error| error.to_string())?;
    Blocks::new(plan, &rule, size, 4).map_err(|error| error.to_string())
}

fn transposed(rows: &[Vec<u64>]) -> Vec<Vec<u64>> {
    (0..rows.len()).map(|column| rows.iter().map(|row| row[column]).collect()).collect()
}

#[test]
fn patterns_are_told_from_numbers_and_files() {
    let cases = [
        ("even", Pattern::Even),
        ("uneven", Pattern::Uneven),
        ("random", Pattern::Random(None)),
        ("random:7", Pattern::Random(Some(7))),
        ("1,2:3,4", Pattern::List("1,2:3,4".into())),
        ("./1.txt", Pattern::File("./1.txt".into())),
        ("counts", Pattern::File("counts".into())),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text), Ok(expected), "{text}");
    }
    for (text, word) in [("", "even, uneven, random"), ("random:x", "random:7"), ("1,x", "`x`")] {
        let message = parse(text).unwrap_err();
        assert!(message.contains(word), "{text}: {message}");
    }
    assert_eq!(
        rows("# what goes where\n1 2 # two\n\n3,4:5"),
        Ok(vec![vec![1, 2], vec![3, 4], vec![5]])
    );
}

#[test]
fn what_one_sends_the_other_receives() {
    for ranks in [1, 2, 3, 5] {
        for text in ["even", "uneven", "random:3", "random"] {
            for size in [0, 1, 100, 1 << 20] {
                let found = blocks(&alltoall(ranks), text, size).unwrap();
                assert_eq!(found.receive, transposed(&found.send), "{text} {size}");
                let found = blocks(&allgather(ranks, false), text, size).unwrap();
                let sent: Vec<u64> = found.send.iter().flatten().copied().collect();
                assert_eq!(found.receive, vec![sent; ranks], "{text} {size}");
            }
        }
    }
}

#[test]
fn sizes_are_those_of_the_largest_buffer() {
    let even = blocks(&alltoall(4), "even", 64).unwrap();
    assert_eq!(even.send, vec![vec![4; 4]; 4]);
    assert_eq!(even.widest(4), Shape { input: 64, output: 64, count: 16 });
    let uneven = blocks(&alltoall(2), "uneven", 16 << 10).unwrap();
    assert_eq!(uneven.send, [[3072, 1024], [0, 2048]]);
    assert_eq!(uneven.shape(1, 4), Shape { input: 8192, output: 12288, count: 3072 });
    let gathered = blocks(&allgather(4, false), "uneven", 2400).unwrap();
    assert_eq!(gathered.send, [[300], [0], [100], [200]]);
    assert_eq!(gathered.widest(4), Shape { input: 1200, output: 2400, count: 600 });
    let tiny = blocks(&allgather(4, false), "uneven", 1).unwrap();
    assert_eq!(tiny.send, [[1], [0], [1], [1]], "one element, unless there are to be none");
}

#[test]
fn chance_is_the_same_for_the_same_seed_and_leaves_some_out() {
    let plan = alltoall(8);
    let of = |text| blocks(&plan, text, 1 << 20).unwrap();
    assert_eq!(of("random:1"), of("random:1"));
    assert_ne!(of("random:1"), of("random:2"));
    assert_eq!(of("random"), of("random:5"), "the seed by chance");
    let counts: Vec<u64> = of("random:1").send.concat();
    assert!(counts.contains(&0) && counts.iter().any(|&count| count > 10_000), "{counts:?}");
}

#[test]
fn numbers_are_taken_as_given_or_refused() {
    let found = blocks(&alltoall(2), "4,0:1,7", 0).unwrap();
    assert_eq!(
        (&found.send[..], &found.receive[..]),
        (&[vec![4, 0], vec![1, 7]][..], &[vec![4, 1], vec![0, 7]][..])
    );
    assert_eq!(found.describe(&Collective::AllToAllV), "rank 0 sends 4 0, rank 1 sends 1 7");
    let found = blocks(&allgather(3, false), "4,0,9", 0).unwrap();
    assert_eq!(found.describe(&Collective::AllGatherV), "ranks send 4 0 9");
    assert_eq!(blocks(&allgather(3, false), "4:0:9", 0).unwrap(), found);
    for (plan, text, word) in [
        (alltoall(2), "4,0", "a row for each of 2 ranks"),
        (alltoall(2), "4,0:1", "saw rows of 2, 1 numbers"),
        (allgather(2, false), "1,2,3", "one number for each of 2 ranks"),
        (alltoall(2), "no/such/file", "no/such/file"),
    ] {
        let message = blocks(&plan, text, 0).unwrap_err();
        assert!(message.contains(word), "{text}: {message}");
    }
}

#[test]
fn other_plans_have_blocks_as_long_as_those_they_move_to() {
    let p = ProgramBuilder::new("pass", Collective::Other("pass".into()), 2).runtime_blocks(2, 1);
    p.channel(0, 1);
    p.block(0).put(p.input(0).chunk(1), p.output(1).chunk(0));
    let plan = p.build().unwrap();
    let found = blocks(&plan, "uneven", 1200).unwrap();
    assert_eq!(found.send[0][1], found.receive[1][0]);
    let lengths: Vec<u64> = [&found.send[..], &found.receive[..]].concat().concat();
    assert!(lengths.contains(&0) && lengths.iter().any(|&length| length > 0), "{found:?}");
    let message = blocks(&plan, "1,2", 0).unwrap_err();
    assert!(message.contains("even, uneven and random"), "{message}");
    assert!(found.describe(&plan.collective).contains("and receives"));
    assert_eq!(found.bus_factor(&plan.collective), 1.0);
}

#[test]
fn in_place_the_input_is_the_own_block_of_the_output() {
    let plan = allgather(3, true);
    let found = blocks(&plan, "5,0,7", 0).unwrap();
    let placement = |rank| found.in_place(&plan, rank, 4).unwrap();
    assert_eq!(placement(2), Placement { bytes: 48, input: 20, output: 0 });
    assert_eq!(found.in_place(&allgather(3, false), 0, 4), None);
    assert_eq!(found.in_place(&alltoall(3), 0, 4), None);
}

#[test]
fn the_busiest_rank_counts() {
    let even = blocks(&alltoall(4), "even", 1 << 20).unwrap();
    assert_eq!(even.bus_factor(&Collective::AllToAllV), 0.75);
    let found = blocks(&alltoall(2), "4,1:0,7", 0).unwrap();
    assert_eq!(found.bus_factor(&Collective::AllToAllV), 1.0 / 8.0);
    let found = blocks(&allgather(2, false), "4,0", 0).unwrap();
    assert_eq!(found.bus_factor(&Collective::AllGatherV), 1.0);
    let nothing = blocks(&alltoall(2), "0,0:0,0", 0).unwrap();
    assert_eq!(nothing.bus_factor(&Collective::AllToAllV), 1.0);
}

#[test]
fn many_numbers_are_summed_up() {
    let found = blocks(&alltoall(9), "even", 81 * 4).unwrap();
    let text = found.describe(&Collective::AllToAllV);
    assert_eq!(text, "9 ranks send 9 to 9 elements a block; --json lists them");
}
