//! Steps as calls of the device library: which function, and with what.
//!
//! Generated programs make these calls with the numbers in the text; the [interpreting kernel](crate::interpret) has a call of
//! each function, and reads the numbers from its table.

use crate::repeat::Node;
use crate::skeleton::{Code, Row};
use antiphon_plan::ReduceOp;

/// The most sides of a move that the device library has code for; longer lists are walked.
pub(crate) const WIDEST: usize = 8;

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The function, with the arguments of its template.
    pub function: String,
    /// What it is given.
    pub arguments: Arguments,
    /// Whether it is given the window of its pipeline, too.
    pub window: bool,
}

/// What a function is given beside the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// Not even the launch.
    None,
    /// Its operands.
    Operands,
    /// Its operands, and two counts.
    Counts(u32, u32),
    /// Its operands, and a number of bytes.
    Bytes(u64),
}

impl Call {
    fn new(function: String, arguments: Arguments, window: bool) -> Self {
        Call { function, arguments, window }
    }

    /// The call of a step. `op` says which operator stands for a move's own; `unit` is what slices of runtime blocks are
    /// whole multiples of, in bytes.
    pub fn of(code: &Code, op: &dyn Fn(ReduceOp) -> ReduceOp, unit: u64) -> Self {
        match code {
            Code::Move { sources, destinations, op: own, multicast } => {
                let (reads, writes) = (sources.len(), destinations.len());
                let (op, packets) = (operator(reads, op(*own)), packets(code));
                let name = match (packets, multicast) {
                    (true, _) => "move_packets",
                    (false, true) => "move_multicast",
                    (false, false) => "move_bytes",
                };
                if reads > WIDEST || writes > WIDEST {
                    let arguments = Arguments::Counts(reads as u32, writes as u32);
                    return Self::new(format!("{name}_wide<{op}>"), arguments, true);
                }
                let (from, to) = (mask(sources), mask(destinations));
                let kinds = if packets { format!(", {from}, {to}") } else { String::new() };
                let function = format!("{name}<{op}, {reads}, {writes}{kinds}>");
                Self::new(function, Arguments::Operands, true)
            }
            Code::MoveBlock => Self::new("move_block".to_owned(), Arguments::Bytes(unit), false),
            Code::Row { row, count, first } => {
                let function = match row {
                    Row::Signals { release } => format!("signals<{release}>"),
                    Row::PortSignals => "port_signals".to_owned(),
                    Row::Waits { acquire } => format!("waits<{acquire}>"),
                    Row::Acquires => "acquires".to_owned(),
                    Row::Releases => "releases".to_owned(),
                    Row::Posts => "posts".to_owned(),
                    Row::Flushes => "flushes".to_owned(),
                };
                Self::new(function, Arguments::Counts(*count, *first), *row == Row::Posts)
            }
            Code::Barrier => Self::new("barrier".to_owned(), Arguments::Operands, false),
            Code::Sync => Self::new("AP_SYNC".to_owned(), Arguments::None, false),
        }
    }

    /// What a body does that is run `times` times, where the device library has a function for all of them together: moves between
    /// packets and raw areas, of one source and one destination.
    pub fn each(body: &[Node], times: u32) -> Option<Self> {
        let [Node::Step(Code::Move { sources, destinations, .. }, words)] = body else {
            return None;
        };
        let ([from], [to]) = (&sources[..], &destinations[..]) else { return None };
        let function = format!("move_packets_each<{}, {}>", u32::from(*from), u32::from(*to));
        // Packets that become packets may come of each other, by way of other ranks.
        let arguments = Arguments::Counts(times, *words);
        (from != to).then(|| Self::new(function, arguments, true))
    }

    /// The same by the interpreting kernel's function that serves any number of sides; of what is no move, as
    /// [`of`](Self::of).
    pub fn counted(code: &Code, op: &dyn Fn(ReduceOp) -> ReduceOp, unit: u64) -> Self {
        let Code::Move { sources, destinations, op: own, multicast } = code else {
            return Self::of(code, op, unit);
        };
        let (reads, writes) = (sources.len(), destinations.len());
        let name = match (packets(code), multicast) {
            (true, _) => "move_packets_wide",
            (false, true) if reads <= WIDEST && writes <= WIDEST => "move_multicast_counted",
            (false, _) => "move_bytes_counted",
        };
        let arguments = Arguments::Counts(reads as u32, writes as u32);
        Self::new(format!("{name}<{}>", operator(reads, op(*own))), arguments, true)
    }

    /// Its numbers, as the text has them where they are known.
    pub fn numbers(&self) -> Vec<String> {
        match self.arguments {
            Arguments::None | Arguments::Operands => Vec::new(),
            Arguments::Counts(one, two) => vec![one.to_string(), two.to_string()],
            Arguments::Bytes(bytes) => vec![format!("{bytes}ull")],
        }
    }

    /// The expression, with operands at `o`, `numbers`, and window `w`.
    pub fn text(&self, o: &str, numbers: &[String], w: &str) -> String {
        let Call { function, arguments, window } = self;
        if *arguments == Arguments::None {
            return format!("{function}()");
        }
        let window = window.then(|| w.to_owned());
        let all: Vec<String> = ["l".to_owned(), o.to_owned()]
            .into_iter()
            .chain(numbers.iter().cloned())
            .chain(window)
            .collect();
        format!("{function}({})", all.join(", "))
    }
}

fn packets(code: &Code) -> bool {
    matches!(code, Code::Move { sources, destinations, .. }
        if sources.contains(&true) || destinations.contains(&true))
}

fn operator(reads: usize, op: ReduceOp) -> &'static str {
    match op {
        // Of a single source nothing is combined.
        _ if reads < 2 => "Sum",
        // Divided when the launch ends.
        ReduceOp::Sum | ReduceOp::Avg => "Sum",
        ReduceOp::Prod => "Prod",
        ReduceOp::Min => "Min",
        ReduceOp::Max => "Max",
    }
}

/// One bit for each side that is packets.
fn mask(sides: &[bool]) -> u32 {
    sides.iter().enumerate().map(|(at, &packets)| u32::from(packets) << at).sum()
}
