//! The order in which candidates are considered for a call, and what is said about it: the selector's answer, if it has one;
//! then the fastest by the tuning table, if the call was measured; then the first registered plan that fits, the most recent
//! first; then registered code, likewise; then the first installed plan that fits, by name; then the built-in algorithm that
//! the rule by size takes, or, of calls that bring their sizes over nodes, transfers.

use super::transfers::{Made, made};
use super::{
    Devices, Question, Selected, SelectionError, TRANSFERS, Tuning, candidates, reproducible,
    select,
};
use crate::registry::{Contents, Installed, Misfit, RegisteredCode, RegisteredPlan};
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What may serve a call.
#[derive(Clone, Debug)]
pub enum Candidate {
    /// A registered plan.
    Plan(Arc<RegisteredPlan>),
    /// Registered code.
    Code(Arc<RegisteredCode>),
    /// An installed plan.
    Installed(Arc<RegisteredPlan>),
    /// A built-in algorithm.
    BuiltIn(Selected),
    /// Transfers between pairs of ranks: a send and a receive, and what over nodes nothing built in makes of one launch.
    Transfers,
}

/// What a selector is asked.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Offer<'a> {
    /// The call.
    pub question: Question<'a>,
    /// The address of the send buffer; 0 where nothing is called, or this rank sends nothing (a root alone does).
    pub input: usize,
    /// The address of the receive buffer; 0 where nothing is called, or this rank receives nothing.
    pub output: usize,
    /// What fits the call: registered plans, the most recent first; registered code, likewise; installed plans, by name;
    /// built-in algorithms, the one that the rule by size takes first, or transfers in their place.
    pub fitting: &'a [Candidate],
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The selector.
    Selector,
    /// The tuning table.
    Table,
    /// A registered plan fits.
    Plan,
    /// Registered code fits.
    Code,
    /// An installed plan fits.
    Installed,
    /// The built-in rule by size.
    Size,
    /// Such calls by name come to transfers.
    Transfers,
}

/// What may serve a call, and why it does not fit, if so.
pub(crate) type Considered = (Candidate, Result<(), Misfit>);

/// What serves a call, and why.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// What serves it.
    pub candidate: Candidate,
    /// Who decided.
    pub rule: Rule,
    /// What each rule had to say, up to the one that decided.
    pub rules: Vec<(Rule, Cow<'static, str>)>,
    /// All candidates in the order in which they are considered; those that do not fit with the reason.
    pub considered: Vec<(Candidate, Result<(), Misfit>)>,
    /// Files that are no installed plans, and why.
    pub left_out: Vec<String>,
}

impl Candidate {
    /// What selectors call it.
    pub fn name(&self) -> &str {
        match self {
            Candidate::Plan(plan) | Candidate::Installed(plan) => plan.name(),
            Candidate::Code(code) => code.name(),
            Candidate::BuiltIn(selected) => selected.name(),
            Candidate::Transfers => TRANSFERS,
        }
    }

    /// What tuning tables call it: a plan by its content, and what else there is by its name.
    pub fn measured_as(&self) -> Cow<'_, str> {
        match self {
            Candidate::Plan(plan) | Candidate::Installed(plan) => plan.measured_as().into(),
            _ => self.name().into(),
        }
    }

    /// What it is, in a word or two.
    pub fn kind(&self) -> &'static str {
        match self {
            Candidate::Plan(_) => "registered plan",
            Candidate::Code(_) => "registered code",
            Candidate::Installed(_) => "installed plan",
            Candidate::BuiltIn(_) => "built-in algorithm",
            Candidate::Transfers => "calls between two ranks",
        }
    }
}

impl Rule {
    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Selector => "selector",
            Rule::Table => "tuning table",
            Rule::Plan => "registered plan",
            Rule::Code => "registered code",
            Rule::Installed => "installed plan",
            Rule::Size => "rule by size",
            Rule::Transfers => "transfers",
        }
    }
}

/// What a choice is made from.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    /// What is registered.
    pub contents: &'a Contents,
    pub tuning: &'a Tuning,
    pub installed: &'a Installed,
}

