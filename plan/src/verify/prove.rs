//! The proof: every case, every order, and what remains of one launch for the next.

mod notes;

use super::cases::{Cases, Grid, cases};
use super::contention::Contention;
use super::explore::Search;
use super::lineage::Lineage;
use super::order::{Orders, SumOrder, reduces_in_hardware};
use super::portable;
use super::report::{About, Fault, Note, Refutation, Report, Verdict};
use super::state::{End, Object, Setting};
use super::walk::Walk;
use crate::lower::site_of;
use crate::model::{Collective, Plan};
use crate::postcondition::PostCondition;
use crate::program::Layout;
use crate::schedule::{Actor, Case, Moment, Schedule};
use notes::{overwritten, strengthened};
use std::cell::OnceCell;

/// What to do beyond the verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Note what a plan without a promise of its own computes.
    pub results: bool,
    /// What the plan is to compute, in place of what its collective promises; chunks are the plan's.
    pub promise: Option<&'a PostCondition>,
}

/// Orders that are walked before a plan is called not proven.
const MOST_ORDERS: u64 = 4096;
/// Steps of all orders together that are walked before a plan is called not proven.
const MOST_STEPS: u64 = 100_000_000;
/// Cells of memory made and touched, in all walks together, before a plan is called not proven: about a minute.
const MOST_TOUCHES: u64 = 4_000_000_000;
/// Steps of a walk up to which it is also tried with input and output lying the other way.
const BRIEF: u64 = 1 << 16;
/// Launches that are walked to show that a semaphore runs dry.
const MOST_LAUNCHES: u32 = 256;

/// Why a plan in which several write a packet is not proven.
const LOOPED: &str = "several write the same packets in a pipeline, which was looked into for few iterations only; let one \
                      block write each packet";
const SHARED: &str = "several write the same packets, of which there are too many to look into; let one block write each \
                      packet";

/// Proves or refutes a plan that passed [`check`](crate::check()) and was lowered to `layout`.
pub fn verify(plan: &Plan, layout: &Layout, options: Options<'_>) -> Report {
    verify_within(MOST_TOUCHES, plan, layout, options)
}

/// As [`verify`], of which all walks together make and touch no more than `allowed` cells.
pub(super) fn verify_within(
    allowed: u64,
    plan: &Plan,
    layout: &Layout,
    options: Options<'_>,
) -> Report {
    let contention = Contention::new(layout);
    let mut proof = Proof::new(plan, layout, &contention, options);
    proof.budget = Budget { allowed, spent: 0 };
    proof.all();
    proof.other_place();
    proof.report()
}

/// What was found so far.
struct Proof<'a> {
    plan: &'a Plan,
    layout: &'a Layout,
    contention: &'a Contention,
    options: Options<'a>,
    /// The root of collectives that have one.
    root: u32,
    /// The one with which an order of a case was found right.
    shown_root: Option<u32>,
    refutations: Vec<Refutation>,
    doubts: Vec<String>,
    notes: Vec<Note>,
    same_bits: Option<bool>,
    /// Some output takes an input more than once.
    repeats: bool,
    /// Whether all is right with buffers that lie the other way.
    elsewhere: Option<bool>,
    orders: Orders,
    cases: Vec<Case>,
    /// Steps walked.
    steps: u64,
    budget: Budget,
}

/// Cells of memory that all walks together may make and touch, and those that they have.
#[derive(Clone, Copy, Debug)]
struct Budget {
    allowed: u64,
    spent: u64,
}

impl Budget {
    /// Cells that may still be made and touched.
    const fn left(self) -> u64 {
        self.allowed.saturating_sub(self.spent)
    }

    /// Notes that a walk has made and touched so many more cells.
    const fn spend(&mut self, cells: u64) {
        self.spent = self.spent.saturating_add(cells);
    }
}

/// Launches of one case, of which all orders are walked.
#[derive(Clone, Copy, Debug)]
struct Trial<'a> {
    grid: &'a Grid,
    case: Case,
    /// As [`Setting::free`].
    free: &'a [bool],
    /// As [`Setting::user_acts`].
    user_acts: bool,
    /// Whether notes are taken of what the plan computes.
    notes_results: bool,
}

/// What several launches leave behind in a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Balance {
    /// More given than taken, in each launch; negative if less.
    surplus: i64,
    /// Taken in each launch.
    taken: u64,
    /// Tokens at the start.
    initial: i64,
}

