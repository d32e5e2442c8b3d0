//! A communicator with its collectives, on typed buffers.

use crate::checked::Checked;
use crate::{Buffer, BufferMut, Group, Op};
use antiphon_executor::selection::{Chosen, Question};
use antiphon_executor::{
    self as executor, Collectives, ExecutorError, Options, Rendezvous, UniqueId,
};
use std::ops::Deref;
use std::sync::Arc;

/// What a collective returns.
pub type Result<T, E = ExecutorError> = std::result::Result<T, E>;

/// One rank's end of a group of ranks that make calls together.
///
/// ```
/// use antiphon::{Communicator, Op};
///
/// let ranks = Communicator::in_process(4)?;
/// std::thread::scope(|scope| {
///     for rank in &ranks {
///         scope.spawn(move || {
///             let mut sums = [rank.rank() as f32; 1000];
///             rank.all_reduce(&mut sums, Op::Sum).unwrap();
///             assert_eq!(sums, [6.0; 1000]);
///         });
///     }
/// });
/// # Ok::<(), antiphon::ExecutorError>(())
/// ```
///
/// The collectives are methods, of slices and the like on the host and of a [`DeviceBuffer`](crate::DeviceBuffer) on any device
/// ([`Buffer`]); each call returns when this rank's part is complete. All ranks make the same calls in
/// the same order, with equal numbers of elements, types, reductions and roots (except for [`all_to_all_v`](Self::all_to_all_v) and
/// [`all_gather_v`](Self::all_gather_v), where each rank has lengths of its own); any thread may make them. What runs is what the
/// [`Registry`](crate::Registry), or a tuning table or installed plans on this machine, have for the call, and else a built-in
/// algorithm, chosen by the collective, the size and where the ranks are: [`explain`](Self::explain) tells. To run a certain
/// plan, load it with an [`Executor`](crate::Executor).
///
/// Whatever goes wrong on another rank ends a call with an error that names that rank: it died, called something else, or did
/// not come within the time limit (a minute without progress, unless [`Options`] or `ANTIPHON_CALL_TIMEOUT` say otherwise). After an error for which
/// [`ExecutorError::breaks_communicator`](crate::ExecutorError::breaks_communicator) holds, the communicator can no longer be
/// used; after one that only refused the call, the next call may succeed. Clones are the same end, and dereference to the bare
/// [`executor::Communicator`], which knows rank, world, nodes, barrier and more.
///
/// # Beside other work
/// A call has its thread until it is complete. On a thread of a scope it goes on beside what the caller does, and its buffers are
/// borrowed for as long:
///
/// ```
/// # use antiphon::{Communicator, Op};
/// # let rank = &Communicator::in_process(1)?[0];
/// let (mut gradients, batch) = (vec![1.0f32; 1 << 20], [1.0f32, 2.0, 3.0]);
/// let next = std::thread::scope(|scope| {
///     let reduced = scope.spawn(|| rank.all_reduce(&mut gradients, Op::Sum));
///     let next: f32 = batch.iter().sum(); // meanwhile
///     reduced.join().unwrap()?;
///     Ok::<_, antiphon::ExecutorError>(next)
/// })?;
/// # assert_eq!(next, 6.0);
/// # Ok::<(), antiphon::ExecutorError>(())
/// ```
///
/// Who makes calls of one communicator from several threads sees to their order, which is the same on all ranks. Without a thread
/// a launch goes on in a [stream](executor::Communicator::stream), to which an [`Executor`](crate::Executor) puts it; it is unsafe,
/// since nothing then keeps the buffers.
///
/// # Other ways to meet
/// To meet at a place that all ranks name, or by an id with options, make a bare communicator first:
/// `Communicator::new(&executor::Communicator::from_place(place, rank, world, &options)?)`, or with
/// [`from_id`](executor::Communicator::from_id)`(&id, rank, world, &options)`.
#[derive(Clone, Debug)]
pub struct Communicator {
    collectives: Arc<Collectives>,
}

impl Deref for Communicator {
    type Target = executor::Communicator;

    fn deref(&self) -> &executor::Communicator {
        self.collectives.communicator()
    }
}

impl AsRef<executor::Communicator> for Communicator {
    fn as_ref(&self) -> &executor::Communicator {
        self
    }
}

impl Communicator {
    /// The ends of `world` ranks that live in this process, in rank order, for a thread each.
    ///
    /// # Errors
    /// `Argument` for a world of zero ranks, or of more than 65536; what the device or the bootstrap reports.
    pub fn in_process(world: u32) -> Result<Vec<Communicator>> {
        Communicator::in_process_with(world, &Options::default())
    }

