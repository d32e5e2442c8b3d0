//! Allreduce over several nodes: every rank ends with the reduction of all inputs.

use super::*;
use crate::model::{Collective::AllReduce, Plan};
use std::ops::Range;

/// Everyone sends its whole input to its neighbours, as packets, and the sum of its node to its counterparts.
///
/// One step inside the node and one across, with `nodes - 1` puts and no signal, for the smallest messages; every rank
/// of a node sends the same sum. `blocks` thread blocks (at least 1) share the message.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, blocks, .. } = shape;
    let (p, places) = packet_program("packets", AllReduce, (ranks, nodes))?;
    let p = p.chunk_counts(1, 1);
    among(p, in_place, |p| {
        let near = Inboxes::near(p, places, 1);
        let exchange = Exchange::new(p, places, 0..places.per_node);
        let raws = raws(p, places);
        for team in teams(p, blocks) {
            let ports = exchange.ports(p);
            for (tb, &raw) in team.iter().zip(raws.iter()) {
                let me = tb.rank();
                let (mut sum, output) = (p.input(me).all(), p.output(me).all());
                for peer in places.neighbours(me) {
                    tb.put_packets(sum, near.slot(peer, me));
                }
                if places.per_node > 1 {
                    reduce_packets(tb, near.all(me), places.number(me), sum, raw, output);
                    sum = output;
                }
                exchange.run(tb, &ports, sum, raw, output);
            }
        }
    })
}

/// Rank number k of each node collects slice k of its node's inputs, exchanges the sum with its counterparts, and sends
/// the result to its neighbours; all as packets.
///
/// Two steps inside the node and one across, where each byte of the message goes to each other node once. `blocks` thread
/// blocks (at least 1) share each slice.
pub fn two_shot_packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, blocks, .. } = shape;
    let (p, places) = packet_program("two_shot_packets", AllReduce, (ranks, nodes))?;
    let p = p.chunk_counts(places.per_node, places.per_node);
    among(p, in_place, |p| {
        let inputs = Inboxes::near(p, places, 1);
        let results = Inboxes::near(p, places, 1);
        let exchange = Exchange::new(p, places, 0..places.per_node);
        let raws = raws(p, places);
        for team in teams(p, blocks) {
            let ports = exchange.ports(p);
            for (tb, &raw) in team.iter().zip(raws.iter()) {
                let me = tb.rank();
                let number = places.number(me);
                let (input, output) = (p.input(me), p.output(me));
                for peer in places.neighbours(me) {
                    tb.put_packets(input.chunk(places.number(peer)), inputs.slot(peer, me));
                }
                let (mut sum, result) = (input.chunk(number), output.chunk(number));
                if places.per_node > 1 {
                    reduce_packets(tb, inputs.all(me), number, sum, raw, result);
                    sum = result;
                }
                exchange.run(tb, &ports, sum, raw, result);
                for peer in places.neighbours(me) {
                    tb.put_packets(result, results.slot(peer, me));
                }
                for peer in places.neighbours(me) {
                    tb.unpack_packets(results.slot(me, peer), output.chunk(places.number(peer)));
                }
            }
        }
    })
}

