//! Plans that are installed on this machine: files in the cache folder, which serve the calls of every process if all ranks
//! have the same ones.

mod agreement;
mod defaults;
mod file;
#[cfg(test)]
mod tests;

use super::plan::RegisteredPlan;
use super::{Contents, Terms, free};
use crate::error::ExecutorError;
use crate::fingerprint::fingerprint;
use crate::plan_cache::LoadedPlan;
use crate::selection::Spread;
use antiphon_plan::model::Plan;
use antiphon_plan::verify::{self, Verdict};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::{fs, io};

/// The variable that names the folder of installed plans, or is `off`.
const VARIABLE: &str = "ANTIPHON_INSTALLED";

/// The installed plans that may serve the calls of a communicator; or why none is used.
#[derive(Clone, Debug)]
pub struct Installed {
    /// By name.
    plans: Arc<[Arc<RegisteredPlan>]>,
    skipped: Arc<[Skipped]>,
    /// Why none is used.
    unused: Option<Arc<str>>,
    fingerprint: u64,
}

/// A file among the installed plans that serves no calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The file.
    pub path: PathBuf,
    /// Why it serves none, in words that begin with "it".
    pub why: String,
}

/// A plan that was installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Why it is not proven, if it is not.
    pub doubt: Option<String>,
}

