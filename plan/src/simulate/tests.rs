//! Small plans on small topologies, and what holds of all built-in algorithms.

use super::*;
use crate::algorithms::{Algorithm, Shape as Wanted};
use crate::builder::{Block as Program, ProgramBuilder};
use crate::interpret::BlockedOn;
use crate::model::{Buffer, ChannelTable, ChannelType, Collective, Op, OpKind, Plan};
use crate::samples::{block, connect, data, local, plan, remote, sync};
use std::fmt::Write;

fn sizes(layout: &Layout, bytes: u64) -> CallSizes {
    let ranks = layout.ranks.len() as u64;
    let bytes = bytes.next_multiple_of(4 * ranks);
    let (input, output) = match layout.collective {
        Collective::AllGather => (bytes / ranks, bytes),
        Collective::ReduceScatter => (bytes, bytes / ranks),
        _ => (bytes, bytes),
    };
    CallSizes { input, output, element: 4, strict: false }
}

fn layout(algorithm: Algorithm, ranks: usize) -> Layout {
    Layout::new(&algorithm.plan(Wanted::new(ranks)).unwrap()).unwrap()
}

/// Round numbers: 1 GB/s everywhere, a microsecond for everything.
fn plain() -> Topology {
    let one = 1.0;
    Topology {
        name: "plain".to_owned(),
        source: String::new(),
        nodes: 2,
        ranks_per_node: 4,
        device: Device {
            name: "device".to_owned(),
            memory_gbs: 1000.0,
            shared_memory: false,
            cache_mb: 0.0,
            cores: None,
            block: BlockSpeed { copy_gbs: 1000.0, combine_gbs: 1000.0, packet_gbs: 1000.0 },
            overhead_us: Overheads {
                launch: 0.0,
                data: one,
                packet: one,
                reference: 0.0,
                signal: one,
                release: 0.0,
                wait: one,
                sync: 0.0,
                barrier: one,
                semaphore: one,
                post: one,
                flush: one,
                proxy: one,
                turn: 0.0,
                switch: 0.0,
            },
        },
        inside: Inside {
            shape: Shape::Switch,
            gbs: 1.0,
            latency_us: 10.0,
            multicast: false,
            coherent: false,
        },
        between: Some(Between { nics_per_node: 2, gbs: 0.5, latency_us: 100.0 }),
    }
}

