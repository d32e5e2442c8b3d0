//! A rank's number among those of its host, which says which device is its own.

use super::{Environment, Result};

/// Where it is said, the first that counts first: by hand, and by launchers, in the order in which [`find`](super::find) looks for them.
const LOCAL: [&str; 5] = [
    "ANTIPHON_LOCAL_RANK",
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
];

/// This rank's number among those of its host; where a launcher does not say it, that among all ranks. `None` where nothing
/// started this process as a rank. It needs nothing else of what a launcher leaves, such as where the ranks meet.
///
/// # Errors
/// `Bad` for a variable that holds no number.
pub fn local_rank(environment: &Environment) -> Result<Option<u32>> {
    // `RANK` alone is a name that anything may use.
    let torch = environment.get("WORLD_SIZE").map(|_| "RANK");
    for name in LOCAL.into_iter().chain(["ANTIPHON_RANK"]).chain(torch).chain(["PMI_RANK"]) {
        if let Some(number) = environment.number(name)? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_its_number_on_its_host_from_who_started_it() {
        type Variables = &'static [(&'static str, &'static str)];
        let local = |variables: Variables| {
            local_rank(&variables.iter().copied().collect()).map_err(|error| error.to_string())
        };
        let cases: [(Variables, Option<u32>); 11] = [
            (&[], None),
            (&[("RANK", "3")], None),
            (&[("RANK", "3"), ("WORLD_SIZE", "8")], Some(3)),
            (&[("RANK", "9"), ("WORLD_SIZE", "16"), ("LOCAL_RANK", "1")], Some(1)),
            // torchrun in an allocation of Slurm's, whose shell is a task as well.
            (&[("LOCAL_RANK", "1"), ("SLURM_LOCALID", "0")], Some(1)),
            (&[("PMI_RANK", "6"), ("SLURM_LOCALID", "2")], Some(2)),
            (&[("PMI_RANK", "6")], Some(6)),
            (&[("ANTIPHON_RANK", "5"), ("SLURM_LOCALID", "0")], Some(0)),
            (&[("ANTIPHON_RANK", "5"), ("RANK", "3"), ("WORLD_SIZE", "8")], Some(5)),
            (&[("ANTIPHON_RANK", "5"), ("ANTIPHON_LOCAL_RANK", "2")], Some(2)),
            (&[("ANTIPHON_LOCAL_RANK", ""), ("OMPI_COMM_WORLD_LOCAL_RANK", "4")], Some(4)),
        ];
        for (variables, expected) in cases {
            assert_eq!(local(variables), Ok(expected), "{variables:?}");
        }
        let error = local(&[("LOCAL_RANK", "one")]).unwrap_err();
        assert!(error.contains("LOCAL_RANK") && error.contains("one"), "{error}");
    }
}