/// Rank number 0 of each node reads its node's inputs, exchanges the sum with its counterparts as packets, and writes the
/// result to its node's outputs.
///
/// The fewest operations and puts, one after the other: for small messages where the ranks of a node share cores, so that
/// one of them does the work in any case.
pub fn hub(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, .. } = shape;
    let (p, places) = packet_program("hub", AllReduce, (ranks, nodes))?;
    let p = p.chunk_counts(1, 1);
    among(p, in_place, |p| {
        let spokes = Links::spokes(p, places, 0);
        let exchange = Exchange::new(p, places, 0..1);
        let ports = exchange.ports(p);
        for me in 0..ranks {
            let tb = p.block(me);
            let mine = spokes.to(me, places.spokes(me, 0));
            if places.number(me) > 0 {
                tb.signal_relaxed(&mine);
                tb.wait(&mine);
                continue;
            }
            let inputs: Vec<_> = places.of_node(me).map(|rank| p.input(rank).all()).collect();
            let outputs = places.neighbours(me).map(|rank| p.output(rank).all());
            let (mut sum, output) = (p.input(me).all(), p.output(me).all());
            wait_relaxed(&tb, &mine);
            if places.per_node > 1 {
                tb.reduce(&inputs, output);
                sum = output;
            }
            exchange.run(&tb, &ports, sum, raw_for(p, me, 0, nodes - 1), output);
            outputs.for_each(|to| tb.put(output, to));
            signal(&tb, &mine);
        }
    })
}

/// Room for what each rank unpacks of its neighbours, and then of its counterparts.
fn raws(p: &ProgramBuilder, places: Places) -> Vec<Region<'_>> {
    (0..p.ranks()).map(|me| raw_for(p, me, places.per_node - 1, places.nodes - 1)).collect()
}

/// The step across nodes: everyone sends its node's sum to its counterparts as packets, and adds up theirs.
struct Exchange<'p> {
    places: Places,
    /// The numbers, on their nodes, of the ranks that take part.
    numbers: Range<usize>,
    /// Where a rank packs what its proxies send.
    packed: Vec<Region<'p>>,
    inboxes: Inboxes<'p>,
}

impl<'p> Exchange<'p> {
    /// For the ranks of these numbers on their nodes.
    fn new(p: &'p ProgramBuilder, places: Places, numbers: Range<usize>) -> Self {
        let part = |rank| places.nodes > 1 && numbers.contains(&places.number(rank));
        let packed = (0..p.ranks()).map(|rank| p.scratch(rank, usize::from(part(rank))));
        let packed = packed.collect();
        let inboxes = Inboxes::far_among(p, places, part);
        Exchange { places, numbers, packed, inboxes }
    }

    /// The channels of one thread block of each rank.
    fn ports(&self, p: &ProgramBuilder) -> Links {
        Links::across_among(p, self.places, self.numbers.clone())
    }

    fn run(&self, tb: &Block<'_>, ports: &Links, sum: Chunks, raw: Region<'_>, to: Chunks) {
        let me = tb.rank();
        if self.places.nodes == 1 {
            return;
        }
        let packed = self.packed[me].all();
        tb.copy_packets(sum, packed);
        for peer in self.places.counterparts(me) {
            let port = ports.between(me, peer);
            tb.put_packets_over(&port, packed, self.inboxes.slot(peer, me));
        }
        reduce_packets(tb, self.inboxes.all(me), self.places.node(me), sum, raw, to);
    }
}

/// Rank number k of each node reads slice k of its node's inputs, reduces it with its counterparts, and writes it to its
/// neighbours' outputs. `blocks` thread blocks (at least 1) share each slice: while one waits for the wire, others
/// reduce.
///
/// Two nodes exchange their sums whole, which takes one step. More nodes divide the slice: each reduces its piece
/// and sends the result to the others, so that twice the slice crosses, however many nodes there are.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, blocks, .. } = shape;
    let (p, places) = zero_copy_program("zero_copy", AllReduce, (ranks, nodes))?;
    let pieces = if nodes > 2 { nodes } else { 1 };
    let chunks = places.per_node * pieces;
    // With two nodes, one may be in the next launch while the other still reads what it received in this one.
    let p = p.chunk_counts(chunks, chunks).double_scratch(nodes == 2);
    among(p, in_place, |p| {
        let inboxes = Inboxes::far(p, places, 1);
        for Seat { tb, me, near, far } in seats(p, places, blocks) {
            signal_relaxed(&tb, &near);
            wait_relaxed(&tb, &near);
            let shard = Shard { p, places, pieces, tb: &tb, me, ports: &far };
            match nodes {
                1 => shard.reduce_send(&shard.inputs(0), 0),
                2 => shard.exchange_whole(&inboxes),
                _ => shard.exchange_pieces(&inboxes),
            }
            signal(&tb, &near);
            wait(&tb, &near);
        }
    })
}

