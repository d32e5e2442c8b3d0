//! Calls that are made together, on typed buffers.

use crate::checked::Checked;
use crate::{Buffer, BufferMut, Communicator, Op, Result};
use antiphon_executor as executor;
use std::marker::PhantomData;

/// Calls that are gathered first and then made together, so that none waits for one that comes later.
///
/// Sends and receives of a group come in any order without a deadlock: that is how ranks exchange with neighbours.
///
/// ```
/// use antiphon::{Communicator, Group};
///
/// let ranks = Communicator::in_process(4)?;
/// std::thread::scope(|scope| {
///     for comm in &ranks {
///         scope.spawn(move || {
///             let (me, world) = (comm.rank(), comm.world());
///             let (right, left) = ((me + 1) % world, (me + world - 1) % world);
///             let (own, mut from_left, mut from_right) = ([me; 100], [0; 100], [0; 100]);
///             let mut group = Group::new();
///             group.send(comm, &own, right)?;
///             group.send(comm, &own, left)?;
///             group.receive(comm, &mut from_left, left)?;
///             group.receive(comm, &mut from_right, right)?;
///             group.end()?;
///             assert_eq!((from_left, from_right), ([left; 100], [right; 100]));
///             Ok::<(), antiphon::ExecutorError>(())
///         });
///     }
/// });
/// # Ok::<(), antiphon::ExecutorError>(())
/// ```
///
/// Each method takes what the [`Communicator`]'s method of that name takes, and the communicator first. Collectives of one
/// communicator run in the order in which they were gathered; transfers run beside them and beside each other, but those from
/// one rank to another in order. Calls of several communicators may be gathered: one thread may drive many ranks. A rank may
/// send to itself. On the host a rank may gather calls that its peers make one by one; on devices its peers gather what it
/// gathers. [Registered code](crate::Code) runs when the group ends.
///
/// The group borrows the buffers of its calls until it has [ended](Self::end) or is dropped; dropped without an end it makes none
/// of them. So nobody writes what is sent, or looks at what is received, before it is there:
///
/// ```compile_fail,E0506
/// # let comm = &antiphon::Communicator::in_process(1)?[0];
/// let (sent, mut received) = ([1.5f32; 8], [0.0f32; 8]);
/// let mut group = antiphon::Group::new();
/// group.send(comm, &sent, 0)?;
/// group.receive(comm, &mut received, 0)?;
/// received[0] = 1.0; // borrowed by the group
/// group.end()?;
/// # Ok::<(), antiphon::ExecutorError>(())
/// ```
///
/// # Errors
/// Each method returns what is wrong with its call, which then is not part of the group. What else can go wrong, [`end`](Self::end)
/// tells.
#[derive(Debug, Default)]
#[must_use = "its calls are made by `end`"]
pub struct Group<'b> {
    calls: executor::Group,
    buffers: PhantomData<&'b mut [u8]>,
}

impl<'b> Group<'b> {
    /// A group without calls.
    pub fn new() -> Self {
        Group::default()
    }

    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Gathers [`Communicator::all_reduce`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn all_reduce<B>(&mut self, on: &Communicator, buffer: &'b mut B, op: Op) -> Result<()>
    where
        B: BufferMut + ?Sized,
    {
        self.take(on, Checked::all_reduce(on, buffer, op)?)
    }

    /// Gathers [`Communicator::all_reduce_into`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn all_reduce_into<I, O>(
        &mut self,
        on: &Communicator,
        input: &'b I,
        output: &'b mut O,
        op: Op,
    ) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        self.take(on, Checked::all_reduce_into(on, input, output, op)?)
    }

