//! Random programs of calls, which a plain model follows byte by byte: a seed makes a program, and all ranks run it.

mod calls;
mod generate;
mod memory;
mod model;
mod places;
mod program;
mod rank;
mod runs;
mod served;

use antiphon_tests::harness::processes::role;
use antiphon_tests::harness::seed;
use antiphon_tests::{name_of, simulated, until};
use program::Program;

/// Programs more than a few.
const PROGRAMS: &str = "ANTIPHON_TEST_PROGRAMS";

/// How many programs a test runs.
fn programs(few: u64) -> u64 {
    let asked = std::env::var(PROGRAMS).ok();
    asked.map_or(few, |text| text.parse().expect("ANTIPHON_TEST_PROGRAMS must be a number"))
}

/// A number that depends on all of these, and looks like chance.
fn hash(words: &[u64]) -> u64 {
    let mix = |state: u64, word: &u64| {
        let mut z = (state ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    words.iter().fold(0, mix)
}

#[test]
fn programs_of_threads_leave_what_the_model_says() {
    let first = seed();
    for seed in first..first + programs(40) {
        println!("seed {seed}");
        runs::check(&Program::new(seed)).unwrap_or_else(|error| panic!("{error}"));
    }
    until("memory of communicators that are gone to be let go", || runs::held() == [0, 0]);
}

#[test]
fn programs_of_processes_leave_what_the_model_says() {
    let first = seed();
    for seed in first..first + programs(10) {
        println!("seed {seed}");
        runs::on_processes(name_of(rank_of_a_program), seed);
    }
}

/// A process of the test above.
#[test]
fn rank_of_a_program() {
    let Some(role) = role() else { return };
    runs::as_process(&role);
}

#[test]
fn programs_on_a_gpu_leave_what_the_model_says() {
    let test = name_of(programs_on_a_gpu_leave_what_the_model_says);
    if simulated::enter(test, env!("CARGO_TARGET_TMPDIR"), &[]).is_none() {
        return;
    }
    let first = seed();
    for seed in first..first + programs(2) {
        eprintln!("seed {seed}");
        runs::check(&Program::new(seed).on_gpu()).unwrap_or_else(|error| panic!("{error}"));
    }
}