/// A plan over chunks of 1000 bytes.
fn built(ranks: usize, body: impl FnOnce(&ProgramBuilder, &[Program<'_>])) -> Layout {
    let program = ProgramBuilder::new("small", Collective::Test, ranks).chunk_counts(4, 4);
    let blocks: Vec<_> = (0..ranks).map(|rank| program.block(rank)).collect();
    body(&program, &blocks);
    drop(blocks);
    Layout::new(&program.build().unwrap()).unwrap()
}

fn run(layout: &Layout, topology: &Topology) -> Timeline {
    let sizes = CallSizes { input: 4000, output: 4000, element: 4, strict: false };
    simulate(layout, sizes, topology).unwrap()
}

/// The timeline as text, in microseconds.
fn text(timeline: &Timeline) -> String {
    let mut text = String::new();
    for (at, span) in timeline.spans.iter().enumerate() {
        let [start, ready, end] = [span.start, span.ready, span.end].map(|time| time * 1e6);
        let mark = if timeline.critical.contains(&(at as u32)) { '*' } else { ' ' };
        let _ = write!(text, "{mark}{at:>3} {start:>8.3} {ready:>8.3} {end:>8.3}");
        let _ = write!(text, " {:>6} B  {}", span.bytes, span.site);
        if span.iteration > 0 {
            let _ = write!(text, " iteration {}", span.iteration);
        }
        for arrow in timeline.arrows.iter().filter(|arrow| arrow.to as usize == at) {
            let _ = write!(text, " <- {}", arrow.from);
        }
        text.push('\n');
    }
    for link in &timeline.links {
        let busy = link.busy * 1e6;
        let _ = writeln!(text, "{}: {} B, busy {busy:.3} us", link.name, link.bytes);
    }
    let _ = write!(text, "end {:.3} us", timeline.end * 1e6);
    text
}

#[test]
fn a_put_a_signal_and_a_wait() {
    let layout = built(2, |p, tb| {
        let channel = [p.channel(0, 1)];
        tb[0].put(p.input(0).chunk(0), p.output(1).chunk(0));
        tb[0].signal(&channel);
        tb[1].wait(&channel);
        tb[1].copy(p.output(1).chunk(0), p.output(1).chunk(1));
    });
    insta::assert_snapshot!(text(&run(&layout, &plain())));
}

#[test]
fn a_pipeline_has_a_span_for_each_window() {
    let layout = built(2, |p, tb| {
        let channel = [p.channel(0, 1)];
        p.pipeline(400, 1, || {
            tb[0].put(p.input(0).chunk(0), p.output(1).chunk(0));
            tb[0].signal(&channel);
            tb[1].wait(&channel);
        });
    });
    insta::assert_snapshot!(text(&run(&layout, &plain())));
}

#[test]
fn packets_semaphores_and_barriers() {
    let layout = built(2, |p, tb| {
        let scratch = p.scratch(1, 1);
        let second = p.block(1);
        let semaphore = [p.semaphore(1, 0)];
        tb[0].put_packets(p.input(0).chunk(0), scratch.chunk(0));
        tb[1].unpack_packets(scratch.chunk(0), p.output(1).chunk(0));
        tb[1].release(&semaphore);
        second.acquire(&semaphore);
        second.copy(p.output(1).chunk(0), p.output(1).chunk(1));
        p.barrier(&[tb[1], second]);
        tb[1].copy(p.output(1).chunk(1), p.output(1).chunk(2));
    });
    insta::assert_snapshot!(text(&run(&layout, &plain())));
}

#[test]
fn two_transfers_over_one_link_take_as_long_as_their_sum() {
    // Rank 0 to ranks 1 and 2: the way out of rank 0 is shared, at 1 GB/s.
    let fan = |both: bool| {
        let layout = built(3, |p, tb| {
            tb[0].put(p.input(0).chunk(0), p.output(1).chunk(0));
            if both {
                p.block(0).put(p.input(0).chunk(1), p.output(2).chunk(1));
            }
            tb[1].copy(p.input(1).chunk(3), p.output(1).chunk(3));
        });
        run(&layout, &plain())
    };
    // A microsecond is the overhead.
    assert!((fan(false).end - 2e-6).abs() < 1e-15, "{}", text(&fan(false)));
    assert!((fan(true).end - 3e-6).abs() < 1e-15, "{}", text(&fan(true)));
}

#[test]
fn ranks_of_different_nodes_share_network_cards() {
    let mut topology = plain();
    let layout = built(6, |p, tb| {
        tb[0].put(p.input(0).chunk(0), p.output(4).chunk(0));
        tb[1].put(p.input(1).chunk(0), p.output(5).chunk(0));
    });
    // Ranks 0 and 1 have one card of 0.5 GB/s.
    let shared = run(&layout, &topology);
    assert!((shared.end - 5e-6).abs() < 1e-15, "{}", text(&shared));
    let names: Vec<_> = shared.links.iter().map(|link| &link.name[..]).collect();
    assert!(names.contains(&"node 0 nic 0 out") && names.contains(&"node 1 nic 0 in"), "{names:?}");
    topology.between = topology.between.map(|between| Between { nics_per_node: 4, ..between });
    assert!((run(&layout, &topology).end - 3e-6).abs() < 1e-15);
}

#[test]
fn a_switch_with_multicast_sends_once() {
    let layout = built(4, |p, tb| {
        let switch = p.switch(&[0, 1, 2, 3], Buffer::Output);
        tb[0].switch_store(p.input(0).chunk(0), &switch, 0);
    });
    let mut topology = plain();
    let bytes = |timeline: &Timeline, name: &str| {
        timeline.links.iter().find(|link| link.name == name).map(|link| link.bytes)
    };
    let unicast = run(&layout, &topology);
    assert_eq!(bytes(&unicast, "rank 0 out"), Some(3000));
    topology.inside.multicast = true;
    let multicast = run(&layout, &topology);
    assert_eq!(bytes(&multicast, "rank 0 out"), Some(1000));
    assert_eq!(bytes(&multicast, "rank 3 in"), Some(1000));
    assert!(multicast.end < unicast.end);
}

#[test]
fn coherent_caches_fetch_what_others_wrote() {
    let layout = built(2, |p, tb| {
        let scratch = p.scratch(1, 1);
        tb[0].put_packets(p.input(0).chunk(0), scratch.chunk(0));
        tb[1].unpack_packets(scratch.chunk(0), p.output(1).chunk(0));
    });
    let mut topology = plain();
    let bytes = |topology: &Topology| {
        let links = run(&layout, topology).links;
        links.iter().find(|link| link.name == "rank 1 in").map(|link| link.bytes)
    };
    assert_eq!(bytes(&topology), Some(2016));
    topology.inside.coherent = true;
    assert_eq!(bytes(&topology), Some(4032));
}

#[test]
fn what_fits_the_caches_does_not_cross_the_memory() {
    let layout = built(2, |p, tb| tb[0].put(p.input(0).chunk(0), p.output(1).chunk(0)));
    let mut topology = plain();
    topology.device.memory_gbs = 0.001;
    let slow = run(&layout, &topology);
    // Two ranks with 8000 bytes each.
    topology.device.cache_mb = 0.0159;
    assert_eq!(run(&layout, &topology), slow);
    topology.device.cache_mb = 0.016;
    assert!((run(&layout, &topology).end - 2e-6).abs() < 1e-15);
}

#[test]
fn blocks_take_turns_on_few_cores() {
    let layout = built(4, |p, tb| {
        for (rank, tb) in tb.iter().enumerate() {
            tb.copy(p.input(rank).chunk(0), p.output(rank).chunk(0));
        }
    });
    let mut topology = plain();
    let alone = run(&layout, &topology).end;
    topology.device.cores = Some(2);
    let half = run(&layout, &topology).end;
    topology.device.cores = Some(1);
    let one = run(&layout, &topology).end;
    assert!((half - 2.0 * alone).abs() < 1e-9 && (one - 4.0 * alone).abs() < 1e-9);
}

#[test]
fn a_deadlock_names_who_waits() {
    let layout = built(2, |p, tb| {
        let channel = [p.channel(0, 1)];
        tb[0].signal(&channel);
        tb[1].wait(&channel);
        tb[1].signal(&channel);
        tb[0].wait(&channel);
    });
    let mut broken = layout.clone();
    // Nobody's channel: the signal goes nowhere.
    broken.ranks[1].channels[0].paired = None;
    let sizes = CallSizes { input: 4000, output: 4000, element: 4, strict: false };
    let error = simulate(&broken, sizes, &plain()).unwrap_err();
    let SimulateError::Stuck(stuck) = error else { panic!("saw {error}") };
    let on = BlockedOn::Signal {
        channel_type: ChannelType::Memory,
        channel: 0,
        peer: 1,
        received: 0,
        needed: 1,
    };
    assert_eq!(stuck.blocked.len(), 1);
    assert_eq!((stuck.blocked[0].site.rank, stuck.blocked[0].on), (0, on));
}

#[test]
fn all_algorithms_obey_the_links_and_repeat_to_the_bit() {
    for (algorithm, name) in Algorithm::ALL.into_iter().zip(TOPOLOGIES.into_iter().cycle()) {
        let layout = layout(algorithm, 6);
        let topology = Topology::built_in(name).unwrap();
        let mut before = 0.0;
        for bytes in [4, 1000, 100_000, 3_000_000, 100_000_000] {
            let run = || simulate(&layout, sizes(&layout, bytes), &topology).unwrap();
            let timeline = run();
            assert_eq!(timeline, run(), "{algorithm} on {name}");
            assert!(timeline.end > before, "{algorithm} on {name}: {bytes} B");
            before = timeline.end;
            for link in &timeline.links {
                let least = link.bytes as f64 / link.bandwidth;
                assert!(timeline.end >= least, "{algorithm} on {name}: {}", link.name);
                assert!(link.busy <= timeline.end && link.busy > least * 0.999_999);
            }
            let path: Vec<_> =
                timeline.critical.iter().map(|&at| timeline.spans[at as usize]).collect();
            assert_eq!(path.last().map(|span| span.end), Some(timeline.end));
            assert!(path.windows(2).all(|two| two[0].end <= two[1].end));
        }
    }
}

#[test]
fn faster_links_make_no_algorithm_slower() {
    for algorithm in Algorithm::ALL {
        let layout = layout(algorithm, 8);
        for bytes in [1000, 1_000_000, 50_000_000] {
            let time = |factor: f64| {
                let mut topology = Topology::built_in("mi300x8").unwrap();
                topology.inside.gbs *= factor;
                simulate(&layout, sizes(&layout, bytes), &topology).unwrap().end
            };
            let times = [0.1, 0.5, 1.0, 4.0].map(time);
            assert!(times.is_sorted_by(|a, b| *b <= a * (1.0 + 1e-12)), "{algorithm}: {times:?}");
        }
    }
}

#[test]
fn over_two_nodes_packets_win_when_small_and_zero_copy_when_large() {
    use crate::algorithms::Algorithm::*;
    let pairs = [
        (AllReduceHierarchicalPackets, AllReduceHierarchicalZeroCopy),
        (AllGatherHierarchicalPackets, AllGatherHierarchicalZeroCopy),
        (ReduceScatterHierarchicalPackets, ReduceScatterHierarchicalZeroCopy),
        (AllToAllHierarchicalPackets, AllToAllHierarchicalZeroCopy),
    ];
    for name in TOPOLOGIES {
        let topology = Topology::built_in(&format!("{name}-2")).unwrap();
        let times = |algorithm: Algorithm| {
            let plan = algorithm.plan(Wanted { nodes: 2, ..Wanted::new(16) }).unwrap();
            let layout = Layout::new(&plan).unwrap();
            [1 << 10, 256 << 20]
                .map(|bytes| simulate(&layout, sizes(&layout, bytes), &topology).unwrap().end)
        };
        for (small, large) in pairs {
            let ([small_first, small_last], [large_first, large_last]) =
                (times(small), times(large));
            assert!(
                small_first < large_first,
                "{name}: 1 KiB, {small} {small_first}, {large} {large_first}"
            );
            assert!(
                large_last < small_last,
                "{name}: 256 MiB, {small} {small_last}, {large} {large_last}"
            );
        }
    }
}

#[test]
fn port_channels_go_through_their_proxies() {
    let layout = Layout::new(&built_port()).unwrap();
    insta::assert_snapshot!(text(&run(&layout, &plain())));
}

/// Rank 0 puts a chunk through a port channel, signals and flushes; rank 1 waits.
fn built_port() -> Plan {
    let mut plan = plan(Collective::Test, 2, [4, 4, 0]);
    connect(&mut plan);
    let port = |mut op: Op| {
        op.channel_type = ChannelType::Port;
        op
    };
    let mut put =
        data(OpKind::Put, &[local(Buffer::Input, 0, 1)], &[remote(0, 1, Buffer::Output, 0, 1)]);
    put.channel_ids = vec![0];
    let signal = || port(sync(OpKind::Signal, &[0]));
    block(&mut plan, 0, vec![port(put), signal(), port(sync(OpKind::Flush, &[0]))]);
    block(&mut plan, 1, vec![port(sync(OpKind::Wait, &[0]))]);
    for (rank, gpu) in plan.gpus.iter_mut().enumerate() {
        let channel_type = ChannelType::Port;
        let connected_to = vec![1 - rank as u64];
        gpu.channels.push(ChannelTable::Peers { channel_type, connected_to });
        for buffer in &mut gpu.remote_buffers {
            buffer.access.push(channel_type);
        }
        let tb = &mut gpu.threadblocks[0];
        let remotes = tb.remote_buffer_refs[0].1.clone();
        tb.channels.push((channel_type, vec![0]));
        tb.remote_buffer_refs.push((channel_type, remotes));
    }
    plan
}

#[test]
fn topologies_are_read_and_refused_with_a_reason() {
    for name in ["h100x8", "a100x8", "mi300x8", "h100x8-2", "h100x8-16", "mi300x8-4"] {
        let topology = Topology::built_in(name).unwrap();
        assert_eq!(Topology::parse(&topology.to_text()), Ok(topology), "{name}");
    }
    for name in ["h100", "h100x8-0", "h100x8-", "h100x8-2000", "host"] {
        let message = Topology::built_in(name).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("h100x8-2"), "{message}");
    }
    let text = plain().to_text();
    let cases = [
        ("\"nodes\": 2", "\"nodes\": 0", "nodes 0"),
        ("\"ranks_per_node\": 4", "\"ranks_per_node\": 4000000000", "2^24"),
        ("\"gbs\": 0.5", "\"gbs\": 0", "between.gbs 0"),
        ("\"memory_gbs\": 1000.0", "\"memory_gbs\": -1", "device.memory_gbs -1"),
        ("\"latency_us\": 10.0", "\"latency_us\": -10", "inside.latency_us -10"),
        ("\"name\": \"plain\"", "\"nome\": \"plain\"", "unknown field `nome`"),
        ("\"shape\": \"switch\"", "\"shape\": \"ring\"", "switch"),
        ("\"between\"", "\"beneath\"", "line"),
    ];
    for (from, to, hint) in cases {
        assert!(text.contains(from), "{from} in {text}");
        let message = Topology::parse(&text.replace(from, to)).unwrap_err().to_string();
        assert!(message.contains(hint), "`{to}` says {message}");
    }
    let apart = Topology { between: None, ..plain() };
    assert!(apart.validate().unwrap_err().to_string().contains("`between`"));
    let layout = layout(Algorithm::AllReduceRing, 9);
    let error = simulate(&layout, sizes(&layout, 1000), &plain()).unwrap_err().to_string();
    assert!(error.contains("saw 9 ranks, allowed 1 to 8"), "{error}");
}

#[test]
fn pipelines_that_turn_too_often_are_refused() {
    let copy = data(OpKind::Copy, &[local(Buffer::Input, 0, 1)], &[local(Buffer::Output, 0, 1)]);
    for body in [vec![copy], Vec::new()] {
        let mut plan = plan(Collective::SendRecv, 2, [1, 1, 0]);
        connect(&mut plan);
        block(&mut plan, 0, vec![crate::samples::pipeline(16, 1, body)]);
        let layout = Layout::new(&plan).unwrap();
        let call = |bytes| CallSizes { input: bytes, output: bytes, element: 4, strict: false };
        assert!(simulate(&layout, call(1 << 10), &plain()).is_ok());
        let error = simulate(&layout, call(1 << 40), &plain()).unwrap_err();
        assert!(matches!(error, SimulateError::Windows { .. }), "{error}");
    }
}

#[test]
fn messages_whose_traffic_cannot_be_counted_are_refused() {
    for algorithm in [Algorithm::AllReduceRing, Algorithm::AllReduceTwoShotPackets] {
        let layout = layout(algorithm, 4);
        assert!(simulate(&layout, sizes(&layout, 1 << 50), &plain()).is_ok());
        for bytes in [1 << 62, u64::MAX - 1023] {
            let error = simulate(&layout, sizes(&layout, bytes), &plain()).unwrap_err();
            assert!(matches!(error, SimulateError::Lower(_)), "{algorithm}: {error}");
        }
    }
}
