//! Files of installed plans: what is kept of a plan, and what is no installed plan.

use super::*;
use crate::communicator::Whose;
use crate::selection::{Devices, Question, Rule, Spread};
use crate::{Registry, selection::Tuning};
use antiphon_plan::algorithms::{Algorithm, Shape};
use antiphon_plan::model::Collective;
use antiphon_types::{DataType, ReduceOp};

/// A folder of one test, taken away with it.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("antiphon-installed-{test}-{}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn plan(name: &str, algorithm: Algorithm, root: usize) -> Plan {
    let shape = Shape { root, ..Shape::new(2) };
    Plan { name: name.to_owned(), ..algorithm.plan(shape).unwrap() }
}

fn named(name: &str) -> Terms {
    Terms { name: Some(name.to_owned()), ..Terms::default() }
}

#[test]
fn what_is_installed_is_read_with_its_terms_and_installing_again_changes_nothing() {
    let Folder(folder) = &Folder::new("terms");
    let none = Installed::read(folder);
    assert!(none.plans().is_empty() && none.fingerprint() == 0 && none.unused().is_none());
    let terms = Terms {
        tags: ["b".to_owned(), "a".to_owned()].into(),
        ranks_per_node: Some(2),
        min_bytes: 16,
        max_bytes: 1 << 20,
        dtypes: vec![DataType::F32, DataType::I32],
        ops: vec![ReduceOp::Max],
        ..named("mine")
    };
    let ring = plan("ring", Algorithm::AllReduceRing, 0);
    let written = Installed::install(folder, ring.clone(), terms.clone()).unwrap();
    assert_eq!((written.name.as_str(), &written.doubt), ("mine", &None));
    let first = fs::read(&written.path).unwrap();
    assert_eq!(antiphon_plan::read(&first).unwrap().plan, ring, "any reader takes it");
    let found = Installed::read(folder);
    assert_eq!(found.skipped(), &[]);
    let [one] = found.plans() else { panic!("{found:?}") };
    assert_eq!((one.name(), one.plan(), one.terms()), ("mine", &ring, &terms));
    Installed::install(folder, ring.clone(), terms.clone()).unwrap();
    assert_eq!(fs::read(&written.path).unwrap(), first);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    // Terms count, and so do plans.
    let mut all = vec![found.fingerprint()];
    for (plan, terms) in [
        (ring.clone(), Terms { min_bytes: 17, ..terms.clone() }),
        (plan("ring", Algorithm::AllReduceHub, 0), terms),
    ] {
        Installed::install(folder, plan, terms).unwrap();
        all.push(Installed::read(folder).fingerprint());
    }
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
    assert!(Installed::remove(folder, "mine").unwrap());
    assert!(!Installed::remove(folder, "mine").unwrap());
    assert_eq!(Installed::read(folder).fingerprint(), 0);
}

#[test]
fn names_become_names_of_files_each_its_own() {
    let long = "n".repeat(300);
    let names = ["a", "a b", "a_b", "../a", "a/b", ".a", "ä", &long, &long[1..], ""];
    let files: Vec<String> = names.iter().map(|name| file::name_of(name)).collect();
    let distinct: std::collections::BTreeSet<&String> = files.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{files:?}");
    for file in &files {
        let fine = !file.contains('/') && !file.starts_with('.') && file.len() < 150;
        assert!(fine && file.ends_with(".json"), "{file}");
    }
    assert_eq!(files[0], "a.json");
}