    /// As [`in_process`](Self::in_process), with options.
    ///
    /// # Errors
    /// As [`in_process`](Self::in_process).
    pub fn in_process_with(world: u32, options: &Options) -> Result<Vec<Communicator>> {
        let ends = executor::Communicator::in_process(world, options)?;
        ends.into_iter().map(|end| Communicator::new(&end)).collect()
    }

    /// This process's end of the group whose processes a launcher started (torchrun, `mpirun`, `srun`), or that
    /// `ANTIPHON_RANK`, `ANTIPHON_WORLD` and `ANTIPHON_COMM_ID` describe; for a single rank `ANTIPHON_WORLD=1` is enough. Waits
    /// until all ranks have come, for two minutes unless `ANTIPHON_TIMEOUT` says otherwise. Call it once in a process.
    ///
    /// # Errors
    /// What the environment lacks; a rank that did not come in time, and whatever else forming the group reports.
    pub fn from_environment() -> Result<Communicator> {
        Communicator::from_environment_with(&Options::default())
    }

    /// As [`from_environment`](Self::from_environment), with options, e.g. of a rank on a GPU.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment).
    pub fn from_environment_with(options: &Options) -> Result<Communicator> {
        Communicator::new(&executor::Communicator::from_environment(options)?)
    }

    /// This process's end of a group of processes of this machine that all pass the same address and number of ranks, and
    /// each a rank of its own. Waits until all have come.
    ///
    /// # Errors
    /// A rank that did not come in time, another number of ranks, a rank that is there twice.
    pub fn connect(rendezvous: &Rendezvous) -> Result<Communicator> {
        Communicator::new(&executor::Communicator::connect(rendezvous, &Options::default())?)
    }

