//! Communicators of the real library: if one is named beside Antiphon, each communicator here has a counterpart there.
//!
//! A counterpart has the same ranks and is made together with its communicator, never later. Where each rank makes its own,
//! it is nonblocking, so that no rank is stuck inside the library while others wait for it there: the ranks tell each other
//! how far theirs have come until all have one, or one has failed.

use crate::communicator::Communicator;
use crate::failure::{self, Failure, Result};
use crate::library::library;
use crate::limit::limit;
use crate::scaled::Sum;
use crate::types::{Comm, Config, Header, MAGIC, UniqueId, result};
use crate::way::{Real, beside, place};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The version of NCCL that had [`Config`] as it is here: a library takes what came later as not said.
const CONFIGURED: u32 = 21400;
/// How long to pause before a library is asked again what has come of a call.
pub const PAUSE: Duration = Duration::from_micros(100);

/// How far a rank's counterpart has come.
const UNDER_WAY: u8 = 0;
const MADE: u8 = 1;
const FAILED: u8 = 2;

macro_rules! functions {
    ($($field:ident = $name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of the real library that this library calls on its own account.
        pub struct Functions {
            path: String,
            $(pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn of(real: &Real) -> Result<Self> {
                Ok(Functions {
                    path: real.path.to_string_lossy().into_owned(),
                    $($field: {
                        let at = ptr::with_exposed_provenance(real.find(stringify!($name))?);
                        // SAFETY: NCCL's header declares it so.
                        unsafe {
                            std::mem::transmute::<
                                *const c_void,
                                unsafe extern "C" fn($($argument),*) -> $result,
                            >(at)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    unique_id = ncclGetUniqueId(*mut UniqueId) -> c_int;
    init_rank = ncclCommInitRankConfig(*mut Comm, c_int, UniqueId, c_int, *mut Config) -> c_int;
    init_all = ncclCommInitAll(*mut Comm, c_int, *const c_int) -> c_int;
    async_error = ncclCommGetAsyncError(Comm, *mut c_int) -> c_int;
    finalize = ncclCommFinalize(Comm) -> c_int;
    destroy = ncclCommDestroy(Comm) -> c_int;
    abort = ncclCommAbort(Comm) -> c_int;
    start = ncclGroupStart() -> c_int;
    end = ncclGroupEnd() -> c_int;
    last_error = ncclGetLastError(Comm) -> *const c_char;
    create_sum = ncclRedOpCreatePreMulSum(*mut c_int, *mut c_void, c_int, c_int, Comm) -> c_int;
    destroy_op = ncclRedOpDestroy(c_int, Comm) -> c_int;
}

/// They, if a library is named beside Antiphon; or why they cannot be called.
pub fn functions() -> Option<&'static Result<Functions>> {
    static FUNCTIONS: OnceLock<Result<Functions>> = OnceLock::new();
    let real = beside()?;
    Some(FUNCTIONS.get_or_init(|| match real {
        Ok(real) => Functions::of(real),
        Err(why) => Err(Failure::usage(why.clone())),
    }))
}

impl Functions {
    /// A result of the real library.
    pub fn outcome(&self, code: c_int) -> Result<()> {
        if code == result::SUCCESS {
            return Ok(());
        }
        // SAFETY: the text, if there is one, stays until the next failure.
        let text = unsafe {
            let text = (self.last_error)(ptr::null_mut());
            if text.is_null() { c"" } else { CStr::from_ptr(text) }
        };
        let text = format!("{}: result {code}: {}", self.path, text.to_string_lossy());
        Err(Failure { code, text, unserved: false })
    }

    /// Makes calls as one group of the real library. If the library cannot make a sum that one of them needs, it makes
    /// none of them.
    pub fn grouped<'a>(
        &'static self,
        calls: impl IntoIterator<Item = (Use<'a>, RealCall)>,
    ) -> Result<()> {
        let ready = calls.into_iter().map(|(used, call)| {
            let sum = call.sum.map(|sum| sum.made(self, used.comm())).transpose()?;
            // In this order: the sum goes before who keeps its communicator.
            Ok((sum, used, call.make))
        });
        let ready = ready.collect::<Result<Vec<_>>>()?;
        // SAFETY: any thread may call it at any time.
        self.outcome(unsafe { (self.start)() })?;
        let (mut parts, mut made) = (Vec::new(), Ok(()));
        for (sum, used, make) in ready {
            if made.is_ok() {
                made = match make(used.comm(), sum.as_ref().map(|sum| sum.op)) {
                    // Whether it is complete is asked when the group has ended.
                    result::IN_PROGRESS => Ok(()),
                    code => self.outcome(code),
                };
            }
            parts.push((sum, used));
        }
        // Also after a failure the group has to end.
        // SAFETY: this thread has begun it.
        let ended = match unsafe { (self.end)() } {
            result::IN_PROGRESS => parts.iter().try_for_each(|(_, used)| used.settled()),
            code => self.outcome(code),
        };
        made.and(ended)
    }
}

/// A call of the real library.
pub struct RealCall {
    /// The premultiplied sum by which it reduces, if that is one.
    pub sum: Option<Sum>,
    /// Makes it on a communicator of the library, with the sum that the library has made.
    pub make: Box<dyn FnOnce(Comm, Option<c_int>) -> c_int>,
}

/// The communicator of the real library that goes with one of Antiphon; or why there is none.
pub struct Counterpart(Result<Made>);

impl Counterpart {
    /// Takes it for calls; until they are done, it stays.
    pub fn used(&self) -> Result<Use<'_>> {
        self.0.as_ref().map_err(Clone::clone)?.used()
    }

    /// The asynchronous error of the library's communicator, as NCCL's result; success if it has none, or there is none to ask.
    pub fn error(&self) -> c_int {
        let Ok(used) = self.used() else { return result::SUCCESS };
        match used.0.outcome() {
            Some(Err(failure)) => {
                failure::remember(&failure.text);
                failure.code
            }
            Some(Ok(())) | None => result::SUCCESS,
        }
    }

    /// Finalizes it in the library, which completes the calls under way, perhaps only after this has returned. Does nothing where
    /// there is no counterpart, or it is aborted.
    pub fn finalize(&self) -> Result<()> {
        let Ok(used) = self.used() else { return Ok(()) };
        used.0.state().ends = true;
        // SAFETY: the communicator lives, and its users make no more calls.
        match unsafe { (used.0.functions.finalize)(used.comm()) } {
            result::IN_PROGRESS => Ok(()),
            code => used.0.functions.outcome(code),
        }
    }

    /// Waits for what is under way.
    pub fn settle(&self) -> Result<()> {
        self.used().map_or(Ok(()), |used| used.settled())
    }

    /// Whether something is under way.
    pub fn is_under_way(&self) -> bool {
        self.used().is_ok_and(|used| used.0.outcome().is_none())
    }

    /// Ends what its calls have under way, and lets no more of them begin.
    pub fn abort(&self) {
        if let Ok(made) = &self.0 {
            made.abort();
        }
    }
}

/// A communicator of the real library. Aborting it there frees it, so the last user does that.
struct Made {
    functions: &'static Functions,
    comm: Comm,
    state: Mutex<State>,
}

// SAFETY: communicators of NCCL may be used and freed by any thread.
unsafe impl Send for Made {}
// SAFETY: as above; the pointer never changes.
unsafe impl Sync for Made {}

#[derive(Default)]
struct State {
    users: u32,
    aborted: bool,
    /// It is finalized, which may be under way.
    ends: bool,
}

impl Made {
    fn new(functions: &'static Functions, comm: Comm) -> Self {
        Made { functions, comm, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> Result<Use<'_>> {
        let mut state = self.state();
        if state.aborted {
            return Err(aborted());
        }
        state.users += 1;
        Ok(Use(self))
    }

    fn abort(&self) {
        let mut state = self.state();
        let first = !std::mem::replace(&mut state.aborted, true);
        let unused = state.users == 0;
        drop(state);
        if first && unused {
            self.free();
        }
    }

    /// Frees it, by the library's abort. Called once, when it is aborted and nobody uses it.
    fn free(&self) {
        // SAFETY: it was made, nobody uses it, and nobody will.
        unsafe { (self.functions.abort)(self.comm) };
    }

    /// What has come of what is under way in the library, if it is over.
    fn outcome(&self) -> Option<Result<()>> {
        let mut now = result::SUCCESS;
        // SAFETY: the communicator lives, and the place is writable.
        let code = unsafe { (self.functions.async_error)(self.comm, &mut now) };
        let code = if code == result::SUCCESS { now } else { code };
        (code != result::IN_PROGRESS).then(|| self.functions.outcome(code))
    }

    /// Waits for what is under way: until it is over, an abort, or the limit.
    fn settled(&self) -> Result<()> {
        let (since, limit) = (Instant::now(), limit()?);
        loop {
            if self.state().aborted {
                return Err(aborted());
            }
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            late(since, limit)?;
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let State { aborted, ends, .. } = *self.state();
        if aborted {
            return;
        }
        // It may be destroyed before its end begins, and after that.
        if ends && let Err(failure) = self.settled() {
            failure::remember(&failure.text);
        }
        // SAFETY: it was made, and nobody uses it any more.
        unsafe { (self.functions.destroy)(self.comm) };
    }
}

fn aborted() -> Failure {
    Failure::usage("its communicator is aborted")
}

/// Somebody who calls the real library on a communicator of it.
pub struct Use<'a>(&'a Made);

impl Use<'_> {
    /// The handle.
    fn comm(&self) -> Comm {
        self.0.comm
    }

    /// Makes a call, and waits until the library has done with it.
    pub fn call(self, call: RealCall) -> Result<()> {
        let sum = call.sum.map(|sum| sum.made(self.0.functions, self.comm())).transpose()?;
        match (call.make)(self.comm(), sum.as_ref().map(|sum| sum.op)) {
            result::IN_PROGRESS => self.settled(),
            code => self.0.functions.outcome(code),
        }
    }

    /// As [`Made::settled`].
    fn settled(&self) -> Result<()> {
        self.0.settled()
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.users -= 1;
        let last = state.aborted && state.users == 0;
        drop(state);
        if last {
            self.0.free();
        }
    }
}

fn late(since: Instant, limit: Option<Duration>) -> Result<()> {
    match limit.filter(|&limit| since.elapsed() >= limit) {
        None => Ok(()),
        Some(limit) => Err(Failure {
            code: result::TIMEOUT,
            text: format!("it has something under way for {} s", limit.as_secs()),
            unserved: false,
        }),
    }
}

/// Checks that either all ranks name a library or none does: a rank that names one would wait in it for the others.
fn name_alike(communicator: &Communicator, own: bool) -> Result<()> {
    let all = all(communicator, &[u8::from(own)])?;
    let Some(other) = all.iter().position(|&theirs| theirs != u8::from(own)) else {
        return Ok(());
    };
    let rank = communicator.rank as usize;
    let (with, without) = if own { (rank, other) } else { (other, rank) };
    Err(Failure::usage(format!(
        "rank {with} names one, and rank {without} none; set ANTIPHON_NCCL_LIB_PATH on all ranks, or on none"
    )))
}

/// Makes the counterpart of a communicator, with all its ranks; none if no library is named.
pub fn meet(communicator: &Communicator) -> Option<Counterpart> {
    let functions = functions();
    // A rank that names none takes part, too, so that the others know.
    let alike = name_alike(communicator, functions.is_some());
    let functions = functions?.as_ref().map_err(Clone::clone);
    if let Err(why) = alike {
        return Some(Counterpart(Err(why)));
    }
    if !place().is_device() {
        return Some(Counterpart(join(functions, communicator)));
    }
    // On a thread of its own, where another device may become current: that of the communicator, which the library takes.
    let made = thread::scope(|scope| {
        let work = || join(make_current(communicator).and(functions.clone()), communicator);
        match thread::Builder::new().spawn_scoped(scope, work) {
            Ok(thread) => thread.join().unwrap_or_else(|_| {
                Err(Failure::system("cannot make its communicator: the thread crashed"))
            }),
            // The others are told.
            Err(error) => join(Err(Failure::no_thread(&error)), communicator),
        }
    });
    Some(Counterpart(made))
}

/// Makes the communicator's device current on this thread.
fn make_current(communicator: &Communicator) -> Result<()> {
    let library = library()?;
    // SAFETY: the handle lives.
    library.outcome(unsafe { (library.antiphon_communicator_make_current)(communicator.end) })
}

/// Joins the ranks in the real library, by an id that rank 0 has from there.
fn join(functions: Result<&'static Functions>, communicator: &Communicator) -> Result<Made> {
    let Communicator { rank, world, .. } = *communicator;
    // Whether this rank can call it, and rank 0's id.
    let mut told = [0u8; 1 + size_of::<UniqueId>()];
    let mut id = UniqueId { internal: [0; 128] };
    let mut own = functions;
    if rank == 0 {
        own = own.and_then(|functions| {
            // SAFETY: the place is writable.
            functions.outcome(unsafe { (functions.unique_id)(&mut id) }).map(|()| functions)
        });
    }
    told[0] = u8::from(own.is_ok());
    told[1..].copy_from_slice(&id.internal.map(c_char::cast_unsigned));
    let all = all(communicator, &told)?;
    let functions = own?;
    if let Some(lacking) = all.chunks(told.len()).position(|one| one[0] == 0) {
        return Err(Failure::usage(format!("rank {lacking} cannot call it")));
    }
    for (to, &from) in id.internal.iter_mut().zip(&all[1..]) {
        *to = from.cast_signed();
    }
    let header = Header { size: size_of::<Config>(), magic: MAGIC, version: CONFIGURED };
    let (mut config, mut comm) = (Config { header, blocking: 0 }, ptr::null_mut());
    let (ranks, number) = (world.cast_signed(), rank.cast_signed());
    // SAFETY: the places are writable, and the configuration is what it says.
    let code = unsafe { (functions.init_rank)(&mut comm, ranks, id, number, &mut config) };
    let made = match code {
        result::SUCCESS | result::IN_PROGRESS => Ok(Made::new(functions, comm)),
        code => {
            let why = functions.outcome(code).and(Err(Failure::usage("it made none")));
            // NCCL may have begun to make one that need not block.
            if !comm.is_null() {
                // SAFETY: nobody else has it.
                unsafe { (functions.abort)(comm) };
            }
            why
        }
    };
    let outcome = agree(&made, communicator);
    match (made, outcome) {
        (made, Ok(())) => made,
        (made, Err(why)) => {
            // Its ranks may wait in it for one that has failed.
            made.inspect(Made::abort).and(Err(why))
        }
    }
}

/// Waits until all ranks have their counterparts.
///
/// # Errors
/// Why some rank has none. It fails on all ranks, since each goes by what all say.
fn agree(made: &Result<Made>, communicator: &Communicator) -> Result<()> {
    let (since, limit) = (Instant::now(), limit()?);
    loop {
        let own = match made {
            Err(why) => Some(Err(why.clone())),
            Ok(made) => made.outcome().or_else(|| late(since, limit).err().map(Err)),
        };
        let state = match &own {
            None => UNDER_WAY,
            Some(Ok(())) => MADE,
            Some(Err(_)) => FAILED,
        };
        let all = all(communicator, &[state])?;
        if let Some(Err(why)) = own {
            return Err(why);
        }
        if let Some(failed) = all.iter().position(|&state| state == FAILED) {
            let text = format!("its communicator did not come to be on rank {failed}");
            return Err(Failure::usage(text));
        }
        if all.iter().all(|&state| state == MADE) {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}

/// What all ranks say, in rank order; each says equally many bytes. They travel over the links by which the ranks met, wherever
/// their buffers are, and nothing that a program registers takes part.
fn all(communicator: &Communicator, own: &[u8]) -> Result<Vec<u8>> {
    let library = library()?;
    let mut all = vec![0u8; own.len() * communicator.world as usize];
    let (from, bytes, to) = (own.as_ptr().cast(), own.len() as u64, all.as_mut_ptr().cast());
    // SAFETY: the handle lives, and there is room for as many bytes of each rank.
    library.outcome(unsafe {
        (library.antiphon_communicator_exchange)(communicator.end, from, bytes, to)
    })?;
    Ok(all)
}

/// Makes the counterparts of all ranks of a process, by one call; nothing if no library is named. The list of their devices is null,
/// or has `count`.
pub fn meet_in_process(count: c_int, devices: *const c_int) -> impl Iterator<Item = Counterpart> {
    let made = functions().map(|functions| {
        let mut comms = vec![ptr::null_mut(); count.cast_unsigned() as usize];
        let made = functions.as_ref().map_err(Clone::clone).and_then(|functions| {
            // SAFETY: there is room for as many; the list is as long, or null.
            let code = unsafe { (functions.init_all)(comms.as_mut_ptr(), count, devices) };
            functions.outcome(code).map(|()| functions)
        });
        let one = move |comm| Counterpart(made.clone().map(|functions| Made::new(functions, comm)));
        comms.into_iter().map(one).collect::<Vec<_>>()
    });
    made.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A library in which everything is under way for ever. Handles are counters of what is freed.
    fn endless() -> &'static Functions {
        unsafe extern "C" fn id(_: *mut UniqueId) -> c_int {
            result::INTERNAL
        }
        unsafe extern "C" fn init(
            _: *mut Comm,
            _: c_int,
            _: UniqueId,
            _: c_int,
            _: *mut Config,
        ) -> c_int {
            result::INTERNAL
        }
        unsafe extern "C" fn init_all(_: *mut Comm, _: c_int, _: *const c_int) -> c_int {
            result::INTERNAL
        }
        unsafe extern "C" fn async_error(_: Comm, out: *mut c_int) -> c_int {
            // SAFETY: the caller's place.
            unsafe { out.write(result::IN_PROGRESS) };
            result::SUCCESS
        }
        unsafe extern "C" fn free(comm: Comm) -> c_int {
            // SAFETY: what the tests give as a handle.
            unsafe { &*comm.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
            result::SUCCESS
        }
        unsafe extern "C" fn group() -> c_int {
            result::IN_PROGRESS
        }
        unsafe extern "C" fn last_error(_: Comm) -> *const c_char {
            ptr::null()
        }
        unsafe extern "C" fn create_sum(
            _: *mut c_int,
            _: *mut c_void,
            _: c_int,
            _: c_int,
            _: Comm,
        ) -> c_int {
            result::INTERNAL
        }
        unsafe extern "C" fn destroy_op(_: c_int, _: Comm) -> c_int {
            result::INTERNAL
        }
        static ENDLESS: OnceLock<Functions> = OnceLock::new();
        ENDLESS.get_or_init(|| Functions {
            path: "endless".to_owned(),
            unique_id: id,
            init_rank: init,
            init_all,
            async_error,
            finalize: free,
            destroy: free,
            abort: free,
            start: group,
            end: group,
            last_error,
            create_sum,
            destroy_op,
        })
    }

    #[test]
    fn an_abort_ends_calls_and_the_last_of_them_frees_what_they_used() {
        let freed = AtomicU32::new(0);
        let times = || freed.load(Ordering::Relaxed);
        let made = Made::new(endless(), (&raw const freed).cast_mut().cast());
        let (one, other) = (made.used().unwrap(), made.used().unwrap());
        made.abort();
        made.abort();
        assert!(made.used().is_err());
        assert_eq!(times(), 0);
        // What is under way is waited for no longer.
        let endless_call = RealCall { sum: None, make: Box::new(|_, _| result::IN_PROGRESS) };
        let failure = one.call(endless_call).unwrap_err();
        assert!(failure.text.contains("aborted"), "{failure:?}");
        assert_eq!(times(), 0);
        drop(other);
        assert_eq!(times(), 1);
        drop(made);
        assert_eq!(times(), 1);
    }

    #[test]
    fn what_nobody_uses_is_freed_at_once_or_with_its_communicator() {
        let freed = AtomicU32::new(0);
        let comm = (&raw const freed).cast_mut().cast();
        Made::new(endless(), comm).abort();
        assert_eq!(freed.load(Ordering::Relaxed), 1);
        drop(Made::new(endless(), comm));
        assert_eq!(freed.load(Ordering::Relaxed), 2);
    }
}