#[test]
fn what_is_refuted_or_contradicts_its_terms_is_not_installed() {
    let Folder(folder) = &Folder::new("refused");
    let mut wrong = plan("wrong", Algorithm::AllReduceHub, 0);
    for gpu in &mut wrong.gpus {
        gpu.threadblocks.iter_mut().for_each(|block| block.ops.clear());
    }
    let backwards = Terms { min_bytes: 2, max_bytes: 1, ..Terms::default() };
    let rooted = |root| Terms { root: Some(root), ..Terms::default() };
    let cases = [
        (wrong, Terms::default(), "it is refuted"),
        (plan("p", Algorithm::BroadcastZeroCopy, 1), rooted(0), "root 0 instead of 1"),
        (plan("p", Algorithm::AllReduceHub, 0), named("allreduce_hub"), "a built-in algorithm"),
        (plan("", Algorithm::AllReduceHub, 0), Terms::default(), "no name"),
        (plan("p", Algorithm::AllReduceHub, 0), backwards, "messages of 2 to 1 bytes"),
    ];
    for (plan, terms, part) in cases {
        let error = Installed::install(folder, plan, terms).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!folder.exists());
    let broadcast = plan("p", Algorithm::BroadcastZeroCopy, 1);
    Installed::install(folder, broadcast, rooted(1)).unwrap();
    assert_eq!(Installed::read(folder).plans()[0].terms().root, Some(1));
}

#[test]
fn what_is_no_installed_plan_is_skipped_with_the_reason() {
    let Folder(folder) = &Folder::new("skipped");
    let good = plan("good", Algorithm::AllReduceRing, 0);
    let written = Installed::install(folder, good.clone(), Terms::default()).unwrap();
    let alone = Installed::read(folder).fingerprint();
    let text = fs::read_to_string(&written.path).unwrap();
    let mut bare = Vec::new();
    antiphon_plan::write(&good, antiphon_plan::Style::Compact, &mut bare).unwrap();
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("a.json", b"{".to_vec(), "it cannot be read"),
        ("b.json", bare, "by other means"),
        ("c.json", text.replace("\"version\":1", "\"version\":7").into(), "of version 7"),
        ("d.json", text.replace("\"min_bytes\":0", "\"min_bytes\":1").into(), "was changed"),
        ("e.json", text.replace("\"good\"", "\"other\"").into(), "was changed"),
        ("f.json", text.replace("\"dtypes\":[]", "\"dtypes\":[\"f31\"]").into(), "f31"),
        ("g.json", text.replace("\"gpus\":[", "\"gpus\":[7,").into(), "it is no plan"),
        ("z.json", text.clone().into(), "it holds `good`, whose file is good.json"),
    ];
    for (name, bytes, _) in &cases {
        fs::write(folder.join(name), bytes).unwrap();
    }
    fs::write(folder.join("good.json.12-0.draft"), "{").unwrap();
    let found = Installed::read(folder);
    assert_eq!(found.plans().len(), 1);
    assert_eq!(found.fingerprint(), alone, "ranks agree by what serves");
    assert_eq!(found.skipped().len(), cases.len());
    for ((name, _, part), skipped) in cases.iter().zip(found.skipped()) {
        assert_eq!(skipped.path.file_name().unwrap().to_str(), Some(*name));
        assert!(skipped.why.contains(part), "{part}: {}", skipped.why);
    }
    let question = question(1024);
    let choice = Registry::new().choose_with(&question, &Tuning::none("so"), &found).unwrap();
    assert_eq!((choice.candidate.name(), choice.rule), ("good", Rule::Installed));
    let said = choice.to_string();
    assert!(said.contains("a.json: it cannot be read"), "{said}");
    assert!(choice.to_json().contains("a.json: it cannot be read"));
}

fn question(bytes: u64) -> Question<'static> {
    let spread = Spread { ranks: 2, nodes: 1, crowded: false, devices: Devices::Host };
    Question::new(&Collective::AllReduce, spread, bytes, DataType::F32)
}