/// Chooses for a call that all ranks make; `addresses` are those of its send and its receive buffer.
///
/// # Errors
/// Where nothing serves it, or the selector's answer is of no use.
pub(crate) fn choose(
    sources: &Sources<'_>,
    question: &Question<'_>,
    addresses: [usize; 2],
) -> Result<Choice, SelectionError> {
    let Sources { contents, tuning, installed } = *sources;
    let (considered, none) = collect(contents, installed, question);
    let mut rules = Vec::new();
    let answer = ask(contents, question, addresses, &considered)?;
    rules.push((
        Rule::Selector,
        match (&contents.selector, &answer) {
            (None, _) => "there is none".into(),
            (Some(_), Some(name)) => format!("answers `{name}`").into(),
            (Some(_), None) => "has no answer".into(),
        },
    ));
    let (rule, candidate) = match answer {
        Some(name) => (Rule::Selector, named(&considered, name, question)?),
        None => {
            let (measured, said) = tuning.decide(&considered, question);
            rules.push((Rule::Table, said));
            match measured {
                Some(candidate) => (Rule::Table, candidate),
                None => by_default(installed.unused(), question, (&considered, none), &mut rules)?,
            }
        }
    };
    let skipped = installed.skipped().iter();
    let left_out = skipped.map(|one| format!("{}: {}", one.path.display(), one.why)).collect();
    Ok(Choice { candidate, rule, rules, considered, left_out })
}

/// All candidates in the order in which they are considered; and why nothing built in is among them, if so.
fn collect(
    contents: &Contents,
    installed: &Installed,
    question: &Question<'_>,
) -> (Vec<Considered>, Option<SelectionError>) {
    let plans = contents.plans.iter().rev();
    let plans = plans.map(|plan| (Candidate::Plan(Arc::clone(plan)), plan.fits(question)));
    let codes = contents.codes.iter().rev();
    let codes = codes.map(|code| (Candidate::Code(Arc::clone(code)), code.fits(question)));
    // The program's own goes by its name.
    let free = |plan: &&Arc<RegisteredPlan>| contents.names().all(|name| name != plan.name());
    let others = installed.plans().iter().filter(free);
    let others = others.map(|plan| (Candidate::Installed(Arc::clone(plan)), plan.fits(question)));
    let mut considered: Vec<_> = plans.chain(codes).chain(others).collect();
    if made(question.collective, question.spread) == Made::Transfers {
        considered.push((Candidate::Transfers, Ok(())));
        return (considered, None);
    }
    // A call that nothing built in serves may still be served by what is registered.
    match candidates(question.built_in_spread(), question.wish()) {
        Ok(selected) => {
            let fits = |one| reproducible::admit_built_in(question, &one);
            let built_in = selected.into_iter().map(|one| (Candidate::BuiltIn(one), fits(one)));
            considered.extend(built_in);
            (considered, None)
        }
        Err(error) => (considered, Some(error)),
    }
}

/// What the selector answers, if there is one.
fn ask(
    contents: &Contents,
    question: &Question<'_>,
    [input, output]: [usize; 2],
    considered: &[Considered],
) -> Result<Option<String>, SelectionError> {
    let Some(selector) = &contents.selector else { return Ok(None) };
    let fitting = considered.iter().filter(|(_, fits)| fits.is_ok());
    let fitting: Vec<_> = fitting.map(|(candidate, _)| candidate.clone()).collect();
    let offer = Offer { question: *question, input, output, fitting: &fitting };
    let asked = catch_unwind(AssertUnwindSafe(|| selector(&offer)));
    let asked = asked.map_err(|panic| format!("it panicked: {}", panicked(&*panic)));
    asked.and_then(|answer| answer).map_err(SelectionError::Selector)
}

/// The candidate that a selector named.
fn named(
    considered: &[Considered],
    name: String,
    question: &Question<'_>,
) -> Result<Candidate, SelectionError> {
    let found = considered.iter().find(|(candidate, _)| candidate.name() == name);
    let call = || question.to_string();
    match found {
        Some((candidate, Ok(()))) => Ok(candidate.clone()),
        Some((_, Err(misfit))) => {
            Err(SelectionError::Unfit { name, call: call(), misfit: misfit.clone() })
        }
        None => {
            let fitting = considered.iter().filter(|(_, fits)| fits.is_ok());
            let names: Vec<_> = fitting.map(|(candidate, _)| candidate.name()).collect();
            let fitting = names.join(", ");
            Err(SelectionError::Unknown { name, call: call(), fitting })
        }
    }
}

