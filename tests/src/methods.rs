//! Every method of the facade's communicator, with buffers of any kind, held against what it must give.

use antiphon::{BufferMut, Communicator, Element, Group, Op, Result};
use std::fmt::Debug;

/// A type that holds small whole numbers, sums of which are exact.
pub trait Small: Element + PartialEq + Debug {
    /// The number.
    fn small(value: i64) -> Self;
}

macro_rules! small {
    ($($type:ty)*) => { $(impl Small for $type { fn small(value: i64) -> Self { value as $type } })* };
}

small!(f32 f64 i8 u8 i32 u32 i64 u64);

macro_rules! small_float {
    ($($type:ty)*) => {
        $(impl Small for $type { fn small(value: i64) -> Self { <$type>::from_f32(value as f32) } })*
    };
}

small_float!(half::f16 half::bf16);

/// Numbers that are different everywhere, small enough that sums of them are exact in every type.
fn value(rank: u32, index: usize) -> i64 {
    (i64::from(rank) * 7 + index as i64 * 3) % 11 + 1
}

fn sum(world: u32, index: usize) -> i64 {
    (0..world).map(|rank| value(rank, index)).sum()
}

fn filled<T: Small>(len: usize, of: impl Fn(usize) -> i64) -> Vec<T> {
    (0..len).map(|index| T::small(of(index))).collect()
}

/// Calls every method once on a rank, whose peers do the same, with blocks of `count` elements. `buffer` makes what is passed,
/// `values` looks into it.
///
/// # Errors
/// What the calls report.
///
/// # Panics
/// Where a result is wrong.
pub fn every_method<T: Small, B: BufferMut<Element = T>>(
    rank: &Communicator,
    count: usize,
    buffer: impl Fn(&[T]) -> Result<B>,
    values: impl Fn(&B) -> Result<Vec<T>>,
) -> Result<()> {
    let (me, world) = (rank.rank(), rank.world());
    let whole = count * world as usize;
    let mine = me as usize * count;
    let block = |index: usize| ((index / count.max(1)) as u32, index % count.max(1));
    let own = |len| buffer(&filled::<T>(len, |index| value(me, index)));
    let poison = |len| buffer(&filled::<T>(len, |_| 99));
    let holds = |found: &B, len, of: &dyn Fn(usize) -> i64, what: &str| -> Result<()> {
        assert_eq!(values(found)?, filled::<T>(len, of), "{what}");
        Ok(())
    };
    let own_block_holds = |found: &B, len, of: &dyn Fn(usize) -> i64, what: &str| -> Result<()> {
        assert_eq!(values(found)?[mine..mine + len], filled::<T>(len, of), "{what}");
        Ok(())
    };
    let gathered = |index: usize| value(block(index).0, block(index).1);

    let mut sums = own(count)?;
    rank.all_reduce(&mut sums, Op::Sum)?;
    holds(&sums, count, &|index| sum(world, index), "allreduce")?;

    let mut output = poison(count)?;
    rank.all_reduce_into(&own(count)?, &mut output, Op::Max)?;
    let most = |index| (0..world).map(|rank| value(rank, index)).max().unwrap_or_default();
    holds(&output, count, &most, "allreduce into")?;

    let mut output = poison(whole)?;
    rank.all_gather(&own(count)?, &mut output)?;
    holds(&output, whole, &gathered, "allgather")?;

    let mut output = buffer(&filled::<T>(whole, |index| match block(index) {
        (owner, index) if owner == me => value(me, index),
        _ => 99,
    }))?;
    rank.all_gather_in_place(&mut output)?;
    holds(&output, whole, &gathered, "allgather in place")?;

    let mut output = poison(count)?;
    rank.reduce_scatter(&own(whole)?, &mut output, Op::Sum)?;
    holds(&output, count, &|index| sum(world, mine + index), "reducescatter")?;

    let mut buffer = own(whole)?;
    rank.reduce_scatter_in_place(&mut buffer, Op::Sum)?;
    own_block_holds(&buffer, count, &|index| sum(world, mine + index), "reducescatter in place")?;

    let mut output = poison(whole)?;
    rank.all_to_all(&own(whole)?, &mut output)?;
    let exchanged = |index| value(block(index).0, mine + block(index).1);
    holds(&output, whole, &exchanged, "alltoall")?;

    let mut buffer = own(whole)?;
    rank.all_to_all_in_place(&mut buffer)?;
    holds(&buffer, whole, &exchanged, "alltoall in place")?;

    let caller = Caller {
        rank,
        count,
        own: &own,
        poison: &poison,
        holds: &holds,
        own_block_holds: &own_block_holds,
    };
    caller.with_lengths()?;
    caller.with_roots()?;
    caller.transfers()?;
    caller.together()?;
    rank.barrier()
}