    /// This process's end of a group over any hosts whose ranks all pass the same id. One process, that of rank 0 or any other,
    /// makes the id ([`UniqueId::create`]), tells the others, and runs until all have joined. The id's text is a secret.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn from_id(id: &UniqueId, rank: u32, world: u32) -> Result<Communicator> {
        let options = Options::default();
        Communicator::new(&executor::Communicator::from_id(id, rank, world, &options)?)
    }

    /// The collectives of a bare communicator, e.g. one on other devices or with other options.
    ///
    /// # Errors
    /// What the communicator reports.
    pub fn new(communicator: &executor::Communicator) -> Result<Communicator> {
        Ok(Communicator { collectives: Arc::new(Collectives::new(communicator)?) })
    }

    /// Divides the ranks into groups: ranks of one `color` form a new communicator, ordered by `key`, which may be negative, then by
    /// rank. Every rank calls it; a rank that passes `None` joins no group.
    ///
    /// # Errors
    /// The communicator's failure, or what the bootstrap reports.
    pub fn split(&self, color: Option<u32>, key: impl Into<i64>) -> Result<Option<Communicator>> {
        let end = executor::Communicator::split(self, color, key)?;
        end.as_ref().map(Communicator::new).transpose()
    }

    /// As [`split`](Self::split), with a name for the new communicator, which its errors and the log have.
    ///
    /// # Errors
    /// As [`split`](Self::split); `Argument` for the name.
    pub fn split_as(
        &self,
        color: Option<u32>,
        key: impl Into<i64>,
        name: Option<&str>,
    ) -> Result<Option<Communicator>> {
        let end = executor::Communicator::split_as(self, color, key, name)?;
        end.as_ref().map(Communicator::new).transpose()
    }

    /// The communicator of some of the ranks, in this order: each of them calls it with the same list, and the others have no
    /// part in it. It works, too, where this communicator is broken, if those that are listed live; which ranks do not,
    /// [`lost`](executor::Communicator::lost) tells.
    ///
    /// ```
    /// use antiphon::{Communicator, Op};
    ///
    /// let ranks = Communicator::in_process(3)?;
    /// ranks[1].abort("this rank is done for");
    /// std::thread::scope(|scope| {
    ///     for rank in [&ranks[0], &ranks[2]] {
    ///         scope.spawn(move || {
    ///             let rest = rank.subset(&[0, 2]).unwrap();
    ///             let mut sums = [1; 10];
    ///             rest.all_reduce(&mut sums, Op::Sum).unwrap();
    ///             assert_eq!(sums, [2; 10]);
    ///         });
    ///     }
    /// });
    /// # Ok::<(), antiphon::ExecutorError>(())
    /// ```
    ///
    /// # Errors
    /// As [`executor::Communicator::subset`].
    pub fn subset(&self, ranks: &[u32]) -> Result<Communicator> {
        Communicator::new(&executor::Communicator::subset(self, ranks)?)
    }

    /// As [`subset`](Self::subset), with a name for the new communicator, which its errors and the log have.
    ///
    /// # Errors
    /// As [`subset`](Self::subset); `Argument` for the name.
    pub fn subset_as(&self, ranks: &[u32], name: Option<&str>) -> Result<Communicator> {
        Communicator::new(&executor::Communicator::subset_as(self, ranks, name)?)
    }

    /// Replaces every rank's buffer by the reduction of all.
    ///
    /// # Errors
    /// Why the call could not be completed; `Argument` for a buffer that is not on this rank's device. The other collectives
    /// return these errors, too.
    pub fn all_reduce<B: BufferMut + ?Sized>(&self, buffer: &mut B, op: Op) -> Result<()> {
        Checked::all_reduce(self, buffer, op)?.make(&self.collectives)
    }

    /// Gives every rank the reduction of all ranks' `input`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and unequal lengths.
    pub fn all_reduce_into<I, O>(&self, input: &I, output: &mut O, op: Op) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        Checked::all_reduce_into(self, input, output, op)?.make(&self.collectives)
    }

    /// Gives every rank the inputs of all, in rank order.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and an output that is not `world` times as long as the input.
    pub fn all_gather<I, O>(&self, input: &I, output: &mut O) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        Checked::all_gather(self, input, output)?.make(&self.collectives)
    }

    /// Gives every rank all blocks of `buffer`, of which each rank brings its own: block r is rank r's.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and a length that `world` does not divide.
    pub fn all_gather_in_place<B: BufferMut + ?Sized>(&self, buffer: &mut B) -> Result<()> {
        Checked::all_gather_in_place(self, buffer)?.make(&self.collectives)
    }

    /// Gives rank r the reduction of all ranks' block r.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and an input that is not `world` times as long as the output.
    pub fn reduce_scatter<I, O>(&self, input: &I, output: &mut O, op: Op) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        Checked::reduce_scatter(self, input, output, op)?.make(&self.collectives)
    }

    /// Gives block r of rank r's buffer the reduction of all ranks' block r. The rank's other blocks may hold anything afterwards.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and a length that `world` does not divide.
    pub fn reduce_scatter_in_place<B>(&self, buffer: &mut B, op: Op) -> Result<()>
    where
        B: BufferMut + ?Sized,
    {
        Checked::reduce_scatter_in_place(self, buffer, op)?.make(&self.collectives)
    }

    /// Exchanges blocks: block r of rank s becomes block s of rank r.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), unequal lengths, and lengths that `world` does not divide.
    pub fn all_to_all<I, O>(&self, input: &I, output: &mut O) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        Checked::all_to_all(self, input, output)?.make(&self.collectives)
    }

    /// Exchanges blocks of one buffer: block r of rank s becomes block s of rank r. All ranks call this, or all
    /// [`all_to_all`](Self::all_to_all).
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and a length that `world` does not divide.
    pub fn all_to_all_in_place<B: BufferMut + ?Sized>(&self, buffer: &mut B) -> Result<()> {
        Checked::all_to_all_in_place(self, buffer)?.make(&self.collectives)
    }

    /// As [`all_to_all`](Self::all_to_all), with blocks of different lengths, one after the other: `send` says how many
    /// elements go to each rank, `receive` how many come from it.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), numbers that do not fit the buffers, and numbers that sender and receiver do
    /// not agree on.
    pub fn all_to_all_v<I, O>(&self, send: (&I, &[u64]), receive: (&mut O, &[u64])) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        Checked::all_to_all_v(self, send, receive)?.make(&self.collectives)
    }

    /// Gives every rank the inputs of all, in rank order, which may have different lengths: `receive` says how many elements
    /// come from each rank, this one included.
    ///
    /// ```
    /// let ranks = antiphon::Communicator::in_process(2)?;
    /// std::thread::scope(|scope| {
    ///     for rank in &ranks {
    ///         scope.spawn(move || {
    ///             let own = [[1, 2, 3], [4, 0, 0]][rank.rank() as usize];
    ///             let mut all = [0; 4];
    ///             let counts = [3, 1];
    ///             let own = &own[..counts[rank.rank() as usize] as usize];
    ///             rank.all_gather_v(own, (&mut all, &counts)).unwrap();
    ///             assert_eq!(all, [1, 2, 3, 4]);
    ///         });
    ///     }
    /// });
    /// # Ok::<(), antiphon::ExecutorError>(())
    /// ```
    ///
    /// # Errors
    /// As [`all_to_all_v`](Self::all_to_all_v).
    pub fn all_gather_v<I, O>(&self, input: &I, receive: (&mut O, &[u64])) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        Checked::all_gather_v(self, input, receive)?.make(&self.collectives)
    }

    /// Replaces every rank's buffer by the root's.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and a root that is no rank.
    pub fn broadcast<B: BufferMut + ?Sized>(&self, buffer: &mut B, root: u32) -> Result<()> {
        Checked::broadcast(self, buffer, root)?.make(&self.collectives)
    }

    /// Replaces the root's buffer by the reduction of all; the others' stay as they are.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn reduce<B: BufferMut + ?Sized>(&self, buffer: &mut B, op: Op, root: u32) -> Result<()> {
        Checked::reduce(self, buffer, op, root)?.make(&self.collectives)
    }

    /// Gives the root the inputs of all, in rank order. The others' `output` is left alone, and may be empty.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast), and on the root an output that is not `world` times as long as the input.
    pub fn gather<I, O>(&self, input: &I, output: &mut O, root: u32) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        Checked::gather(self, input, output, root)?.make(&self.collectives)
    }

    /// Gives rank r block r of the root's `input`. The others' is left alone, and may be empty.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast), and on the root an input that is not `world` times as long as the output.
    pub fn scatter<I, O>(&self, input: &I, output: &mut O, root: u32) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        Checked::scatter(self, input, output, root)?.make(&self.collectives)
    }

    /// Sends a buffer to a peer, which [receives](Self::receive) one of the same length and type. The other ranks have no part
    /// in it. Returns when the peer has it; so ranks that send to each other do it by [`send_receive`](Self::send_receive) or in a
    /// [`Group`].
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and a peer that is this rank.
    pub fn send<B: Buffer + ?Sized>(&self, input: &B, peer: u32) -> Result<()> {
        Checked::send(self, input, peer)?.make(&self.collectives)
    }

    /// Receives a buffer that a peer [sends](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn receive<B: BufferMut + ?Sized>(&self, output: &mut B, peer: u32) -> Result<()> {
        Checked::receive(self, output, peer)?.make(&self.collectives)
    }

    /// Sends a buffer to the rank `to` while it receives another from the rank `from`, as in a ring or between neighbours: no
    /// order of ranks is a deadlock. Either may be this rank itself, if both are. For more than one of each there is [`Group`].
    ///
    /// ```
    /// let ranks = antiphon::Communicator::in_process(3)?;
    /// std::thread::scope(|scope| {
    ///     for comm in &ranks {
    ///         scope.spawn(move || {
    ///             let (next, previous) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
    ///             let mut received = [0; 4];
    ///             comm.send_receive((&[comm.rank(); 4], next), (&mut received, previous)).unwrap();
    ///             assert_eq!(received, [previous; 4]);
    ///         });
    ///     }
    /// });
    /// # Ok::<(), antiphon::ExecutorError>(())
    /// ```
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and a peer that is no rank.
    pub fn send_receive<I, O>(
        &self,
        (input, to): (&I, u32),
        (output, from): (&mut O, u32),
    ) -> Result<()>
    where
        I: Buffer + ?Sized,
        O: BufferMut + ?Sized,
    {
        let mut group = Group::new();
        group.send(self, input, to)?;
        group.receive(self, output, from)?;
        group.end()
    }

    /// Ends every wait of every rank of this communicator. Later calls fail with the same reason. Any thread may call it.
    pub fn abort(&self, reason: &str) {
        self.collectives.abort(reason);
    }

    /// What would serve a call, why, and what else was considered. [`Collectives::question`] makes questions.
    ///
    /// ```
    /// use antiphon::plan::model::Collective;
    /// use antiphon::{Communicator, DataType};
    ///
    /// let ranks = Communicator::in_process(2)?;
    /// let calls = ranks[0].collectives();
    /// let question = calls.question(&Collective::AllReduce, 1 << 20, DataType::F32);
    /// let choice = ranks[0].explain(&question)?;
    /// assert!(choice.to_string().starts_with("chosen: allreduce_"));
    /// # Ok::<(), antiphon::ExecutorError>(())
    /// ```
    ///
    /// # Errors
    /// Where nothing serves it, or the selector's answer does not fit.
    pub fn explain(&self, question: &Question<'_>) -> Result<Chosen> {
        self.collectives.explain(question)
    }

    /// The same calls by address: for calls on streams, and on memory that the application allocated itself on a device.
    pub fn collectives(&self) -> &Collectives {
        &self.collectives
    }
}