/// What [`choose`] takes where nothing is registered and no table is used, without saying why: sizes that are new with every
/// call stay quick.
pub(crate) fn choose_by_size(question: &Question<'_>) -> Result<Selected, SelectionError> {
    let selected = select(question.built_in_spread(), question.wish())?;
    if reproducible::admit_built_in(question, &selected).is_ok() {
        return Ok(selected);
    }
    let why = "none is asked for";
    let (contents, tuning, installed) =
        (Contents::default(), Tuning::none(why), Installed::none(why));
    let sources = Sources { contents: &contents, tuning: &tuning, installed: &installed };
    match choose(&sources, question, [0; 2])?.candidate {
        Candidate::BuiltIn(selected) => Ok(selected),
        _ => unreachable!("nothing is registered"),
    }
}

/// The first candidate that fits; `none` is why there is no built-in one, `unused` why no installed plan is looked at.
fn by_default(
    unused: Option<&str>,
    question: &Question<'_>,
    (considered, none): (&[Considered], Option<SelectionError>),
    rules: &mut Vec<(Rule, Cow<'static, str>)>,
) -> Result<(Rule, Candidate), SelectionError> {
    type Is = fn(&Candidate) -> bool;
    let registered: [(Rule, Is); 3] = [
        (Rule::Plan, |candidate| matches!(candidate, Candidate::Plan(_))),
        (Rule::Code, |candidate| matches!(candidate, Candidate::Code(_))),
        (Rule::Installed, |candidate| matches!(candidate, Candidate::Installed(_))),
    ];
    for (rule, is) in registered {
        let mut all = considered.iter().filter(|(candidate, _)| is(candidate)).peekable();
        let some = all.peek().is_some();
        if let Some((candidate, _)) = all.find(|(_, fits)| fits.is_ok()) {
            let which = match rule {
                Rule::Installed => "the first by name that fits",
                _ => "the most recent one that fits",
            };
            rules.push((rule, which.into()));
            return Ok((rule, candidate.clone()));
        }
        rules.push(match (some, unused.filter(|_| rule == Rule::Installed)) {
            (_, Some(why)) => (rule, format!("none is used: {why}").into()),
            (true, None) => (rule, "none fits".into()),
            (false, None) => (rule, "there is none".into()),
        });
    }
    let own =
        |candidate: &Candidate| matches!(candidate, Candidate::BuiltIn(_) | Candidate::Transfers);
    let fitting = |(candidate, fits): &&(_, Result<_, _>)| own(candidate) && fits.is_ok();
    match (none, considered.iter().find(fitting)) {
        (None, Some((candidate @ Candidate::Transfers, _))) => {
            rules.push((Rule::Transfers, "its blocks go one by one".into()));
            Ok((Rule::Transfers, candidate.clone()))
        }
        (None, Some((candidate, _))) => {
            let devices = question.built_in_spread().devices;
            rules.push((Rule::Size, said_by_size(candidate, devices)));
            Ok((Rule::Size, candidate.clone()))
        }
        (Some(error), _) => Err(error),
        (None, None) => unreachable!("built-in algorithms of every size keep one order of sums"),
    }
}

/// What there is to say about the choice of a built-in algorithm.
fn said_by_size(candidate: &Candidate, devices: Devices) -> Cow<'static, str> {
    let blocks = match candidate {
        Candidate::BuiltIn(Selected::Sized(choice)) => Some(choice.shape.blocks),
        Candidate::BuiltIn(Selected::Rooted(choice)) => Some(choice.shape.blocks),
        _ => None,
    };
    match (blocks, devices) {
        (Some(blocks), Devices::Gpus { class, .. }) => {
            let name = class.topology_name();
            let plural = if blocks == 1 { "" } else { "s" };
            format!(
                "decides, as the simulator predicts for `{name}`: {blocks} thread block{plural}"
            )
            .into()
        }
        _ => "decides".into(),
    }
}

/// What a panic said.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("of unknown cause").to_owned()
}