/// A rank that calls, with what makes its buffers and looks into them.
struct Caller<'a, B> {
    rank: &'a Communicator,
    /// Elements of a block.
    count: usize,
    /// Makes a buffer of so many of the rank's elements.
    own: &'a dyn Fn(usize) -> Result<B>,
    /// Makes a buffer of so many elements that are no result.
    poison: &'a dyn Fn(usize) -> Result<B>,
    /// Compares the elements of a buffer with what they must be.
    holds: Holds<'a, B>,
    /// The same of the elements from the rank's block of a buffer on.
    own_block_holds: Holds<'a, B>,
}

/// Takes a buffer, how many elements it has, what each must be, and of which call.
type Holds<'a, B> = &'a dyn Fn(&B, usize, &dyn Fn(usize) -> i64, &str) -> Result<()>;

impl<B: BufferMut> Caller<'_, B> {
    /// The calls whose blocks have lengths of their own.
    fn with_lengths(&self) -> Result<()> {
        let &Caller { rank, count, own, poison, holds, .. } = self;
        let (me, world) = (rank.rank() as usize, rank.world() as usize);
        // Rank r sends count + r + s elements to rank s.
        let between = |from: usize, to: usize| count + from + to;
        let counts: Vec<u64> = (0..world).map(|peer| between(me, peer) as u64).collect();
        let len = counts.iter().sum::<u64>() as usize;
        // Where in an output the elements of each rank are, and which of its input they were.
        let places = |length: &dyn Fn(usize) -> usize, before: &dyn Fn(usize) -> usize| {
            let of = |from: usize| (0..length(from)).map(move |at| (from, at));
            let all = (0..world).flat_map(of);
            all.map(|(from, at)| (from as u32, before(from) + at)).collect::<Vec<_>>()
        };
        let mut output = poison(len)?;
        rank.all_to_all_v((&own(len)?, &counts), (&mut output, &counts))?;
        let before = |from| (0..me).map(|to| between(from, to)).sum();
        let sent = places(&|from| between(from, me), &before);
        holds(&output, len, &|index| value(sent[index].0, sent[index].1), "alltoallv")?;

        let lengths: Vec<u64> = (0..world).map(|rank| (count + rank) as u64).collect();
        let len = lengths.iter().sum::<u64>() as usize;
        let mut output = poison(len)?;
        rank.all_gather_v(&own(count + me)?, (&mut output, &lengths))?;
        let all = places(&|from| count + from, &|_| 0);
        holds(&output, len, &|index| value(all[index].0, all[index].1), "allgatherv")
    }

    /// The calls that have a root.
    fn with_roots(&self) -> Result<()> {
        let &Caller { rank, count, own, poison, holds, .. } = self;
        let (me, world) = (rank.rank(), rank.world());
        let whole = count * world as usize;
        let mine = me as usize * count;
        for root in [0, world - 1] {
            let at_root = if me == root { whole } else { 0 };
            let mut buffer = own(count)?;
            rank.broadcast(&mut buffer, root)?;
            holds(&buffer, count, &|index| value(root, index), "broadcast")?;

            let mut buffer = own(count)?;
            rank.reduce(&mut buffer, Op::Sum, root)?;
            let reduced = |index| if me == root { sum(world, index) } else { value(me, index) };
            holds(&buffer, count, &reduced, "reduce")?;

            let mut output = poison(at_root)?;
            rank.gather(&own(count)?, &mut output, root)?;
            let block = |index| value((index / count.max(1)) as u32, index % count.max(1));
            holds(&output, at_root, &block, "gather")?;

            let mut output = poison(count)?;
            rank.scatter(&own(at_root)?, &mut output, root)?;
            holds(&output, count, &|index| value(root, mine + index), "scatter")?;
        }
        Ok(())
    }

    /// Sends and receives round the ring of the ranks.
    fn transfers(&self) -> Result<()> {
        let &Caller { rank, count, own, poison, holds, .. } = self;
        let (me, world) = (rank.rank(), rank.world());
        let (next, previous) = ((me + 1) % world, (me + world - 1) % world);
        let came = |index| value(previous, index);
        if world > 1 {
            // Rank 0 sends first, the others receive first.
            let mut received = poison(count)?;
            if me == 0 {
                rank.send(&own(count)?, next)?;
            }
            rank.receive(&mut received, previous)?;
            if me > 0 {
                rank.send(&own(count)?, next)?;
            }
            holds(&received, count, &came, "send")?;
        }
        let mut received = poison(count)?;
        rank.send_receive((&own(count)?, next), (&mut received, previous))?;
        holds(&received, count, &came, "send and receive")?;
        let mut received = poison(count)?;
        rank.send_receive((&own(count)?, me), (&mut received, me))?;
        holds(&received, count, &|index| value(me, index), "to itself")
    }

    /// A group of every method, with transfers to both neighbours in it.
    fn together(&self) -> Result<()> {
        let &Caller { rank, count, own, poison, holds, own_block_holds } = self;
        let (me, world) = (rank.rank(), rank.world());
        let (next, previous) = ((me + 1) % world, (me + world - 1) % world);
        let whole = count * world as usize;
        let mine = me as usize * count;
        let block = |index: usize| ((index / count.max(1)) as u32, index % count.max(1));
        let counts = vec![count as u64; world as usize];
        let (part, all) = (own(count)?, own(whole)?);
        let mut reduced = [poison(count)?, own(count)?, poison(count)?];
        let mut gathered = [poison(whole)?, poison(whole)?, poison(whole)?];
        let mut exchanged = [poison(whole)?, own(whole)?, poison(whole)?];
        let mut rooted = [own(count)?, own(count)?, poison(count)?];
        let mut received = [poison(count)?, poison(count)?, poison(count)?];
        let mut in_place = [own(whole)?, own(whole)?];

        let mut group = Group::new();
        assert!(group.is_empty());
        let [into, sums, scattered] = &mut reduced;
        group.all_reduce_into(rank, &part, into, Op::Sum)?;
        group.all_reduce(rank, sums, Op::Sum)?;
        group.reduce_scatter(rank, &all, scattered, Op::Sum)?;
        let [even, with_lengths, at_root] = &mut gathered;
        group.all_gather(rank, &part, even)?;
        group.all_gather_v(rank, &part, (with_lengths, &counts))?;
        group.gather(rank, &part, at_root, 0)?;
        let [even, same, with_lengths] = &mut exchanged;
        group.all_to_all(rank, &all, even)?;
        group.all_to_all_in_place(rank, same)?;
        group.all_to_all_v(rank, (&all, &counts), (with_lengths, &counts))?;
        let [broadcast, to_root, from_root] = &mut rooted;
        group.broadcast(rank, broadcast, 0)?;
        group.reduce(rank, to_root, Op::Sum, 0)?;
        group.scatter(rank, &all, from_root, 0)?;
        let [from_next, from_previous, from_itself] = &mut received;
        group.send(rank, &part, next)?;
        group.send(rank, &part, previous)?;
        group.receive(rank, from_next, next)?;
        group.receive(rank, from_previous, previous)?;
        group.send(rank, &part, me)?;
        group.receive(rank, from_itself, me)?;
        let [gathered_in_place, scattered_in_place] = &mut in_place;
        group.all_gather_in_place(rank, gathered_in_place)?;
        group.reduce_scatter_in_place(rank, scattered_in_place, Op::Sum)?;
        assert!(!group.is_empty());
        group.end()?;

        let sums = |index| sum(world, index);
        holds(&reduced[0], count, &sums, "grouped allreduce into")?;
        holds(&reduced[1], count, &sums, "grouped allreduce")?;
        holds(&reduced[2], count, &|index| sums(mine + index), "grouped reducescatter")?;
        let blocks = |index| value(block(index).0, block(index).1);
        holds(&gathered[0], whole, &blocks, "grouped allgather")?;
        holds(&gathered[1], whole, &blocks, "grouped allgatherv")?;
        let at_root = |index| if me == 0 { blocks(index) } else { 99 };
        holds(&gathered[2], whole, &at_root, "grouped gather")?;
        let crossed = |index| value(block(index).0, mine + block(index).1);
        for (found, what) in exchanged.iter().zip(["alltoall", "in place", "alltoallv"]) {
            holds(found, whole, &crossed, &format!("grouped {what}"))?;
        }
        holds(&rooted[0], count, &|index| value(0, index), "grouped broadcast")?;
        let at_root = |index| if me == 0 { sums(index) } else { value(me, index) };
        holds(&rooted[1], count, &at_root, "grouped reduce")?;
        holds(&rooted[2], count, &|index| value(0, mine + index), "grouped scatter")?;
        for (found, from) in received.iter().zip([next, previous, me]) {
            holds(found, count, &|index| value(from, index), "grouped receive")?;
        }
        // Each rank has brought the block that it had there.
        let blocks = |index| value(block(index).0, index);
        holds(&in_place[0], whole, &blocks, "grouped allgather in place")?;
        own_block_holds(
            &in_place[1],
            count,
            &|index| sums(mine + index),
            "grouped reducescatter in place",
        )
    }
}
