//! Tuning tables in communicators: a table that all ranks have decides.

use antiphon_executor::selection::table::{Kind, Machine, Setting, Table, Times};
use antiphon_executor::selection::{Rule, Tuning};
use antiphon_executor::{Collectives, Communicator, DataType, Options, ReduceOp, Request, What};
use antiphon_plan::model::Collective;

#[test]
fn the_table_of_the_options_decides_on_every_rank() {
    let mut table = Table::new(Machine::here());
    let (ranks, nodes, in_place) = (2, 1, false);
    let setting =
        Setting { collective: Collective::AllReduce, ranks, nodes, kind: Kind::Threads, in_place };
    let times = [("allreduce_ring", 5), ("allreduce_zero_copy", 9)];
    let times = Times::new(times.map(|(name, time)| (name.to_owned(), time)));
    table.record(&setting, 4096, times);
    // In place another one is faster: ranks need not agree on that, and so it does not count.
    let times = Times::new([("allreduce_zero_copy".to_owned(), 1)]);
    table.record(&Setting { in_place: true, ..setting }, 4096, times);
    for (tuning, rule) in
        [(Tuning::new(table), Rule::Table), (Tuning::none("of this test"), Rule::Size)]
    {
        let options = Options::default().with_tuning(tuning).with_reproducible(false);
        for communicator in Communicator::in_process(2, &options).unwrap() {
            let calls = Collectives::new(&communicator).unwrap();
            let question = calls.question(&Collective::AllReduce, 4096, DataType::F32).unwrap();
            let choice = calls.explain(&question).unwrap();
            assert_eq!(choice.rule, rule, "{choice}");
            let ring = choice.candidate.name() == "allreduce_ring";
            assert_eq!(ring, rule == Rule::Table, "{choice}");
        }
        let ranks = Communicator::in_process(2, &options).unwrap();
        std::thread::scope(|scope| {
            for (rank, communicator) in ranks.iter().enumerate() {
                scope.spawn(move || {
                    let calls = Collectives::new(communicator).unwrap();
                    let (mut output, input) = ([1.0f32; 1024], [1.0f32; 1024]);
                    let to = output.as_mut_ptr();
                    let from = if rank == 0 { to.cast_const() } else { input.as_ptr() };
                    let request = Request {
                        what: What::AllReduce,
                        input: from.cast(),
                        output: to.cast(),
                        count: 1024,
                        dtype: DataType::F32,
                        op: ReduceOp::Sum,
                        factor: None,
                    };
                    // SAFETY: both arrays are as long as the call says, and live past it; they are one, or apart.
                    unsafe { calls.call(&request, None) }.unwrap();
                    assert_eq!(output, [2.0; 1024]);
                });
            }
        });
    }
}