impl<'a> Proof<'a> {
    fn new(
        plan: &'a Plan,
        layout: &'a Layout,
        contention: &'a Contention,
        options: Options<'a>,
    ) -> Self {
        Proof {
            plan,
            layout,
            contention,
            options,
            root: 0,
            shown_root: None,
            refutations: Vec::new(),
            doubts: Vec::new(),
            notes: strengthened(layout).into_iter().chain(overwritten(layout)).collect(),
            same_bits: None,
            repeats: false,
            elsewhere: None,
            orders: Orders::default(),
            cases: Vec::new(),
            steps: 0,
            budget: Budget { allowed: MOST_TOUCHES, spent: 0 },
        }
    }

    /// Looks at the sizes that stand for all others, until one shows a fault.
    fn all(&mut self) {
        let Cases { grids, doubts } = cases(self.layout, self.contention.any());
        self.doubts.extend(doubts);
        if let Some(&(rank, channel)) = self.contention.shared_ports.first() {
            let (_, channel) = self.layout.ranks[rank as usize].channel_id(channel);
            self.doubts.push(format!(
                "several blocks of rank {rank}, or threads of one, post to port channel {channel}, in an order that was not \
                 looked into; let one block post to each port channel, one operation after the other"
            ));
        }
        if let Some(&(rank, at)) = self.contention.early.first() {
            self.doubts.push(format!(
                "a thread may come to {}, for which blocks contend, while others of its block still wait at something before it, in \
                 an order that was not looked into; put a nop before it",
                site_of(&self.layout.ranks[rank as usize], rank, at)
            ));
        }
        for grid in &grids {
            self.grid(grid);
            if !self.refutations.is_empty() {
                if !grid.valid {
                    self.out_of_range();
                }
                break;
            }
        }
    }

    /// Looks at one size.
    fn grid(&mut self, grid: &Grid) {
        let first = self.cases.is_empty();
        let launches = if self.layout.double_scratch { 3 } else { 2 };
        let case = Case { sizes: grid.sizes, in_place: self.layout.in_place, launches };
        self.cases.push(case);
        // The user of a test is its author, who knows when to touch what.
        let test = self.plan.collective == Collective::Test;
        let free = vec![false; self.counters()];
        let trial = Trial { grid, case, free: &free, user_acts: !test, notes_results: first };
        let mut balances = self.all_orders(trial);
        if balances.is_none() && first {
            balances = self.other_root(trial);
        }
        let Some(balances) = balances else { return };
        self.balance(trial, &balances);
        if test && first {
            self.reuse(trial);
        }
    }

    /// A plan does not say which rank is the root: where it is not rank 0, some other one for which all is right.
    fn other_root(&mut self, trial: Trial<'_>) -> Option<Vec<Balance>> {
        let rooted = self.plan.collective.has_root();
        let wrong = |refutation: &Refutation| matches!(refutation.fault, Fault::Wrong { .. });
        if !rooted || self.refutations.is_empty() || !self.refutations.iter().all(wrong) {
            return None;
        }
        let known = std::mem::take(&mut self.refutations);
        for root in 1..self.layout.ranks.len() as u32 {
            self.root = root;
            let found = self.all_orders(trial);
            if found.is_some() {
                let text = format!("the root is rank {root}");
                self.notes.push(Note { about: About::Result, text });
                return found;
            }
            self.refutations.clear();
        }
        let text = "it is right with no rank as the root; what is shown is of rank 0 as the root"
            .to_owned();
        self.notes.push(Note { about: About::Result, text });
        (self.root, self.refutations) = (0, known);
        None
    }

    fn counters(&self) -> usize {
        let ranks = self.layout.ranks.iter();
        ranks.map(|rank| rank.channels.len() + rank.semaphores.len()).sum()
    }