/// Why a plan was not installed, or not removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The plan could not even be registered with these terms.
    #[error(transparent)]
    Terms(#[from] ExecutorError),
    /// The verifier refutes it.
    #[error(
        "cannot install plan `{name}`: it is refuted: {text}\nmend the plan, with the help of `antiphon plan verify`"
    )]
    Refuted {
        /// Its name.
        name: String,
        /// How it goes wrong.
        text: String,
    },
    /// Its file could not be written, or not be removed.
    #[error(
        "cannot write or remove {}: {source}; allow it, or choose another folder by ANTIPHON_INSTALLED or ANTIPHON_CACHE_DIR",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Installed {
    /// No plans; `why` completes "none is used:".
    pub fn none(why: &str) -> Self {
        Installed { unused: Some(why.into()), ..Installed::of(Vec::new(), Vec::new(), 0) }
    }

    fn of(plans: Vec<Arc<RegisteredPlan>>, skipped: Vec<Skipped>, fingerprint: u64) -> Self {
        Installed { plans: plans.into(), skipped: skipped.into(), unused: None, fingerprint }
    }

    /// The installed plans of this process: those in its [`folder`](Self::folder), or none if `ANTIPHON_INSTALLED` is `off`.
    /// They are read once, when first asked for; a file that is not an installed plan is warned of, and serves nothing.
    pub fn of_process() -> Self {
        static PROCESS: LazyLock<Installed> = LazyLock::new(|| {
            if named().is_some_and(|value| value == "off") {
                return Installed::none("ANTIPHON_INSTALLED is off");
            }
            match Installed::folder() {
                Some(folder) => Installed::read(&folder),
                None => Installed::none("there is no cache folder"),
            }
        });
        PROCESS.clone()
    }

    /// Where plans are installed: the folder that `ANTIPHON_INSTALLED` names, else `installed` in the
    /// [cache folder](antiphon_hal::cache_folder). It need not exist.
    pub fn folder() -> Option<PathBuf> {
        let named = named().filter(|value| value != "off").map(PathBuf::from);
        named.or_else(|| antiphon_hal::cache_folder().map(|folder| folder.join("installed")))
    }

    /// The installed plans in a folder, which need not exist.
    pub fn read(folder: &Path) -> Self {
        let mut paths = match fs::read_dir(folder) {
            Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                let shown = folder.display();
                log::warn!("cannot read the installed plans in {shown}: {error}");
                return Installed::none(&format!("{shown} cannot be read: {error}"));
            }
        };
        paths.retain(|path: &PathBuf| path.extension().is_some_and(|end| end == "json"));
        paths.sort_unstable();
        let (mut plans, mut skipped) = (Vec::<(Arc<RegisteredPlan>, u64)>::new(), Vec::new());
        for path in paths {
            let text = fs::read(&path).map_err(|error| format!("it cannot be read: {error}"));
            let found = text.and_then(|text| file::decode(&text));
            // The file must have the plan's name: by it the plan is replaced and removed, and told from others.
            let found = found.and_then(|(plan, seal)| {
                let own = file::name_of(plan.name());
                if path.file_name().is_some_and(|file| *file == *own) {
                    Ok((plan, seal))
                } else {
                    Err(format!("it holds `{}`, whose file is {own}", plan.name()))
                }
            });
            match found {
                Ok((plan, seal)) => plans.push((Arc::new(plan), seal)),
                Err(why) => {
                    log::warn!("{} is no installed plan: {why}", path.display());
                    skipped.push(Skipped { path, why });
                }
            }
        }
        plans.sort_by(|(one, _), (other, _)| one.name().cmp(other.name()));
        let seals: Vec<u8> = plans.iter().flat_map(|(_, seal)| seal.to_le_bytes()).collect();
        let own = if plans.is_empty() { 0 } else { fingerprint(&seals).max(1) };
        Installed::of(plans.into_iter().map(|(plan, _)| plan).collect(), skipped, own)
    }

    /// Installs a plan in a folder, replacing one of the same name. Whoever reads the folder meanwhile finds either the old one
    /// or the new one. Processes that have read it before go on with what they found.
    ///
    /// # Errors
    /// For a plan that could not be [registered](super::Registry::register) with these terms, or is refuted, and for a file
    /// that cannot be written. What was installed before then stays.
    pub fn install(folder: &Path, plan: Plan, terms: Terms) -> Result<Written, InstallError> {
        let plan = RegisteredPlan::new(plan, terms)?;
        let name = plan.name().to_owned();
        free(&Contents::default(), &name)?;
        let mut doubts = Vec::new();
        // If each rank may call in place or not, the plan must be right either way.
        for plan in [Some(plan.plan()), plan.other_place().as_ref()].into_iter().flatten() {
            match judge(plan)? {
                Verdict::Proven => {}
                Verdict::NotProven(reasons) => doubts.extend(reasons),
                Verdict::Refuted(refutations) => {
                    let text = refutations.first().map(|one| one.fault.to_string());
                    return Err(InstallError::Refuted { name, text: text.unwrap_or_default() });
                }
            }
        }
        let path = folder.join(file::name_of(&name));
        match antiphon_hal::replace_file(&path, file::encode(&plan).as_bytes()) {
            Ok(()) => Ok(Written { name, path, doubt: doubts.into_iter().next() }),
            Err(source) => Err(InstallError::File { path, source }),
        }
    }

    /// Writes the default plans for some ranks into a folder: every built-in algorithm of the host, each into a file of its
    /// name, replacing what is there. They serve no call by themselves: built-in algorithms do. Returns the files, in order.
    ///
    /// # Errors
    /// For more than 1024 ranks, and for ranks that are not spread evenly over their nodes; for a file that cannot be written,
    /// after those before it were.
    pub fn install_defaults(folder: &Path, spread: Spread) -> Result<Vec<PathBuf>, InstallError> {
        defaults::install(folder, spread)
    }

    /// Removes an installed plan, by its name; says whether it was there.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(folder: &Path, name: &str) -> Result<bool, InstallError> {
        let path = folder.join(file::name_of(name));
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(InstallError::File { path, source }),
        }
    }

    /// The plans, by name.
    pub fn plans(&self) -> &[Arc<RegisteredPlan>] {
        &self.plans
    }

    /// Files that serve nothing.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Why none is used, unless simply none is installed.
    pub(crate) fn unused(&self) -> Option<&str> {
        self.unused.as_deref()
    }

    /// The fingerprint of the plans and their terms; 0 if there are none.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// The value of the variable, unless it is empty.
fn named() -> Option<std::ffi::OsString> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty())
}

/// What the verifier says of a plan.
fn judge(plan: &Plan) -> Result<Verdict, ExecutorError> {
    let lowered = LoadedPlan::new(plan)?;
    Ok(verify::verify(plan, lowered.layout(), verify::Options::default()).verdict)
}
