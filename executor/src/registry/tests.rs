//! The order of candidates, and every rule of fitting.

use super::*;
use crate::selection::{Candidate, Devices, Rule, Spread};
use antiphon_plan::algorithms::devices::DeviceClass;
use antiphon_plan::algorithms::{Rooted, Shape};
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::Collective;
use antiphon_types::{DataType, ReduceOp};

const SPREAD: Spread = Spread { ranks: 2, nodes: 1, crowded: false, devices: Devices::Host };

/// A plan in which ranks copy and reduce what is their own.
fn plan(
    name: &str,
    collective: Collective,
    change: impl Fn(ProgramBuilder) -> ProgramBuilder,
) -> Plan {
    let program = change(ProgramBuilder::new(name, collective, 2));
    for rank in [0, 1] {
        let (input, output) = (program.input(rank).chunk(0), program.output(rank).chunk(0));
        program.block(rank).copy(input, output);
    }
    program.build().unwrap()
}

fn question(collective: &Collective) -> Question<'_> {
    Question::new(collective, SPREAD, 1024, DataType::F32)
}

struct Nothing(Collective, Option<&'static str>);

impl Code for Nothing {
    fn collective(&self) -> Collective {
        self.0.clone()
    }

    fn fits(&self, _: &Question<'_>) -> Result<(), String> {
        self.1.map_or(Ok(()), |reason| Err(reason.to_owned()))
    }

    unsafe fn run(&self, _: &CodeCall<'_>) -> Result<(), ExecutorError> {
        Ok(())
    }
}

fn code(registry: &Registry, name: &str, collective: Collective) {
    let nothing = Arc::new(Nothing(collective, None));
    registry.register_code(name, 1, nothing, Terms::default()).unwrap();
}

#[test]
fn every_rule_of_fitting_is_said() {
    use Collective::{AllReduce, AllToAllV, Broadcast, Gather, Reduce, Scatter};
    let reduce = question(&AllReduce);
    let tags = ["fast".to_owned()];
    let same = |program: ProgramBuilder| program;
    let summing = |op| {
        let program = ProgramBuilder::new("p", AllReduce, 2).reduce_op(op);
        let channel = program.channel(0, 1);
        let scratch = [program.scratch(0, 2), program.scratch(1, 2)];
        for rank in [0, 1] {
            let block = program.block(rank);
            block.put(program.input(rank).all(), scratch[1 - rank].all());
            block.signal(std::slice::from_ref(&channel));
            block.wait(std::slice::from_ref(&channel));
            let (input, output) = (program.input(rank).all(), program.output(rank).all());
            block.reduce(&[input, scratch[rank].all()], output);
        }
        program.build().unwrap()
    };
    let copies_back = |collective, rank, in_place| {
        let program = ProgramBuilder::new("p", collective, 2).in_place(in_place);
        let (input, output) = (program.input(rank).chunk(0), program.output(rank).chunk(0));
        program.block(rank).copy(output, input);
        program.build().unwrap()
    };
    let built_in = |collective, root| {
        let mut all = Rooted::all_for(&collective);
        all.next().unwrap().plan(Shape { root, ..Shape::new(2) }).unwrap()
    };
    // What a rank that is not the root may not have is read, or written.
    let also = |collective: Collective, writes: bool| {
        let gathers = collective == Gather;
        let program = ProgramBuilder::new("p", collective, 2);
        let link = [program.channel(0, 1)];
        let (from, to) = if gathers { (1, 0) } else { (0, 1) };
        for rank in [0, 1] {
            let block = program.block(rank);
            if rank == from {
                let chunk = if gathers { 0 } else { to };
                let place = if gathers { from } else { 0 };
                block.put(program.input(rank).chunk(chunk), program.output(to).chunk(place));
                block.signal(&link);
            } else {
                block.wait(&link);
            }
            if rank == 0 {
                block.copy(program.input(0).chunk(0), program.output(0).chunk(0));
            } else {
                let scratch = program.scratch(1, 1);
                let absent = if gathers { program.output(1) } else { program.input(1) };
                match writes {
                    true => block.copy(scratch.all(), absent.chunk(0)),
                    false => block.copy(absent.chunk(0), scratch.all()),
                }
            }
        }
        program.build().unwrap()
    };
    let alltoallv = || antiphon_plan::algorithms::alltoallv::zero_copy(Shape::new(2)).unwrap();
    let root = |root| Terms { root: Some(root), ..Terms::default() };
    let max = || summing(ReduceOp::Max);
    let copies = || plan("p", AllReduce, same);
    let terms = Terms::default;
    let (two, four) = (SPREAD, Spread { ranks: 4, ..SPREAD });
    let apart = Spread { nodes: 2, ..SPREAD };
    let cases: Vec<(Plan, Terms, Question<'_>, Option<&str>)> = vec![
        (copies(), terms(), reduce, None),
        (copies(), terms(), question(&Reduce), Some("is for allreduce")),
        (copies(), terms(), Question { spread: four, ..reduce }, Some("is for 2 ranks")),
        (copies(), terms(), Question { spread: apart, ..reduce }, None),
        (
            max(),
            terms(),
            Question { spread: apart, op: Some(ReduceOp::Max), ..reduce },
            Some("joins ranks 0 and 1 by memory"),
        ),
        (
            copies(),
            Terms { ranks_per_node: Some(1), ..terms() },
            Question { spread: apart, ..reduce },
            None,
        ),
        (
            copies(),
            Terms { ranks_per_node: Some(1), ..terms() },
            Question { spread: two, ..reduce },
            Some("is for 1 ranks on each node, where there are 2"),
        ),
        (
            copies(),
            terms(),
            Question { in_place: true, ..reduce },
            Some("is for calls out of place"),
        ),
        (
            plan("p", AllReduce, |p| p.in_place(true)),
            terms(),
            reduce,
            Some("is for calls in place"),
        ),
        (
            plan("p", AllReduce, |p| p.in_place(true)),
            terms(),
            Question { in_place: true, ..reduce },
            None,
        ),
        (
            plan("p", AllReduce, |p| p.sizes(2048..=4096)),
            terms(),
            reduce,
            Some("allowed 2048 to 4096"),
        ),
        (plan("p", AllReduce, |p| p.sizes(512..=1024)), terms(), reduce, None),
        (
            copies(),
            terms(),
            Question { reproducible: true, ..reduce },
            Some("is not shown to have one order of sums"),
        ),
        (copies(), Terms { min_bytes: 1025, ..terms() }, reduce, Some("is for messages of 1025")),
        (copies(), Terms { max_bytes: 1023, ..terms() }, reduce, Some("to 1023 bytes")),
        (
            copies(),
            terms(),
            Question { bytes: 1022, ..reduce },
            Some("not a whole number of elements of 4 bytes"),
        ),
        (copies(), Terms { dtypes: vec![DataType::F32], ..terms() }, reduce, None),
        (
            copies(),
            Terms { dtypes: vec![DataType::I32], ..terms() },
            reduce,
            Some("is not for elements of type"),
        ),
        (max(), terms(), reduce, Some("does not reduce by sum")),
        (max(), terms(), Question { op: Some(ReduceOp::Max), ..reduce }, None),
        (max(), Terms { ops: vec![ReduceOp::Sum], ..terms() }, reduce, None),
        (
            copies(),
            Terms { ops: vec![ReduceOp::Min], ..terms() },
            reduce,
            Some("does not reduce by sum"),
        ),
        (copies(), terms(), Question { tags: &tags, ..reduce }, Some("is not tagged `fast`")),
        (
            copies(),
            Terms { tags: tags.iter().cloned().collect(), ..terms() },
            Question { tags: &tags, ..reduce },
            None,
        ),
        (plan("p", Broadcast, same), terms(), question(&Broadcast), Some("has no root said")),
        (
            plan("p", Broadcast, same),
            Terms { root: Some(1), ..terms() },
            question(&Broadcast),
            Some("is for root 1"),
        ),
        (
            plan("p", Broadcast, same),
            Terms { root: Some(0), ..terms() },
            question(&Broadcast),
            Some("uses both buffers of several ranks"),
        ),
        (plan("p", AllToAllV, same), terms(), question(&AllToAllV), Some("has no runtime sizes")),
        (
            copies(),
            terms(),
            question(&Gather),
            Some("is for allreduce, where what is for gather serves the call"),
        ),
        (copies_back(AllReduce, 1, false), terms(), reduce, Some("writes rank 1's send buffer")),
        (copies_back(AllReduce, 1, true), terms(), Question { in_place: true, ..reduce }, None),
        (copies_back(Broadcast, 1, false), root(0), question(&Broadcast), None),
        (
            copies_back(Broadcast, 0, false),
            root(0),
            question(&Broadcast),
            Some("writes rank 0's send buffer"),
        ),
        (
            copies_back(Reduce, 1, true),
            root(0),
            question(&Reduce),
            Some("writes rank 1's send buffer"),
        ),
        (
            plan("p", Reduce, same),
            root(0),
            question(&Reduce),
            Some("writes rank 1's receive buffer"),
        ),
        (built_in(Gather, 1), root(1), Question { root: 1, ..question(&Gather) }, None),
        (built_in(Gather, 1), root(1), question(&Gather), Some("is for root 1")),
        (built_in(Gather, 0), terms(), question(&Gather), Some("has no root said")),
        (built_in(Gather, 0), root(0), question(&Scatter), Some("is for gather")),
        (built_in(Scatter, 0), root(0), question(&Scatter), None),
        (built_in(Scatter, 0), root(0), Question { in_place: true, ..question(&Scatter) }, None),
        (also(Gather, false), root(0), question(&Gather), Some("uses rank 1's receive buffer")),
        (also(Gather, true), root(0), question(&Gather), Some("uses rank 1's receive buffer")),
        (also(Scatter, false), root(0), question(&Scatter), Some("uses rank 1's send buffer")),
        (also(Scatter, true), root(0), question(&Scatter), Some("uses rank 1's send buffer")),
        (alltoallv(), terms(), Question { root: 1, ..question(&Gather) }, None),
    ];
    for (number, (plan, terms, question, expected)) in cases.into_iter().enumerate() {
        let registered = RegisteredPlan::new(plan, terms).unwrap();
        let said = registered.fits(&question).err().map(|misfit| misfit.to_string());
        match (expected, said) {
            (None, None) => {}
            (Some(expected), Some(said)) if said.contains(expected) => {}
            (expected, said) => panic!("case {number}: expected {expected:?}, saw {said:?}"),
        }
    }
}

#[test]
fn code_fits_by_its_terms_and_by_what_it_says() {
    use Collective::{AllReduce, AllToAllV};
    let reduce = question(&AllReduce);
    let big = Terms { min_bytes: 4096, ..Terms::default() };
    let cases = [
        (AllReduce, None, Terms::default(), reduce, None),
        (AllReduce, Some("is tired"), Terms::default(), reduce, Some("is tired")),
        (AllReduce, None, big, reduce, Some("is for messages of 4096")),
        (
            AllReduce,
            None,
            Terms { world: Some(3), ..Terms::default() },
            reduce,
            Some("is for 3 ranks"),
        ),
        (
            AllReduce,
            None,
            Terms { in_place: Some(true), ..Terms::default() },
            reduce,
            Some("in place"),
        ),
        (
            AllReduce,
            None,
            Terms::default(),
            Question { premultiplied: true, ..reduce },
            Some("does not premultiply"),
        ),
        (
            AllReduce,
            None,
            Terms::default(),
            Question {
                spread: Spread { devices: Devices::of(DeviceClass::Amd), ..SPREAD },
                ..reduce
            },
            Some("serves memory of the host"),
        ),
        (AllToAllV, None, Terms::default(), question(&AllToAllV), None),
        (AllToAllV, None, Terms::default(), reduce, Some("is for alltoallv")),
    ];
    for (collective, says, terms, question, expected) in cases {
        let code = RegisteredCode::new("c".into(), 1, Arc::new(Nothing(collective, says)), terms);
        let said = code.fits(&question).err().map(|misfit| misfit.to_string());
        assert_eq!(said.is_some(), expected.is_some(), "{said:?} for {expected:?}");
        assert!(said.unwrap_or_default().contains(expected.unwrap_or_default()), "{expected:?}");
    }
}

/// Code that serves devices, too.
struct Everywhere;

impl Code for Everywhere {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn serves_devices(&self) -> bool {
        true
    }

    unsafe fn run(&self, _: &CodeCall<'_>) -> Result<(), ExecutorError> {
        Ok(())
    }
}

#[test]
fn code_that_serves_devices_fits_there_by_the_rules_of_hosts() {
    let code = RegisteredCode::new("c".into(), 1, Arc::new(Everywhere), Terms::default());
    for devices in [Devices::Host, Devices::of(DeviceClass::Amd), Devices::of(DeviceClass::Nvidia)]
    {
        let asked =
            Question { spread: Spread { devices, ..SPREAD }, ..question(&Collective::AllReduce) };
        let cases = [
            (asked, None),
            (Question { premultiplied: true, ..asked }, Some(Misfit::Premultiplied)),
            (Question { reproducible: true, ..asked }, Some(Misfit::Unshown)),
        ];
        for (question, expected) in cases {
            let said = code.fits(&question).err().map(|misfit| misfit.to_string());
            assert_eq!(said, expected.map(|misfit| misfit.to_string()), "{question}");
        }
    }
}

/// Name and rule of the choice.
fn chosen(registry: &Registry, question: &Question<'_>) -> Result<(String, Rule), String> {
    let choice = registry.choose(question).map_err(|error| error.to_string())?;
    Ok((choice.candidate.name().to_owned(), choice.rule))
}

#[test]
fn the_selector_goes_before_plans_these_before_code_and_the_rule_by_size_comes_last() {
    use Collective::AllReduce;
    let registry = Registry::new();
    let question = question(&AllReduce);
    let built_in = chosen(&registry, &question).unwrap();
    assert_eq!(built_in.1, Rule::Size);
    let same = |program: ProgramBuilder| program;
    let add = |name| registry.register(plan(name, AllReduce, same), Terms::default()).unwrap();
    let is = |name: &str, rule| {
        assert_eq!(chosen(&registry, &question), Ok((name.to_owned(), rule)));
    };
    code(&registry, "code", AllReduce);
    is("code", Rule::Code);
    code(&registry, "later code", AllReduce);
    is("later code", Rule::Code);
    add("first");
    is("first", Rule::Plan);
    let narrow = Terms { max_bytes: 8, ..Terms::default() };
    registry.register(plan("narrow", AllReduce, same), narrow).unwrap();
    is("first", Rule::Plan);
    add("second");
    is("second", Rule::Plan);
    let answers = [("code", Ok(())), ("first", Ok(())), ("allreduce_ring", Ok(()))];
    let wrong = [
        ("narrow", Err("`narrow` is for messages of 0 to 8 bytes")),
        ("none", Err("there is no `none`")),
    ];
    for (name, expected) in answers.into_iter().chain(wrong) {
        registry.set_selector(move |_| Some(name.to_owned()));
        match expected {
            Ok(()) => is(name, Rule::Selector),
            Err(part) => {
                let error = chosen(&registry, &question).unwrap_err();
                assert!(error.contains(part) && error.contains("allreduce of 1024"), "{error}");
            }
        }
    }
    registry.set_selector(|_| None);
    is("second", Rule::Plan);
    registry.set_selector(|_| panic!("oh no"));
    assert!(chosen(&registry, &question).unwrap_err().contains("oh no"));
    registry.set_fallible_selector(|_| Err("no time".to_owned()));
    assert!(chosen(&registry, &question).unwrap_err().contains("the selector failed: no time"));
    registry.clear_selector();
    assert!(registry.unregister("second") && !registry.unregister("second"));
    is("first", Rule::Plan);
    assert!(registry.unregister("first") && registry.unregister("later code"));
    is("code", Rule::Code);
    assert!(registry.unregister("code") && registry.unregister("narrow"));
    assert_eq!(chosen(&registry, &question), Ok(built_in));
}

#[test]
fn a_selector_is_offered_what_fits_in_order_and_a_choice_says_what_it_considered() {
    let registry = Registry::new();
    let same = |program: ProgramBuilder| program;
    for name in ["one", "two"] {
        registry.register(plan(name, Collective::AllReduce, same), Terms::default()).unwrap();
    }
    code(&registry, "elsewhere", Collective::AllGather);
    let (send, offers) = std::sync::mpsc::channel();
    registry.set_selector(move |offer| {
        let names = offer.fitting.iter().map(|candidate| candidate.name().to_owned());
        send.send((offer.question.bytes, names.collect::<Vec<_>>())).unwrap();
        offer.fitting.iter().find(|c| matches!(c, Candidate::BuiltIn(_))).map(|c| c.name().into())
    });
    let choice = registry.choose(&question(&Collective::AllReduce)).unwrap();
    let (bytes, names) = offers.recv().unwrap();
    assert_eq!(
        (bytes, &names[..3]),
        (1024, &["two", "one", choice.candidate.name()].map(String::from)[..])
    );
    let text = choice.to_string();
    let parts = [
        &format!("chosen: {} (built-in algorithm)", choice.candidate.name()),
        "selector: answers",
        "two (registered plan): fits",
        "elsewhere (registered code): is for allgather",
    ];
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_is_registered_may_serve_what_nothing_built_in_does() {
    let registry = Registry::new();
    let asks = Collective::Other("mine".into());
    assert!(registry.choose(&question(&asks)).is_err());
    registry.register(plan("p", asks.clone(), |p| p), Terms::default()).unwrap();
    assert_eq!(chosen(&registry, &question(&asks)), Ok(("p".into(), Rule::Plan)));
}

#[test]
fn names_are_given_once_and_terms_do_not_contradict_the_plan() {
    let registry = Registry::new();
    let register = |name: &str, terms: Terms| {
        let plan = plan(name, Collective::AllReduce, |p| p);
        registry.register(plan, terms).map(|_| ()).map_err(|error| error.to_string())
    };
    let terms = Terms::default;
    register("a", terms()).unwrap();
    let refused = [
        ("a", terms(), "`a`, which is registered"),
        ("", terms(), "no name"),
        ("allreduce_ring", terms(), "a built-in algorithm"),
        (
            "b",
            Terms { name: Some("alltoallv_zero_copy".into()), ..terms() },
            "a built-in algorithm",
        ),
        ("b", Terms { world: Some(3), ..terms() }, "3 ranks for plan `b`"),
        ("b", Terms { in_place: Some(true), ..terms() }, "in place: true for plan `b`"),
        ("b", Terms { root: Some(2), ..terms() }, "root 2 for plan `b`"),
    ];
    for (name, terms, part) in refused {
        let error = register(name, terms).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    for (root, said) in [(0, 1), (1, 0), (1, 1)] {
        let plan = antiphon_plan::algorithms::broadcast::zero_copy(Shape { root, ..Shape::new(2) })
            .unwrap();
        let name = Some(format!("from {root} said {said}"));
        let registered = registry.register(plan, Terms { name, root: Some(said), ..terms() });
        assert_eq!(registered.is_ok(), root == said as usize, "{root} {said}");
        if let Err(error) = registered {
            let part = format!("root {said} instead of {root}");
            assert!(error.to_string().contains(&part), "{error}");
        }
    }
    assert!(registry.unregister("from 1 said 1"));
    let error = registry.register(plan("b", Collective::SendRecv, |p| p), terms()).unwrap_err();
    assert!(error.to_string().contains("served by what is built in"), "{error}");
    let mut broken = plan("b", Collective::AllReduce, |p| p);
    broken.gpus[0].id = 7;
    let error = registry.register(broken, Terms::default()).unwrap_err();
    assert!(matches!(error, ExecutorError::Plan { .. }), "{error}");
    let nothing = Arc::new(Nothing(Collective::AllReduce, None));
    assert!(registry.register_code("a", 1, nothing, terms()).is_err());
    for (collective, name, (min_bytes, max_bytes), part) in [
        (
            Collective::from_name("alreduce"),
            "n",
            (0, 9),
            "the collective `alreduce`, allowed allreduce,",
        ),
        (Collective::SendRecv, "n", (0, 9), "the collective `sendrecv`"),
        (Collective::AllToAllV, "n", (0, 9), "limits of sizes, or a place, for alltoallv"),
        (Collective::AllGatherV, "n", (1, u64::MAX), "limits of sizes, or a place, for allgatherv"),
        (Collective::AllReduce, "n", (9, 8), "messages of 9 to 8 bytes"),
        (Collective::AllReduce, "two\nlines", (9, 9), "control characters"),
    ] {
        let nothing = Arc::new(Nothing(collective, None));
        let terms = Terms { min_bytes, max_bytes, ..terms() };
        let error = registry.register_code(name, 1, nothing, terms).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let none = Terms { name: Some("n".into()), min_bytes: 9, max_bytes: 8, ..terms() };
    assert!(register("d", none).unwrap_err().to_string().contains("9 to 8 bytes"));
    register("c", Terms { name: Some("another".into()), ..terms() }).unwrap();
    let names: Vec<_> = registry.plans().iter().map(|plan| plan.name().to_owned()).collect();
    assert_eq!(names, ["a", "another"]);
}

/// A broadcast that the verifier cannot prove: two blocks of the root post to one port channel.
fn doubtful(root: usize) -> Plan {
    let program = ProgramBuilder::new("doubtful", Collective::Broadcast, 2).chunk_counts(2, 2);
    let (peer, port) = (1 - root, program.port(root, 1 - root));
    let receiver = program.block(peer);
    for half in [0, 1] {
        let ready = [program.channel(root, peer)];
        receiver.signal(&ready);
        let sender = program.block(root);
        sender.wait(&ready);
        let input = program.input(root).chunk(half);
        sender.put_with_signal_and_flush(&port, input, program.output(peer).chunk(half));
        sender.copy(input, program.output(root).chunk(half));
    }
    receiver.wait(&[port]);
    receiver.wait(&[port]);
    program.build().unwrap()
}

#[test]
fn the_root_of_a_plan_that_is_not_proven_is_not_taken_on_trust() {
    for (root, said) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let terms = Terms { root: Some(said), ..Terms::default() };
        let plan = doubtful(root);
        let lowered = crate::plan_cache::LoadedPlan::new(&plan).unwrap();
        let options = antiphon_plan::verify::Options::default();
        let report = antiphon_plan::verify::verify(&plan, lowered.layout(), options);
        assert_eq!((report.status(), report.root), (2, Some(root as u32)), "{report}");
        let registered = Registry::new().register(plan, terms);
        assert_eq!(registered.is_ok(), root == said as usize, "{root} {said}: {registered:?}");
    }
}

#[test]
fn limits_of_sizes_are_refused_where_ranks_know_their_own_sizes_alone() {
    use antiphon_plan::algorithms::alltoallv;
    let plan = || alltoallv::zero_copy(Shape::new(2)).unwrap();
    let registry = Registry::new();
    for (plan, terms) in [
        (plan(), Terms { min_bytes: 1, ..Terms::default() }),
        (plan(), Terms { max_bytes: 1 << 20, ..Terms::default() }),
    ] {
        let error = registry.register(plan, terms).unwrap_err().to_string();
        assert!(error.contains("limits of sizes for plan `alltoallv_"), "{error}");
    }
    registry.register(plan(), Terms::default()).unwrap();
}
