//! `cargo xtask bench-hosts`: allreduce over two hosts, Antiphon beside Open MPI, and the numbers of the wire below it.
//!
//! The hosts are [network namespaces](network) of this machine, each with its share of the cores and two ranks. [`subjects`] says how a group is started
//! there; what runs is the loop of `bench-peers`, whose barrier is in memory that all ranks share, so that neither subject's
//! own barrier is in the times. After each group the devices' counters must say that the data went between the hosts over the
//! device, and not over the loopback within one. [`wires`] adds what the examples of the wire, the FIFO and the bootstrap say.

pub mod network;
pub mod options;
pub mod subjects;
pub mod wires;

use std::collections::BTreeMap;

use super::antiphon::Load;
use super::control::Control;
use super::job::{self, Collective};
use super::launch::{self, Ending};
use super::peers::Group;
use super::probe::Distance;
use super::report::{self, Column};
use super::results::{self, Key, Results, Times};
use super::{machine, probe};
use crate::{Error, Result, section};
use network::{HOSTS, Network, Traffic};
use options::Options;
use subjects::Ready;

/// Ranks of a group, half of them on each host.
const RANKS: usize = 4;

/// The first port that ranks of Antiphon meet at; each group has the next.
const PORT: u16 = 29_500;

/// What may go over the loopback of a host besides data: launchers talk with their ranks there.
const CHATTER: u64 = 4 << 20;

/// Measures what `options` ask for, prints the tables, and writes them where wanted.
pub fn run(options: &Options) -> Result<()> {
    let machine = machine::describe();
    let subjects = prepare(options)?;
    let network = match Network::build() {
        Ok(network) => network,
        Err(reason) => {
            println!("SKIP bench-hosts: {reason}");
            return Ok(());
        }
    };
    let facts = [
        format!(
            "two network namespaces joined by a veth pair, MTU {}; two ranks in each, on cores of its own ({})",
            network.mtu()?,
            network.cores().join(" and ")
        ),
        format!(
            "TCP congestion control: {}",
            std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
                .unwrap_or_default()
                .trim()
        ),
    ];
    let mut bench = Bench {
        options,
        network: &network,
        results: Results::default(),
        shares: BTreeMap::new(),
        lines: Vec::new(),
        port: PORT,
    };
    for round in 1..=options.rounds() {
        for subject in &subjects {
            bench.group(round, subject)?;
        }
    }
    let facts: Vec<String> = machine.into_iter().chain(facts).collect();
    let mut text = bench.section(&facts, &subjects);
    drop(network);
    if !options.no_wires {
        text += &wires::section(options.wire_rounds);
    }
    println!("\n{text}");
    match &options.write {
        Some(path) => section::write(path, "bench-hosts", &text),
        None => Ok(()),
    }
}

/// Builds the wanted subjects; those that cannot be had are skipped aloud.
fn prepare(options: &Options) -> Result<Vec<Ready>> {
    let known = subjects::all();
    let names: Vec<&str> = known.iter().map(|subject| subject.name()).collect();
    if let Some(name) = options.subjects.iter().find(|name| !names.contains(&name.as_str())) {
        let allowed = names.join(", ");
        return Err(Error::message(format!("cannot measure `{name}`: allowed {allowed}")));
    }
    let mut ready = Vec::new();
    for subject in known {
        if options.subjects.iter().any(|name| name == subject.name()) {
            match subject.prepare(!options.no_install) {
                Ok(subject) => ready.push(subject),
                Err(error) => println!("SKIP subject={}: {error}", subject.name()),
            }
        }
    }
    Ok(ready)
}

struct Bench<'a> {
    options: &'a Options,
    network: &'a Network,
    results: Results,
    /// Bytes that crossed the device for each byte of the calls, of every group.
    shares: BTreeMap<&'static str, Vec<f64>>,
    /// What a cache line took before and after every group, in nanoseconds.
    lines: Vec<u64>,
    port: u16,
}