    /// Walks all orders of a trial. Gives what is left in the counters if nothing went wrong.
    fn all_orders(&mut self, trial: Trial<'_>) -> Option<Vec<Balance>> {
        let Trial { grid, case, free, user_acts, notes_results } = trial;
        let lineage = OnceCell::new();
        let mut setting = Setting {
            layout: self.layout,
            grid,
            case,
            contention: self.contention,
            free,
            user_acts,
            promise: self.options.promise,
            root: self.root,
            budget: 0,
            log: false,
            lineage: None,
            record: false,
        };
        let mut search = Search::default();
        let (mut orders, mut steps) = (0u64, 0u64);
        let mut balances = None;
        loop {
            search.begin();
            setting.budget = self.budget.left();
            let Some(mut walk) = Walk::new(setting) else {
                self.doubts.push(
                    "there are too many pieces of memory, or blocks, to look at them all"
                        .to_owned(),
                );
                return None;
            };
            let end = walk.run(&mut search);
            self.budget.spend(walk.touched);
            if end != End::TooLong
                && self.layout.packets
                && lineage.get().is_none()
                && (!walk.found.is_empty() || walk.shadow.shared)
            {
                if let Some(known) = self.lineage(setting) {
                    if known.looped {
                        self.doubts.push(LOOPED.to_owned());
                    }
                    setting.lineage = Some(lineage.get_or_init(|| known));
                    continue;
                }
                // What it found may be no more than the want of a lineage.
                if walk.shadow.shared {
                    self.doubts.push(SHARED.to_owned());
                    return None;
                }
            }
            let bad = !walk.found.is_empty() || !walk.mismatches.is_empty() || end == End::Stuck;
            if bad && setting.lineage.is_some_and(Lineage::is_exhausted) {
                self.doubts.push(SHARED.to_owned());
                return None;
            }
            if bad {
                self.refute_again(setting, &mut search);
                return None;
            }
            if end == End::TooLong {
                self.doubts.push(format!(
                    "the plan touches memory too often to look at all of it: allowed {} pieces, over all sizes and orders",
                    self.budget.allowed
                ));
                return None;
            }
            if end == End::Complete {
                self.note_complete(&walk);
                if balances.is_none() {
                    if notes_results && self.options.results {
                        self.notes.extend(walk.results());
                    }
                    balances = Some(self.left(&walk, case.launches));
                }
            }
            orders += 1;
            steps += walk.steps;
            self.steps += walk.steps;
            if !search.next() {
                return balances;
            }
            if orders >= MOST_ORDERS || steps >= MOST_STEPS {
                self.doubts.push(self.contended_doubt(orders));
                return None;
            }
        }
    }

    /// Writes down who writes each packet, and from what, which is the same in every order. `None` if that is too much.
    fn lineage(&mut self, setting: Setting<'_>) -> Option<Lineage> {
        let budget = self.budget.left();
        let mut walk = Walk::new(Setting { record: true, budget, ..setting })?;
        let end = walk.run(&mut Search::default());
        self.budget.spend(walk.touched);
        if end == End::TooLong { None } else { walk.lineage() }
    }

    /// Notes what a walk to the end shows, of an order in which nothing went wrong.
    fn note_complete(&mut self, walk: &Walk<'_>) {
        if let Some([chunk, through]) = walk.shadow.detour() {
            self.doubts.push(format!(
                "chunk {chunk} of a block relies on bytes that come through chunk {through}, which does not have all of them \
                 where a call does not fill every chunk; move bytes between chunks of one number, or through scratch"
            ));
        }
        self.shown_root = Some(self.root);
        self.orders.note(walk);
        self.repeats |= walk.repeats;
        // Where slices are empty at some size, the others may be alike.
        if self.same_bits != Some(false) {
            self.same_bits = walk.same_bits();
        }
    }

    /// Walks an order in which something went wrong once more, with a log, to tell what.
    fn refute_again(&mut self, setting: Setting<'_>, search: &mut Search) {
        let order: Vec<(u32, Object)> = search.order().collect();
        search.begin();
        if let Some(mut walk) = Walk::new(Setting { log: true, ..setting }) {
            let end = walk.run(search);
            self.refute(&walk, end, &order);
        }
        if self.refutations.is_empty() {
            self.doubts.push("something goes wrong that cannot be told".to_owned());
        }
    }

    fn refute(&mut self, walk: &Walk<'_>, end: End, order: &[(u32, Object)]) {
        let mut found = walk.races(order);
        if end == End::Stuck {
            found.extend(walk.stuck(order));
        }
        // What is wrong where touches race may be right in another order.
        if found.is_empty() {
            found.extend(walk.mismatches.first().map(|mismatch| walk.wrong(mismatch, order)));
        }
        self.refutations.extend(found);
    }

