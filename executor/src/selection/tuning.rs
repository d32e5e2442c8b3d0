//! The table that calls are served by: read once for each process, and used where all ranks have the same one.

use super::order::Candidate;
use super::place_counts;
use super::question::Question;
use super::table::{Kind, Machine, Setting, Table};
use crate::registry::Misfit;
use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// Names a table, or says `off`.
const VARIABLE: &str = "ANTIPHON_TUNING";

/// What the variable says.
fn named() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty())
}

/// What a table has to say about calls of a group of ranks; or why none is used.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// With where the ranks are, and the cores that they have together.
    table: Result<(Arc<Table>, Machine), Absent>,
    kind: Kind,
}

/// Why ranks have no table.
#[derive(Clone, Debug)]
struct Absent {
    why: Arc<str>,
    /// Some of them have one.
    differ: bool,
}

impl Tuning {
    /// No table; `why` completes "no table is used:".
    pub fn none(why: &str) -> Self {
        let absent = Absent { why: why.into(), differ: false };
        Tuning { table: Err(absent), kind: Kind::Processes }
    }

    /// A table, for ranks that have the cores that the calling thread may keep busy. It decides as far as its times
    /// [hold](Machine::holds_for) for them.
    pub fn new(table: Table) -> Self {
        Tuning { table: Ok((Arc::new(table), Machine::here())), kind: Kind::Processes }
    }

    /// Where the table is: the file that `ANTIPHON_TUNING` names, else `tuning.json` in the
    /// [cache folder](antiphon_hal::cache_folder). It need not exist.
    pub fn file() -> Option<PathBuf> {
        let named = named().filter(|value| value != "off").map(PathBuf::from);
        named.or_else(|| antiphon_hal::cache_folder().map(|folder| folder.join("tuning.json")))
    }

    /// The table of this process: in its [`file`](Self::file), or none where `ANTIPHON_TUNING` is `off`. It is read when it is first
    /// asked for; one that is no table is warned of, and not used.
    pub fn of_process() -> Self {
        static PROCESS: LazyLock<Tuning> = LazyLock::new(|| {
            if named().is_some_and(|value| value == "off") {
                return Tuning::none("ANTIPHON_TUNING is off");
            }
            match Tuning::file() {
                Some(path) => Tuning::read(&path),
                None => Tuning::none("there is no cache folder"),
            }
        });
        PROCESS.clone()
    }