/// What one block of a rank does with the slice that it reduces.
struct Shard<'p> {
    p: &'p ProgramBuilder,
    places: Places,
    pieces: usize,
    tb: &'p Block<'p>,
    me: usize,
    /// To the counterparts.
    ports: &'p [Channel],
}

impl Shard<'_> {
    fn at(&self, piece: usize) -> usize {
        self.places.number(self.me) * self.pieces + piece
    }

    /// A piece of the slice in every input of the node.
    fn inputs(&self, piece: usize) -> Vec<Chunks> {
        let node = self.places.of_node(self.me);
        node.map(|rank| self.p.input(rank).chunk(self.at(piece))).collect()
    }

    /// The node's sum of a piece: in the output, or, of a lone rank, where it is.
    fn sum(&self, piece: usize) -> Chunks {
        let (inputs, output) = (self.inputs(piece), self.output(piece));
        if let [own] = inputs[..] {
            return own;
        }
        self.tb.reduce(&inputs, output);
        output
    }

    fn output(&self, piece: usize) -> Chunks {
        self.p.output(self.me).chunk(self.at(piece))
    }

    /// A piece in the outputs of the neighbours.
    fn outputs(&self, piece: usize) -> Vec<Chunks> {
        let neighbours = self.places.neighbours(self.me);
        neighbours.map(|peer| self.p.output(peer).chunk(self.at(piece))).collect()
    }

    /// Reduce to a piece of the node's outputs.
    fn reduce_send(&self, sources: &[Chunks], piece: usize) {
        let neighbours = self.outputs(piece);
        if neighbours.is_empty() {
            self.tb.reduce(sources, self.output(piece));
        } else {
            self.tb.reduce_send(sources, self.output(piece), &neighbours);
        }
    }

    /// The ports, with the counterparts that they lead to.
    fn far(&self) -> impl Iterator<Item = (&Channel, usize)> {
        self.ports.iter().zip(self.places.counterparts(self.me))
    }

    fn exchange_whole(&self, inboxes: &Inboxes<'_>) {
        let Shard { places, tb, me, ports, .. } = *self;
        let sum = self.sum(0);
        for (port, peer) in self.far() {
            tb.put_with_signal(port, sum, inboxes.slot(peer, me));
        }
        tb.wait(ports);
        // The output may be what is being sent.
        tb.flush(ports);
        let of = |node| inboxes.slot(me, places.rank(node, places.number(me)));
        let sources: Vec<_> = places.in_node_order(me, sum, of).collect();
        self.reduce_send(&sources, 0);
    }

    fn exchange_pieces(&self, inboxes: &Inboxes<'_>) {
        let Shard { places, tb, me, ports, .. } = *self;
        for (port, peer) in self.far() {
            let sum = self.sum(places.node(peer));
            tb.put_with_signal(port, sum, inboxes.slot(peer, me));
        }
        let own = places.node(me);
        let sum = self.sum(own);
        tb.wait(ports);
        let of = |node| inboxes.slot(me, places.rank(node, places.number(me)));
        let sources: Vec<_> = places.in_node_order(me, sum, of).collect();
        self.reduce_send(&sources, own);
        for (port, peer) in self.far() {
            // The peer has sent its part of this piece, and so it is free there.
            let there = self.p.output(peer).chunk(self.at(own));
            tb.put_with_signal(port, self.output(own), there);
        }
        for (port, peer) in self.far() {
            tb.wait(&[*port]);
            let piece = places.node(peer);
            for output in self.outputs(piece) {
                tb.put(self.output(piece), output);
            }
        }
        tb.flush(ports);
    }
}