    fn contended_doubt(&self, orders: u64) -> String {
        let Contention { usages, contended_barriers, .. } = self.contention;
        let Contention { contended_semaphores, ordered_semaphores, .. } = self.contention;
        let both = contended_semaphores.iter().zip(ordered_semaphores);
        let contended_semaphores: Vec<bool> = both.map(|(&one, &other)| one || other).collect();
        let contended_channels: Vec<bool> = usages.iter().map(|usage| usage.contended).collect();
        let names = [
            ("channels", &contended_channels),
            ("semaphores", &contended_semaphores),
            ("barriers", contended_barriers),
        ];
        let counted = names.iter().filter_map(|(name, contended)| {
            let count = contended.iter().filter(|&&contended| contended).count();
            (count > 0).then(|| format!("{count} {name}"))
        });
        let counted: Vec<String> = counted.collect();
        format!(
            "several blocks contend for {}: {orders} orders were walked and more are left; let one block signal, and \
             one wait, on each",
            counted.join(" and ")
        )
    }

    /// What is left in every counter, by launch.
    fn left(&self, walk: &Walk<'_>, launches: u32) -> Vec<Balance> {
        let launches = i64::from(launches);
        let channels = walk.inbound.iter().map(|inbound| {
            let (received, taken) = (inbound.received() as i64, inbound.expected);
            let surplus = (received - taken as i64) / launches;
            Balance { surplus, taken: taken / launches as u64, initial: 0 }
        });
        let initial = self.layout.ranks.iter().flat_map(|rank| &rank.semaphores);
        let semaphores = walk.semaphores.iter().zip(initial).map(|(semaphore, &initial)| {
            let surplus = semaphore.value.wrapping_sub(initial) / launches;
            Balance { surplus, taken: u64::from(surplus > 0), initial }
        });
        channels.chain(semaphores).collect()
    }

    /// Looks at where counters lead that do not balance: one that is given more than is taken holds nobody back in the
    /// end, and one that is given less runs dry.
    fn balance(&mut self, trial: Trial<'_>, balances: &[Balance]) {
        let (case, trial) = (trial.case, Trial { notes_results: false, ..trial });
        let dry = balances.iter().filter(|balance| balance.surplus < 0);
        let launches =
            dry.map(|balance| (balance.initial.max(0) / -balance.surplus).saturating_add(1));
        let launches = launches.max();
        if let Some(launches) = launches {
            let launches = u32::try_from(launches).unwrap_or(u32::MAX).max(case.launches);
            if launches > MOST_LAUNCHES {
                self.doubts.push(format!(
                    "a semaphore loses tokens: it runs dry in launch {launches}, allowed to look at {MOST_LAUNCHES}"
                ));
                return;
            }
            let free = vec![false; balances.len()];
            let dry = Trial { case: Case { launches, ..case }, free: &free, ..trial };
            if self.all_orders(dry).is_some() {
                self.doubts.push("a semaphore loses tokens, launch after launch".to_owned());
            }
            return;
        }
        let free: Vec<bool> =
            balances.iter().map(|balance| balance.surplus > 0 && balance.taken > 0).collect();
        if !free.contains(&true) {
            return;
        }
        let known = self.refutations.len();
        if self.all_orders(Trial { free: &free, ..trial }).is_some() {
            self.notes.push(Note {
                about: About::Reuse,
                text: "some counter gets more signals than waits take, launch after launch: waits on it wait for \
                       nothing in the end, and nothing relies on them"
                    .to_owned(),
            });
            return;
        }
        // By then the surplus covers all waits of a launch.
        let late = balances.iter().zip(&free).filter(|(_, free)| **free);
        let shift = late.map(|(balance, _)| balance.taken.div_ceil(balance.surplus as u64)).max();
        let shift = u32::try_from(shift.unwrap_or(0)).unwrap_or(u32::MAX);
        for refutation in &mut self.refutations[known..] {
            delay(refutation, shift);
        }
    }

    /// What the user of a test plan has to keep in mind between launches.
    fn reuse(&mut self, trial: Trial<'_>) {
        let known = self.refutations.len();
        let doubts = self.doubts.len();
        self.all_orders(Trial { user_acts: true, notes_results: false, ..trial });
        self.doubts.truncate(doubts);
        for refutation in self.refutations.split_off(known) {
            self.notes.push(Note { about: About::Reuse, text: refutation.fault.to_string() });
        }
    }

