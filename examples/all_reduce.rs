//! An allreduce over processes: `cargo run --example all_reduce`. Started by torchrun, `mpirun` or `srun` it is one rank of
//! theirs; else it starts two ranks here.

use antiphon::{Communicator, Op, Rendezvous};
use std::error::Error;
use std::io::{self, Write};
use std::process::{Child, Command};

/// What each process does.
fn rank() -> Result<(), Box<dyn Error>> {
    let rank = Communicator::from_environment()?;
    let mut sums = vec![rank.rank() as f32 + 1.0; 1 << 20];
    rank.all_reduce(&mut sums, Op::Sum)?;
    let expected = (rank.world() * (rank.world() + 1) / 2) as f32;
    assert!(sums.iter().all(|&sum| sum == expected));
    let (own, world, sum) = (rank.rank(), rank.world(), sums[0]);
    // Who reads may have gone, as `head` goes: that is no failure.
    let _ = writeln!(io::stdout(), "rank {own} of {world}: every element is {sum}");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // A script of Slurm's has a number, too, but no step.
    let launched = ["ANTIPHON_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID"];
    if launched.iter().any(|variable| std::env::var_os(variable).is_some()) {
        return rank();
    }
    let address = Rendezvous::unique()?;
    let start = |rank: u32| {
        let mut command = Command::new(std::env::current_exe()?);
        command.env("ANTIPHON_RANK", rank.to_string()).env("ANTIPHON_WORLD", "2");
        command.env("ANTIPHON_COMM_ID", &address).spawn()
    };
    let ranks = [start(0)?, start(1)?];
    let ended = ranks.map(|mut rank: Child| rank.wait());
    for status in ended {
        assert!(status?.success(), "a rank failed");
    }
    Ok(())
}