#[test]
fn installed_plans_come_after_what_the_program_registers_and_before_what_is_built_in() {
    let Folder(folder) = &Folder::new("order");
    let registry = Registry::new();
    let chosen = |installed: &Installed, bytes| {
        let tuning = Tuning::none("so");
        let choice = registry.choose_with(&question(bytes), &tuning, installed).unwrap();
        (choice.candidate.name().to_owned(), choice.rule, choice.to_string())
    };
    let (name, rule, said) = chosen(&Installed::read(folder), 64);
    assert!(name.starts_with("allreduce_") && rule == Rule::Size, "{said}");
    let small = Terms { max_bytes: 64, ..named("b") };
    for terms in [named("c"), small] {
        Installed::install(folder, plan("p", Algorithm::AllReduceRing, 0), terms).unwrap();
    }
    let installed = Installed::read(folder);
    for (bytes, expected) in [(64, "b"), (68, "c")] {
        let (name, rule, said) = chosen(&installed, bytes);
        assert_eq!((name.as_str(), rule), (expected, Rule::Installed), "{said}");
    }
    // As ranks that have the same, and as ranks that have not.
    let own = installed.fingerprint();
    assert_eq!(chosen(&installed.clone().agreed([own, own]), 64).0, "b");
    let (_, rule, said) = chosen(&installed.clone().agreed([own, 0]), 64);
    let differ =
        "installed plan: none is used: ranks differ: this one has some, and rank 1 has none";
    assert!(rule == Rule::Size && said.contains(differ), "{said}");
    registry.register(plan("c", Algorithm::AllReduceHub, 0), Terms::default()).unwrap();
    assert_eq!(chosen(&installed, 64).1, Rule::Plan);
    // The program's own goes by the name.
    registry.unregister("c");
    let other = Terms { max_bytes: 4, ..Terms::default() };
    registry.register(plan("b", Algorithm::AllReduceHub, 0), other).unwrap();
    assert_eq!(chosen(&installed, 64).0, "c");
}

#[test]
fn what_one_rank_cannot_load_no_rank_uses() {
    let Folder(folder) = &Folder::new("loadable");
    for name in ["a", "b", "c"] {
        Installed::install(folder, plan(name, Algorithm::AllReduceRing, 0), named(name)).unwrap();
    }
    let installed = Installed::read(folder);
    let spread = |ranks, nodes| Spread { ranks, nodes, crowded: false, devices: Devices::Host };
    let refuse = |allowed: &'static [&'static str]| {
        installed.refused(spread(2, 1), |plan| match allowed.contains(&plan.name()) {
            true => Ok(()),
            false => Err(ExecutorError::World { plan: plan.name().into(), ranks: 2, world: 9 }),
        })
    };
    let names = |told: &[Vec<u8>]| {
        let left = installed.loadable(told, &Whose::of(None, 0, 2));
        let names = left.plans().iter().map(|plan| plan.name().to_owned()).collect::<Vec<_>>();
        (names.join(" "), left.skipped().to_vec())
    };
    let (left, skipped) =
        names(&[refuse(&["a", "b", "c"]), refuse(&["b", "c"]), refuse(&["c", "a"])]);
    assert_eq!(left, "c");
    for (skipped, expected) in skipped
        .iter()
        .zip(["a.json: it cannot be loaded on rank 1", "b.json: it cannot be loaded on rank 2"])
    {
        let said = format!("{}: {}", skipped.path.display(), skipped.why);
        assert!(said.starts_with(expected), "{said}");
    }
    assert_eq!(skipped.len(), 2);
    // Plans for other ranks, or that join ranks of two nodes by memory, are not looked at; what makes no sense says nothing.
    for elsewhere in [spread(3, 1), spread(2, 2)] {
        let told = installed.refused(elsewhere, |_| unreachable!("two ranks of one node"));
        assert!(told.is_empty());
    }
    assert_eq!(names(&[b"7 so\nno\n".to_vec(), Vec::new()]).0, "a b c");
}