    /// Whether the plan also keeps its promise where its buffers lie the other way.
    fn other_place(&mut self) {
        let promises = !matches!(
            self.plan.collective,
            Collective::Test | Collective::SendRecv | Collective::Other(_)
        );
        if !self.refutations.is_empty() || self.steps > BRIEF {
            return;
        }
        let in_place = !self.layout.in_place;
        let layout = Layout { in_place, ..self.layout.clone() };
        let mut other = Proof::new(self.plan, &layout, self.contention, self.options);
        (other.root, other.budget) = (self.root, self.budget);
        other.all();
        self.budget = other.budget;
        let right = other.refutations.is_empty() && other.root == self.root;
        // Where nothing is promised there are still races, and ranks that wait for ever.
        if right && !(promises && other.doubts.is_empty()) {
            return;
        }
        self.elsewhere = Some(right);
        self.repeats |= other.repeats;
        let place = if in_place { "in place" } else { "out of place" };
        let text = if right {
            format!("also right {place}")
        } else {
            format!("not right {place}, and not written for it")
        };
        self.notes.push(Note { about: About::Result, text });
    }

    /// Makes doubts of the refutations: they show at a size that the plan does not take, and the sizes that it stands
    /// for may be free of them.
    fn out_of_range(&mut self) {
        for refutation in self.refutations.drain(..) {
            let sizes = refutation.case.sizes;
            self.doubts.push(format!(
                "with {} bytes in and {} out, which the plan's size limits exclude, and so perhaps with allowed sizes \
                 too: {}",
                sizes.input, sizes.output, refutation.fault
            ));
        }
    }

    fn report(mut self) -> Report {
        let mut notes = self.notes;
        notes.extend(portable::notes(self.plan));
        let mut all = self.layout.ranks.iter().flat_map(|rank| &rank.instructions);
        if all.any(reduces_in_hardware) {
            let text = "reductions over switch channels combine in rank order in software; hardware has its own order";
            notes.push(Note { about: About::Bits, text: text.to_owned() });
        }
        // Even in one order, ranks may swap the two values that are added first: the bits are the same.
        let order = self.orders.told(self.layout);
        let in_one_order = matches!(order, Some(SumOrder::Ranks | SumOrder::Fixed(_)));
        let same_bits = self.same_bits.map(|same| same || in_one_order);
        if same_bits == Some(false) {
            let text = "ranks combine values in different orders: floating-point results may differ in their last bits";
            notes.push(Note { about: About::Bits, text: text.to_owned() });
        }
        if self.repeats {
            let text = "some input is taken more than once: right with min and max alone, not with another operator in their place";
            notes.push(Note { about: About::Result, text: text.to_owned() });
        }
        self.doubts.dedup();
        let verdict = match (self.refutations.is_empty(), self.doubts.is_empty()) {
            (false, _) => Verdict::Refuted(self.refutations),
            (true, false) => Verdict::NotProven(self.doubts),
            (true, true) => Verdict::Proven,
        };
        let same_bits = same_bits.filter(|_| verdict == Verdict::Proven);
        let order = order.filter(|_| verdict == Verdict::Proven);
        let refuted = matches!(verdict, Verdict::Refuted(_));
        let root = self.shown_root.filter(|_| !refuted && self.plan.collective.has_root());
        let (repeats, elsewhere) = (self.repeats, self.elsewhere);
        Report { verdict, same_bits, order, repeats, elsewhere, root, notes, cases: self.cases }
    }
}

/// Moves a counterexample to a later launch.
fn delay(refutation: &mut Refutation, launches: u32) {
    let later = |launch: &mut u32| *launch = launch.saturating_add(launches);
    let actor = |actor: &mut Actor| match actor {
        Actor::Threads(Moment { launch, .. }) | Actor::Proxy(Moment { launch, .. }) => {
            later(launch)
        }
        Actor::User { launch, .. } => later(launch),
    };
    later(&mut refutation.case.launches);
    match &mut refutation.fault {
        Fault::Race { first, second } => {
            actor(&mut first.actor);
            actor(&mut second.actor);
        }
        Fault::Deadlock { launch, .. } | Fault::Wrong { launch, .. } => later(launch),
    }
    if let Schedule::Held(holds) = &mut refutation.schedule {
        for hold in holds {
            actor(&mut hold.held);
            actor(&mut hold.until);
        }
    }
}
