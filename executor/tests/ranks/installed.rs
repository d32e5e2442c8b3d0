//! Calls served by what is installed in a folder on disk, over processes that read it when they begin.

use crate::support::children;
use crate::support::requests::sum;
use antiphon_executor::plan::builder::ProgramBuilder;
use antiphon_executor::plan::model::{Collective, Plan};
use antiphon_executor::{
    Collectives, Communicator, DataType, Installed, Options, Rendezvous, Terms,
};
use std::ffi::OsStr;
use std::path::Path;

/// Who serves the ranks' calls.
const CHOSEN: &str = "ANTIPHON_TEST_CHOSEN";

/// An allreduce of three ranks that adds from the last rank to the first.
fn backwards() -> Plan {
    let program = ProgramBuilder::new("backwards", Collective::AllReduce, 3);
    let channels = [(0, 1), (0, 2), (1, 2)].map(|(one, other)| program.channel(one, other));
    for rank in 0..3 {
        // The others wait for this rank, and it for them, before it reads and before it leaves.
        let [first, second, third] = channels;
        let own = [[first, second], [first, third], [second, third]][rank];
        let block = program.block(rank);
        block.signal(&own);
        block.wait(&own);
        let inputs = [2, 1, 0].map(|from| program.input(from).all());
        block.reduce(&inputs, program.output(rank).all());
        block.signal(&own);
        block.wait(&own);
    }
    program.build().unwrap()
}

/// A rank of three, with the installed plans of the process. The sum tells who added.
fn rank_of_three(place: &Rendezvous) {
    let options = Options::default().with_reproducible(false);
    let communicator = Communicator::connect(place, &options).unwrap();
    let calls = Collectives::new(&communicator).unwrap();
    let chosen = std::env::var(CHOSEN).unwrap();
    let question = calls.question(&Collective::AllReduce, 64, DataType::F32);
    let choice = calls.explain(&question).unwrap();
    assert_eq!(choice.rule.name(), chosen, "{choice}");
    let (input, mut output) = ([[1e8f32, -1e8, 1.0][place.rank as usize]; 16], [7.0f32; 16]);
    // SAFETY: both arrays live past the call.
    unsafe { calls.call(&sum(&input, &mut output), None) }.unwrap();
    // Beside 1e8 a 1 is lost.
    let sum = if chosen == "installed plan" { 0.0 } else { 1.0 };
    assert_eq!(output, [sum; 16], "{chosen}");
    communicator.barrier().unwrap();
}

#[test]
fn what_is_on_disk_serves_the_calls_of_processes() {
    let test = what_is_on_disk_serves_the_calls_of_processes;
    if let Some(place) = children::here(3) {
        return rank_of_three(&place);
    }
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("disk-{}", std::process::id()));
    let folder = cache.join("installed");
    Installed::install(&folder, backwards(), Terms::default()).unwrap();
    // In the cache folder, in one that is named, and not at all.
    for (named, chosen) in [
        (OsStr::new(""), "installed plan"),
        (folder.as_os_str(), "installed plan"),
        (OsStr::new("off"), "rule by size"),
    ] {
        let variables: [(&str, &OsStr); 4] = [
            ("ANTIPHON_CACHE_DIR", cache.as_ref()),
            ("ANTIPHON_TUNING", "off".as_ref()),
            ("ANTIPHON_INSTALLED", named),
            (CHOSEN, chosen.as_ref()),
        ];
        let ends = children::run(test, 3, |_| &variables);
        assert!(ends.iter().all(|end| end.success()), "{variables:?}: {ends:?}");
    }
    std::fs::remove_dir_all(&cache).unwrap();
}