    /// Gathers [`Communicator::all_gather`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn all_gather<I, O>(
        &mut self,
        on: &Communicator,
        input: &'b I,
        output: &'b mut O,
    ) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        self.take(on, Checked::all_gather(on, input, output)?)
    }

    /// Gathers [`Communicator::all_gather_in_place`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn all_gather_in_place<B>(&mut self, on: &Communicator, buffer: &'b mut B) -> Result<()>
    where
        B: BufferMut + ?Sized,
    {
        self.take(on, Checked::all_gather_in_place(on, buffer)?)
    }

    /// Gathers [`Communicator::reduce_scatter`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn reduce_scatter<I, O>(
        &mut self,
        on: &Communicator,
        input: &'b I,
        output: &'b mut O,
        op: Op,
    ) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        self.take(on, Checked::reduce_scatter(on, input, output, op)?)
    }

    /// Gathers [`Communicator::reduce_scatter_in_place`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn reduce_scatter_in_place<B>(
        &mut self,
        on: &Communicator,
        buffer: &'b mut B,
        op: Op,
    ) -> Result<()>
    where
        B: BufferMut + ?Sized,
    {
        self.take(on, Checked::reduce_scatter_in_place(on, buffer, op)?)
    }

    /// Gathers [`Communicator::all_to_all`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn all_to_all<I, O>(
        &mut self,
        on: &Communicator,
        input: &'b I,
        output: &'b mut O,
    ) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        self.take(on, Checked::all_to_all(on, input, output)?)
    }

    /// Gathers [`Communicator::all_to_all_in_place`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn all_to_all_in_place<B>(&mut self, on: &Communicator, buffer: &'b mut B) -> Result<()>
    where
        B: BufferMut + ?Sized,
    {
        self.take(on, Checked::all_to_all_in_place(on, buffer)?)
    }

    /// Gathers [`Communicator::all_to_all_v`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn all_to_all_v<I, O>(
        &mut self,
        on: &Communicator,
        send: (&'b I, &[u64]),
        receive: (&'b mut O, &[u64]),
    ) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        self.take(on, Checked::all_to_all_v(on, send, receive)?)
    }

    /// Gathers [`Communicator::all_gather_v`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn all_gather_v<I, O>(
        &mut self,
        on: &Communicator,
        input: &'b I,
        receive: (&'b mut O, &[u64]),
    ) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        self.take(on, Checked::all_gather_v(on, input, receive)?)
    }

    /// Gathers [`Communicator::broadcast`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn broadcast<B>(&mut self, on: &Communicator, buffer: &'b mut B, root: u32) -> Result<()>
    where
        B: BufferMut + ?Sized,
    {
        self.take(on, Checked::broadcast(on, buffer, root)?)
    }

    /// Gathers [`Communicator::reduce`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn reduce<B>(
        &mut self,
        on: &Communicator,
        buffer: &'b mut B,
        op: Op,
        root: u32,
    ) -> Result<()>
    where
        B: BufferMut + ?Sized,
    {
        self.take(on, Checked::reduce(on, buffer, op, root)?)
    }

    /// Gathers [`Communicator::gather`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn gather<I, O>(
        &mut self,
        on: &Communicator,
        input: &'b I,
        output: &'b mut O,
        root: u32,
    ) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        self.take(on, Checked::gather(on, input, output, root)?)
    }

    /// Gathers [`Communicator::scatter`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn scatter<I, O>(
        &mut self,
        on: &Communicator,
        input: &'b I,
        output: &'b mut O,
        root: u32,
    ) -> Result<()>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        self.take(on, Checked::scatter(on, input, output, root)?)
    }

    /// Gathers [`Communicator::send`], also to this rank itself, which a [`receive`](Self::receive) of the group takes.
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn send<B>(&mut self, on: &Communicator, input: &'b B, peer: u32) -> Result<()>
    where
        B: Buffer + ?Sized,
    {
        self.take(on, Checked::send(on, input, peer)?)
    }

    /// Gathers [`Communicator::receive`].
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn receive<B>(&mut self, on: &Communicator, output: &'b mut B, peer: u32) -> Result<()>
    where
        B: BufferMut + ?Sized,
    {
        self.take(on, Checked::receive(on, output, peer)?)
    }

    /// Makes the calls. They are complete on return.
    ///
    /// # Errors
    /// Why a call could not be completed: the first such, after the others have ended. `Argument` if the group has sends to a
    /// rank itself that none of its receives takes; then none is made.
    pub fn end(self) -> Result<()> {
        self.calls.end()
    }

    fn take(&mut self, on: &Communicator, call: Checked<'b>) -> Result<()> {
        // SAFETY: `'b` lasts while this group is used, and `end` alone ends what it wraps.
        unsafe { call.put_into(&mut self.calls, on.collectives()) }
    }
}