impl Bench<'_> {
    fn group(&mut self, round: usize, subject: &Ready) -> Result<()> {
        let name = subject.subject.name();
        let options = self.options;
        let load = Load {
            collective: Collective::Allreduce,
            sizes: options.sizes(),
            places: options.places.clone(),
            iterations: options.iterations(),
            iterations_large: options.iterations_large(),
            budget: options.budget(),
            yields: RANKS > machine::cores(),
        };
        let control = Control::create(RANKS, load.iterations.max(load.iterations_large))?;
        let path = control.path();
        let rendezvous = self.network.folder();
        let group = Group { ranks: RANKS, load: &load, control: &path, rendezvous };
        let commands = subject.commands(self.network, &group, self.port)?;
        self.port += 1;
        self.lines.push(probe::line_ns());
        let before = self.network.traffic()?;
        let mut rows = Vec::new();
        let ending = launch::run(commands, &control, super::limit(&load), &mut |line| {
            if let Some(row) = results::parse(line) {
                println!("round={round} subject={name} {line}");
                rows.push(row);
            }
        });
        let after = self.network.traffic()?;
        self.lines.push(probe::line_ns());
        match ending {
            Ending::Done => {}
            Ending::OutOfTime(limit) => {
                println!(
                    "SKIP round={round} subject={name}: still running after {} s",
                    limit.as_secs()
                );
                return Ok(());
            }
            Ending::Failed(reason) => {
                println!("SKIP round={round} subject={name}: {reason}");
                return Ok(());
            }
        }
        let share = went_across(&rows, before, after)
            .map_err(|fault| Error::message(format!("cannot use the times of {name}: {fault}")))?;
        println!("round={round} subject={name} TRAFFIC across_per_byte={share:.2}");
        self.shares.entry(name).or_default().push(share);
        for (key, times) in rows {
            // One distance for all: what is between hosts dwarfs what is between cores.
            self.results.add(name, key, times, [0; 2]);
        }
        Ok(())
    }

    fn section(&self, facts: &[String], subjects: &[Ready]) -> String {
        let options = self.options;
        let mut text = format!("## Over two hosts\n\nMade by `{}`.\n\n", options.command_line());
        for fact in facts {
            text += &format!("- {fact}\n");
        }
        for Ready { subject, title, .. } in subjects {
            let shares = self.shares.get(subject.name()).map(Vec::as_slice).unwrap_or_default();
            let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
            text += &format!(
                "- {}: {title}; {mean:.2} bytes from host to host, each way, for a byte of a call\n",
                subject.name()
            );
        }
        if let (Some(least), Some(most)) = (self.lines.iter().min(), self.lines.iter().max()) {
            text += &format!("- a cache line between two cores: {least} to {most} ns\n");
        }
        text += &format!(
            "\nTimes in µs: p50 / p99 of the slowest of {RANKS} ranks on {} hosts in each iteration, in parentheses the p50 \
             with the reading of the output inside the timing; medians over rounds ({}), subjects in turn. n counts the \
             iterations of a cell's rounds together, the fewest of any cell: {} a round were wanted up to 1 MiB and {} \
             above, fewer where a row would have taken more than {} s. Sizes are bytes of f32, the whole buffer. All subjects start each iteration from one barrier in \
             shared memory.\n\n",
            HOSTS.len(),
            options.rounds(),
            options.iterations(),
            options.iterations_large(),
            options.budget().as_secs_f64(),
        );
        let column = |ready: &Ready| Column {
            name: ready.subject.name().into(),
            peer: ready.subject.is_peer(),
        };
        let columns: Vec<Column> = subjects.iter().map(column).collect();
        text + &report::tables(&self.results, &columns, Distance::Near)
    }
}

/// Bytes that went from host to host, each way, for a byte of the calls. Less than one is no allreduce over hosts: each
/// must learn a whole buffer's worth from the other. What goes over the loopback went past shared memory.
fn went_across(
    rows: &[(Key, Times)],
    before: [Traffic; 2],
    after: [Traffic; 2],
) -> Result<f64, String> {
    let calls = rows
        .iter()
        .map(|(key, times)| ((times.iterations + job::warmup(key.bytes) + 1) * key.bytes) as u64);
    let payload: u64 = calls.sum();
    let mut least = f64::INFINITY;
    for (host, (before, after)) in HOSTS.iter().zip(before.into_iter().zip(after)) {
        let across = after.across - before.across;
        let within = after.within - before.within;
        if across < payload {
            return Err(format!(
                "{host} sent {across} bytes to the other host, at least {payload} must be"
            ));
        }
        if within > CHATTER + payload / 8 {
            return Err(format!(
                "{host} sent {within} bytes over its loopback beside calls of {payload} bytes: not over shared memory"
            ));
        }
        least = least.min(across as f64 / payload.max(1) as f64);
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::super::job::Place;
    use super::*;

    #[test]
    fn data_must_go_over_the_device_and_not_over_the_loopback() {
        let key = Key {
            ranks: RANKS,
            collective: Collective::Allreduce,
            place: Place::Out,
            bytes: 16 << 20,
        };
        let times = Times { iterations: 4, p50: 1, p99: 1, read_p50: 1, read_p99: 1 };
        let none = [Traffic::default(); 2];
        let sent = |across, within| [Traffic { across, within }; 2];
        let check = |after| went_across(&[(key, times)], none, after);
        let payload = 160 << 20;
        assert_eq!(check(sent(payload * 2, 0)), Ok(2.0));
        assert!(check(sent(payload - 1, 0)).is_err_and(|fault| fault.contains("other host")));
        assert!(check(sent(payload, payload)).is_err_and(|fault| fault.contains("loopback")));
    }
}