    fn read(path: &Path) -> Self {
        let shown = path.display();
        // What is a device or a pipe may never end, nor begin.
        let is_file = std::fs::metadata(path).and_then(|about| match about.is_file() {
            true => Ok(()),
            false => Err(std::io::Error::other("it is no regular file")),
        });
        let text = match is_file.and_then(|()| std::fs::read_to_string(path)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Tuning::none(&format!("there is no {shown}; `antiphon tune` writes one"));
            }
            Err(error) => {
                log::warn!("cannot read the tuning table {shown}: {error}");
                return Tuning::none(&format!("{shown} cannot be read: {error}"));
            }
        };
        match Table::parse(&text) {
            Ok(table) => Tuning::new(table),
            Err(error) => {
                log::warn!("{shown}: {error}");
                Tuning::none(&format!("{shown}: {error}"))
            }
        }
    }

    /// The same for ranks that are threads or processes.
    pub fn with_kind(self, kind: Kind) -> Self {
        Tuning { kind, ..self }
    }

    /// The same for ranks that have so many cores together.
    pub(crate) fn with_cores(self, cores: u32) -> Self {
        let table = self.table.map(|(table, here)| (table, Machine { cores, ..here }));
        Tuning { table, ..self }
    }

    /// Whether there is a table whose times hold for so many ranks.
    pub fn is_used(&self, ranks: u32) -> bool {
        self.held(ranks).is_ok()
    }

    /// The table, if its times are of this library and hold for so many ranks; or why there is none, or they do not.
    fn held(&self, ranks: u32) -> Result<&Table, Cow<'_, str>> {
        let (table, here) = self.table.as_ref().map_err(|absent| Cow::Borrowed(&*absent.why))?;
        if let Some(said) = table.stale() {
            return Err(format!("{said}; `antiphon tune --again` measures anew").into());
        }
        let of = table.machine();
        if !of.holds_for(ranks, here) {
            let said = format!("its times are of {of}, and the {ranks} ranks are on {here}");
            return Err(said.into());
        }
        Ok(table)
    }

    /// Why a table that ranks have decides none of their calls, if so.
    pub(crate) fn passed_over(&self, ranks: u32) -> Option<Cow<'_, str>> {
        let there = self.table.as_ref().map_or_else(|absent| absent.differ, |_| true);
        self.held(ranks).err().filter(|_| there)
    }

    /// That of the table; 0 for none.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.table.as_ref().map_or(0, |(table, _)| table.fingerprint())
    }

    /// What ranks use that have these, in rank order: this table, if all have it.
    pub(crate) fn agreed(self, fingerprints: impl IntoIterator<Item = u64>) -> Self {
        let own = self.fingerprint();
        match (0..).zip(fingerprints).find(|(_, other): &(u32, u64)| *other != own) {
            None => self,
            Some((rank, other)) => {
                let has = if other == 0 { "none" } else { "another" };
                let here = if own == 0 { "has none" } else { "has one" };
                let why = format!("ranks differ: this one {here}, and rank {rank} has {has}");
                Tuning { table: Err(Absent { why: why.into(), differ: true }), ..self }
            }
        }
    }

    /// The fastest of the candidates that fit, if the call was measured with every registered one; and what there is to say.
    pub(crate) fn decide(
        &self,
        considered: &[(Candidate, Result<(), Misfit>)],
        question: &Question<'_>,
    ) -> (Option<Candidate>, Cow<'static, str>) {
        let table = match self.held(question.spread.ranks) {
            Ok(table) => table,
            Err(why) => return (None, format!("none is used: {why}").into()),
        };
        if question.sizes().is_none() {
            return (None, "such calls bring their own sizes".into());
        }
        // The fastest of one size may add in another order than that of another.
        if question.reproducible && question.op.is_some() {
            return (None, "reproducible calls keep one order of sums".into());
        }
        let setting = Setting {
            collective: question.collective.clone(),
            ranks: question.spread.ranks,
            nodes: question.spread.nodes,
            kind: self.kind,
            // Ranks that need not agree on their places ask alike.
            in_place: question.in_place && place_counts(question.collective),
        };
        let fitting = considered.iter().filter(|(_, fits)| fits.is_ok());
        let fitting: Vec<_> =
            fitting.map(|(candidate, _)| (candidate.measured_as(), candidate)).collect();
        // Without times of these the table decides nothing.
        let given = || {
            let given = |candidate: &Candidate| !matches!(candidate, Candidate::BuiltIn(_));
            fitting.iter().filter(move |(_, candidate)| given(candidate))
        };
        let wanted: Vec<_> = given().map(|(measured, _)| measured.as_ref()).collect();
        let Some(near) = table.near(&setting, question.bytes, &wanted) else {
            return (None, "such calls, of about that size, were not measured".into());
        };
        let unknown = given().find(|(measured, _)| near.times.of(measured).is_none());
        if let Some((_, candidate)) = unknown {
            let said = format!("`{}` fits and was not measured", candidate.name());
            return (None, said.into());
        }
        let measured = |name: &str| fitting.iter().find(|(measured, _)| measured == name);
        let Some((_, best)) = near.times.best(|name| measured(name).is_some()).and_then(measured)
        else {
            return (None, "nothing that fits was measured".into());
        };
        let place = if near.setting.in_place { "in place" } else { "out of place" };
        let (kind, (low, high)) = (near.setting.kind, near.bytes);
        let at = if low == high { low.to_string() } else { format!("{low} and {high}") };
        let said = format!(
            "`{}` is the fastest, measured at {at} bytes {place}, ranks as {kind}",
            best.name()
        );
        (Some((*best).clone()), said.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Installed, Registry};
    use crate::selection::table::Times;
    use crate::selection::{Devices, Rule, Spread};
    use antiphon_plan::model::Collective;
    use antiphon_types::DataType;

    const SPREAD: Spread = Spread { ranks: 4, nodes: 1, crowded: false, devices: Devices::Host };

    /// A table in which an allreduce of the four ranks is fastest by a ring, at two sizes.
    fn ring(machine: Machine) -> Table {
        let mut table = Table::new(machine);
        let setting = Setting {
            collective: Collective::AllReduce,
            ranks: SPREAD.ranks,
            nodes: SPREAD.nodes,
            kind: Kind::Processes,
            in_place: false,
        };
        let times = [("allreduce_ring", 5), ("allreduce_zero_copy", 9), ("gone", 1)];
        let times = times.map(|(name, time)| (name.to_owned(), time));
        table.record(&setting, 1024, Times::new(times.clone()));
        table.record(&setting, 1 << 20, Times::new(times));
        table
    }

    #[test]
    fn the_fastest_candidate_serves_what_was_measured() {
        let tuning = Tuning::new(ring(Machine::here()));
        let choose = |collective: &Collective, spread| {
            let question = Question::new(collective, spread, 1 << 20, DataType::F32);
            Registry::new().choose_with(&question, &tuning, &Installed::none("so")).unwrap()
        };
        let choice = choose(&Collective::AllReduce, SPREAD);
        assert_eq!((choice.candidate.name(), choice.rule), ("allreduce_ring", Rule::Table));
        let said = choice.to_string();
        assert!(
            said.contains(
                "tuning table: `allreduce_ring` is the fastest, measured at 1048576 bytes"
            ),
            "{said}"
        );
        // Deterministic: the question alone decides.
        assert_eq!(choose(&Collective::AllReduce, SPREAD).to_string(), said);
        for (collective, spread) in [
            (Collective::AllGather, SPREAD),
            (Collective::AllReduce, Spread { ranks: 8, ..SPREAD }),
            (Collective::AllReduce, Spread { nodes: 2, ..SPREAD }),
            (Collective::AllToAllV, SPREAD),
        ] {
            let choice = choose(&collective, spread);
            assert_eq!(choice.rule, Rule::Size, "{choice}");
        }
        // So far from all that was measured, nothing is known.
        let question = Question::new(&Collective::AllReduce, SPREAD, 32 << 20, DataType::F32);
        let choice =
            Registry::new().choose_with(&question, &tuning, &Installed::none("so")).unwrap();
        assert_eq!(choice.rule, Rule::Size, "{choice}");
    }

    #[test]
    fn times_are_of_a_plan_and_not_of_its_name() {
        use antiphon_plan::algorithms::{Algorithm, Shape};
        let plan = |algorithm: Algorithm| algorithm.plan(Shape::new(4)).unwrap();
        let terms = |name: &str| crate::registry::Terms {
            name: Some(name.to_owned()),
            ..Default::default()
        };
        let mut table = ring(Machine::here());
        let setting = table.iter().next().unwrap().0.clone();
        let registry = Registry::new();
        let mine = registry.register(plan(Algorithm::AllReduceRing), terms("mine")).unwrap();
        let times = [(mine.measured_as(), 1), ("allreduce_ring".to_owned(), 5)];
        table.record(&setting, 1024, Times::new(times));
        let tuning = Tuning::new(table);
        let question = Question::new(&Collective::AllReduce, SPREAD, 1024, DataType::F32);
        let choose = || registry.choose_with(&question, &tuning, &Installed::none("so")).unwrap();
        let choice = choose();
        assert_eq!((choice.candidate.name(), choice.rule), ("mine", Rule::Table), "{choice}");
        assert!(choice.to_string().contains("`mine` is the fastest"), "{choice}");
        // The same by another name; and another by the same.
        registry.unregister("mine");
        registry.register(plan(Algorithm::AllReduceRing), terms("yours")).unwrap();
        assert_eq!((choose().candidate.name(), choose().rule), ("yours", Rule::Table));
        registry.unregister("yours");
        registry.register(plan(Algorithm::AllReduceHub), terms("mine")).unwrap();
        let choice = choose();
        assert_eq!((choice.candidate.name(), choice.rule), ("mine", Rule::Plan), "{choice}");
        assert!(choice.to_string().contains("`mine` fits and was not measured"), "{choice}");
    }

    #[test]
    fn a_plan_for_calls_in_place_is_judged_by_times_in_place() {
        use antiphon_plan::algorithms::{Algorithm, Shape};
        let registry = Registry::new();
        let plan =
            Algorithm::AllReduceRing.plan(Shape { in_place: true, ..Shape::new(4) }).unwrap();
        let terms = crate::registry::Terms { name: Some("mine".into()), ..Default::default() };
        let mine = registry.register(plan, terms).unwrap();
        let question = Question::new(&Collective::AllReduce, SPREAD, 1024, DataType::F32);
        let question = Question { in_place: true, ..question };
        for (time, serves) in [(1, "mine"), (7, "allreduce_ring")] {
            // Out of place others were measured, and that plan was not, since it serves no such call.
            let mut table = ring(Machine::here());
            let out_of_place = table.iter().next().unwrap().0.clone();
            let in_place = Setting { in_place: true, ..out_of_place };
            let times = [(mine.measured_as(), time), ("allreduce_ring".to_owned(), 5)];
            table.record(&in_place, 1024, Times::new(times));
            let tuning = Tuning::new(table);
            let choice = registry.choose_with(&question, &tuning, &Installed::none("so")).unwrap();
            assert_eq!((choice.candidate.name(), choice.rule), (serves, Rule::Table), "{choice}");
        }
    }

    #[test]
    fn reproducible_sums_are_not_left_to_the_clock() {
        let tuning = Tuning::new(ring(Machine::here()));
        let question = Question::new(&Collective::AllReduce, SPREAD, 1024, DataType::F32);
        let question = Question { reproducible: true, ..question };
        let choice =
            Registry::new().choose_with(&question, &tuning, &Installed::none("so")).unwrap();
        assert_eq!(choice.rule, Rule::Size, "{choice}");
    }

    #[test]
    fn a_table_decides_where_ranks_have_the_processor_and_as_many_cores() {
        let question = Question::new(&Collective::AllReduce, SPREAD, 1024, DataType::F32);
        let here = Machine::here().cpu;
        for (cpu, measured, cores, used) in [
            (here.as_str(), 16, 4, true), // Each of the four ranks has a core either way.
            (here.as_str(), 4, 16, true),
            (here.as_str(), 2, 2, true),
            (here.as_str(), 16, 3, false),
            (here.as_str(), 2, 16, false),
            (here.as_str(), 2, 1, false),
            ("an abacus", 4, 4, false),
        ] {
            let table = ring(Machine { cpu: cpu.into(), cores: measured });
            let tuning = Tuning::new(table).with_cores(cores);
            let choice =
                Registry::new().choose_with(&question, &tuning, &Installed::none("so")).unwrap();
            let case = format!("{cpu}, {measured} cores, on {cores}: {choice}");
            assert_eq!((choice.rule == Rule::Table, tuning.is_used(4)), (used, used), "{case}");
            assert_eq!(tuning.passed_over(4).is_some(), !used, "{case}");
            // Whose ranks are fewer than the cores of both.
            assert_eq!(tuning.is_used(1), cpu == here, "{case}");
            let plural = if cores == 1 { "" } else { "s" };
            let said = format!("and the 4 ranks are on {here} with {cores} usable core{plural}");
            assert_eq!(choice.to_string().contains(&said), !used, "{case}");
        }
    }

    #[test]
    fn a_table_of_another_library_decides_nothing() {
        let own = ring(Machine::here());
        let version = format!("\"library\": \"{}\"", env!("CARGO_PKG_VERSION"));
        let text = own.to_text().replace(&version, "\"library\": \"0.0.1\"");
        let tuning = Tuning::new(Table::parse(&text).unwrap());
        assert!(!tuning.is_used(4) && tuning.passed_over(4).is_some());
        let question = Question::new(&Collective::AllReduce, SPREAD, 1024, DataType::F32);
        let choice =
            Registry::new().choose_with(&question, &tuning, &Installed::none("so")).unwrap();
        assert_eq!(choice.rule, Rule::Size);
        assert!(choice.to_string().contains("its times are of version 0.0.1"), "{choice}");
    }

    #[test]
    fn ranks_use_a_table_that_all_have() {
        let tuning = Tuning::new(ring(Machine::here()));
        let own = tuning.fingerprint();
        assert!(tuning.clone().agreed([own, own, own]).is_used(3));
        for others in [[own, 0, own], [own, own + 1, own]] {
            let agreed = tuning.clone().agreed(others);
            assert!(!agreed.is_used(3) && agreed.passed_over(3).is_some(), "{others:?}");
        }
        let none = Tuning::none("so").agreed([0, 0]);
        assert!(!none.is_used(2) && none.passed_over(2).is_none());
        assert!(Tuning::none("so").agreed([own, 0]).passed_over(2).is_some());
        let (_, said) = Tuning::none("so")
            .agreed([own, 0])
            .decide(&[], &Question::new(&Collective::AllReduce, SPREAD, 4, DataType::F32));
        assert_eq!(said, "none is used: ranks differ: this one has none, and rank 0 has another");
    }

    #[test]
    fn files_that_are_no_tables_are_named() {
        let folder = std::env::temp_dir().join(format!("antiphon-tuning-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("tuning.json");
        let said = |tuning: &Tuning| match &tuning.table {
            Ok(_) => "used".to_owned(),
            Err(absent) => absent.why.to_string(),
        };
        assert!(said(&Tuning::read(&path)).contains("`antiphon tune` writes one"));
        assert!(said(&Tuning::read(Path::new("/dev/zero"))).contains("it is no regular file"));
        std::fs::write(&path, "{").unwrap();
        assert!(said(&Tuning::read(&path)).contains("tuning.json: cannot read a tuning table"));
        std::fs::write(&path, ring(Machine::here()).to_text()).unwrap();
        assert_eq!(said(&Tuning::read(&path)), "used");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