#[test]
fn installed_plans_are_registered_on_request() {
    let Folder(folder) = &Folder::new("load");
    for name in ["a", "b", "c"] {
        Installed::install(folder, plan(name, Algorithm::AllReduceRing, 0), named(name)).unwrap();
    }
    let registry = Registry::new();
    registry.register(plan("a", Algorithm::AllReduceHub, 0), Terms::default()).unwrap();
    let installed = Installed::read(folder);
    assert_eq!(registry.load_installed(&installed), ["b", "c"]);
    assert!(registry.load_installed(&installed).is_empty());
    let choice = registry.choose(&question(64)).unwrap();
    assert_eq!((choice.candidate.name(), choice.rule), ("b", Rule::Plan));
}

/// The call of an allreduce of 64 bytes.
fn request(input: &[f32; 16], output: &mut [f32; 16]) -> crate::Request {
    crate::Request {
        what: crate::What::AllReduce,
        input: input.as_ptr().cast(),
        output: output.as_mut_ptr().cast(),
        count: 16,
        dtype: DataType::F32,
        op: ReduceOp::Sum,
        factor: None,
    }
}

/// An allreduce of 64 bytes, and the sums.
fn sum(calls: &crate::Collectives) -> Result<[f32; 16], ExecutorError> {
    let (input, mut output) = ([1.0f32; 16], [0.0f32; 16]);
    // SAFETY: both arrays are as long as the call says, and live past it.
    unsafe { calls.call(&request(&input, &mut output), None) }.map(|()| output)
}

/// What two ranks with these installed plans say of a sum, each on a thread, after they made it.
fn explained(installed: [Installed; 2]) -> Vec<String> {
    on_ranks(installed, |calls| {
        assert_eq!(sum(calls).unwrap(), [2.0; 16]);
        let question = calls.question(&Collective::AllReduce, 64, DataType::F32);
        calls.explain(&question).unwrap().to_string()
    })
}

/// What two ranks with these installed plans do, each on a thread.
fn on_ranks(
    installed: [Installed; 2],
    body: impl Fn(&crate::Collectives) -> String + Copy + Send,
) -> Vec<String> {
    let address = crate::Rendezvous::unique().unwrap();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..)
            .zip(installed)
            .map(|(rank, installed)| {
                let rendezvous = crate::Rendezvous::new(address.clone(), rank, 2);
                scope.spawn(move || {
                    let options = crate::Options::default().with_registry(Registry::new());
                    let options = options.with_tuning(Tuning::none("so")).with_installed(installed);
                    let communicator = crate::Communicator::connect(&rendezvous, &options).unwrap();
                    let calls = crate::Collectives::new(&communicator).unwrap();
                    let said = body(&calls);
                    communicator.barrier().unwrap();
                    said
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn what_would_serve_no_call_is_not_installed() {
    let Folder(folder) = &Folder::new("none");
    let transfers = antiphon_plan::algorithms::sendrecv::zero_copy(Shape::new(2)).unwrap();
    let error = Installed::install(folder, transfers, named("mine")).unwrap_err().to_string();
    assert!(error.contains("of sendrecv, allowed no plans of it"), "{error}");
    assert!(Installed::read(folder).plans().is_empty() && !folder.exists());
}

#[test]
fn installed_plans_serve_where_all_ranks_have_the_same_ones() {
    let Folder(folder) = &Folder::new("ranks");
    Installed::install(folder, plan("p", Algorithm::AllReduceRing, 0), named("mine")).unwrap();
    let (some, none) = (Installed::read(folder), Installed::none("so"));
    for said in explained([some.clone(), some.clone()]) {
        assert!(said.starts_with("chosen: mine (installed plan)"), "{said}");
    }
    for said in explained([some, none]) {
        assert!(said.contains("none is used: ranks differ: this one has"), "{said}");
        assert!(said.contains("(built-in algorithm)\n"), "{said}");
    }
}

#[test]
fn what_turns_out_to_be_refuted_is_left_out_and_the_call_served() {
    let mut wrong = plan("wrong", Algorithm::AllReduceHub, 0);
    for gpu in &mut wrong.gpus {
        gpu.threadblocks.iter_mut().for_each(|block| block.ops.clear());
    }
    let wrong = Arc::new(RegisteredPlan::vouched(wrong, Terms::default()).unwrap());
    let installed = Installed::of(vec![wrong], Vec::new(), 1);
    for said in explained([installed.clone(), installed]) {
        assert!(said.starts_with("chosen: allreduce_"), "{said}");
        assert!(
            said.contains("left out:\n  wrong.json: cannot load plan `wrong`: it is refuted"),
            "{said}"
        );
    }
}

/// There is no room for its scratch, on any rank.
#[test]
fn an_error_of_an_installed_plan_says_how_to_do_without_it() {
    let mut greedy = plan("greedy", Algorithm::AllReduceRing, 0);
    greedy.gpus.iter_mut().for_each(|gpu| gpu.scratch_chunks = 1 << 43);
    let greedy = Arc::new(RegisteredPlan::vouched(greedy, named("mine")).unwrap());
    let installed = Installed::of(vec![greedy], Vec::new(), 1);
    let said = on_ranks([installed.clone(), installed], |calls| {
        let error = sum(calls).unwrap_err();
        assert!(matches!(error.cause(), ExecutorError::Argument { .. }), "{error}");
        // The communicator is as good as it was.
        calls.communicator().barrier().unwrap();
        error.to_string()
    });
    for said in said {
        let way = "plan `mine`, which is installed, was to serve the call: `antiphon install --remove mine` removes it";
        assert!(said.contains(way), "{said}");
    }
}

#[test]
fn a_launch_that_stalls_names_the_installed_plan_however_it_was_made() {
    type Way = fn(&crate::Collectives) -> Result<(), ExecutorError>;
    let grouped: Way = |calls| {
        let (input, mut output) = ([1.0f32; 16], [0.0f32; 16]);
        let mut group = crate::Group::new();
        // SAFETY: both arrays are as long as the call says, and live past the group's end.
        unsafe { group.call(calls, &request(&input, &mut output), None)? };
        group.end()
    };
    let on_a_stream: Way = |calls| {
        let (input, mut output) = ([1.0f32; 16], [0.0f32; 16]);
        let stream = calls.communicator().stream()?;
        // SAFETY: both arrays are as long as the call says, and live until the stream is idle.
        unsafe { calls.call(&request(&input, &mut output), Some(&stream))? };
        calls.executor().synchronize(&stream)
    };
    let again: Way = |calls| sum(calls).map(drop);
    let stalls = |name: &str, way: Way| {
        let mine = plan("hub", Algorithm::AllReduceHub, 0);
        let mine = Arc::new(RegisteredPlan::vouched(mine, named("mine")).unwrap());
        let options = crate::Options::default().with_registry(Registry::new());
        let options = options.with_tuning(Tuning::none("so"));
        let options = options.with_installed(Installed::of(vec![mine], Vec::new(), 1));
        let options = options.with_timeout(Some(std::time::Duration::from_secs(3)));
        let ends = crate::Communicator::in_process(2, &options).unwrap();
        let ends: Vec<_> = ends.iter().map(|end| crate::Collectives::new(end).unwrap()).collect();
        let begins = std::sync::Barrier::new(2);
        let warm_up = |calls| {
            begins.wait();
            sum(calls)
        };
        std::thread::scope(|scope| {
            let ranks: Vec<_> = ends.iter().map(|calls| scope.spawn(|| warm_up(calls))).collect();
            ranks.into_iter().for_each(|rank| assert_eq!(rank.join().unwrap().unwrap(), [2.0; 16]));
        });
        // The other rank does not come.
        let error = way(&ends[0]).unwrap_err();
        assert!(matches!(error.cause(), ExecutorError::Stalled { .. }), "{name}: {error}");
        assert!(error.to_string().contains("install --remove mine"), "{name}: {error}");
    };
    std::thread::scope(|scope| {
        for (name, way) in [("again", again), ("grouped", grouped), ("on a stream", on_a_stream)] {
            scope.spawn(move || stalls(name, way));
        }
    });
}
