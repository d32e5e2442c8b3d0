//! Questions, selectors and explanations for C.

use crate::communicator::antiphon_communicator;
use crate::entry::{Out, Structure, entry, structure, text, texts, write_text};
use crate::handle::borrow;
use crate::result::{Failure, antiphon_result, overheard};
use crate::types::{antiphon_switch, data_type, reduce_op, switch};
use ::antiphon_executor::plan::model::Collective;
use ::antiphon_executor::selection::{Chosen, Offer, Question, Spread};
use ::antiphon_executor::{Collectives, ExecutorError, Options, Registry};
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::OnceLock;

/// What is known of a call when the algorithm that serves it is chosen. Selectors are given one, which they may read until they
/// return; antiphon_explain, for which only the fields up to `root` count, and antiphon_registry_explain take one. Begin with
/// ANTIPHON_QUESTION_INIT; later versions of the library add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct antiphon_question {
    /// sizeof(antiphon_question) as the program was compiled; in a selector, as the library was compiled.
    pub struct_size: u64,
    /// The collective, e.g. "allreduce".
    pub collective: *const c_char,
    /// Bytes of the call's larger buffer: the output of an allgather, the input of a reducescatter. 0 for alltoallv and allgatherv.
    pub bytes: u64,
    /// The element type, an antiphon_dtype.
    pub dtype: i32,
    /// The reduction, an antiphon_op; any other number where nothing is reduced.
    pub op: i32,
    /// 1 if input and output are the same memory on this rank, by the collective's convention, else 0; always 0 for collectives
    /// with a root. Ranks may differ in it where the call lets them, so a choice that all must make alike must not use it.
    pub in_place: i32,
    /// 1 if every rank's input is multiplied by a factor first, else 0.
    pub premultiplied: i32,
    /// The root, for collectives that have one; else 0.
    pub root: u32,
    /// Number of ranks.
    pub world: u32,
    /// Number of nodes that the ranks are spread over. It equals `world` unless each node has consecutive ranks, equally many
    /// on each.
    pub nodes: u32,
    /// How many candidates there are.
    pub candidate_count: u32,
    /// The names of what fits the call: registered plans, then code, both with the most recent first, then installed plans by
    /// name, then built-in algorithms. A tuning table may choose any of them if the selector returns 0.
    pub candidates: *const *const c_char,
    /// This rank's send buffer; null if no call is being made, or if this rank has none (off the root of a broadcast or scatter).
    pub send_buffer: *const c_void,
    /// This rank's receive buffer; null if no call is being made, or if this rank has none (off the root of a reduce or gather).
    pub receive_buffer: *const c_void,
    /// The tags that the communicator asks for (antiphon_config): every registered or installed candidate has all of them.
    pub tags: *const *const c_char,
    /// How many there are.
    pub tag_count: u64,
    /// Whether sums keep one order, as in antiphon_config: an antiphon_switch; in a selector it is never the default.
    pub reproducible: i32,
    /// 0.
    pub reserved: i32,
}

const NOTHING: antiphon_question = antiphon_question {
    struct_size: size_of::<antiphon_question>() as u64,
    collective: ptr::null(),
    bytes: 0,
    dtype: 0,
    op: 0,
    in_place: 0,
    premultiplied: 0,
    root: 0,
    world: 0,
    nodes: 0,
    candidate_count: 0,
    candidates: ptr::null(),
    send_buffer: ptr::null(),
    receive_buffer: ptr::null(),
    tags: ptr::null(),
    tag_count: 0,
    reproducible: 0,
    reserved: 0,
};

impl Structure for antiphon_question {
    const NAME: &'static str = "question";
    const INIT: &'static str = "ANTIPHON_QUESTION_INIT";
    const FIRST: u64 =
        offset_of!(antiphon_question, receive_buffer) as u64 + size_of::<*const c_void>() as u64;
}

/// Room for a selector's answer, with the zero that ends it.
pub const ANTIPHON_ANSWER_BYTES: usize = 1024;

/// Chooses for a call: writes the name of a candidate, with a zero, and returns 1; or returns 0, which leaves the choice to the
/// rules. Any other result is an error of the call, whose reason is the one that antiphon_set_last_error set. `answer` has room
/// for ANTIPHON_ANSWER_BYTES. The function may be called on several threads at the same time; it must return, and let no
/// exception out (see antiphon::guarded in antiphon.hpp).
pub type antiphon_select_function = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        question: *const antiphon_question,
        answer: *mut c_char,
    ) -> i32,
>;

/// Called once with a context, when no function will be called with it again; null if there is nothing to do. It may be called
/// on any thread that uses the library, also in the middle of a call. It must return and let no exception out, and must neither
/// make calls on communicators nor begin, end or cancel groups.
pub type antiphon_destroy_function = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// A context of the caller, and the function that destroys it.
pub(crate) struct Context {
    pub at: *mut c_void,
    /// Set once the context is the library's.
    destroy: OnceLock<unsafe extern "C" fn(*mut c_void)>,
}

// SAFETY: whoever registers functions vouches that their context may be used on any thread (see the contracts of the functions
// that make one).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// A context that is not the library's yet.
    pub fn new(at: *mut c_void) -> Self {
        Context { at, destroy: OnceLock::new() }
    }

    /// Makes it the library's.
    pub fn own(&self, destroy: antiphon_destroy_function) {
        if let Some(destroy) = destroy {
            // Nobody else sets it.
            let _ = self.destroy.set(destroy);
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy.get() {
            // SAFETY: whoever gave the context gave the function for it, to be called once.
            unsafe { destroy(self.at) };
        }
    }
}

/// Sets the function that is asked about every call by name of this process, in place of the previous one; null for none. It is
/// called on the thread that makes the call, possibly on several threads at the same time, and must not call this library's
/// functions on communicators. It must choose alike on all ranks. `destroy` is called with the context, once, when the selector
/// is replaced and no call asks it any more: before this function returns, or on the thread of the last such call. If `select`
/// is null, `destroy` is called at once.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The functions have these types, may be called with the context from any thread until it is destroyed, and return.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_registry_set_selector(
    select: antiphon_select_function,
    context: *mut c_void,
    destroy: antiphon_destroy_function,
) -> antiphon_result {
    entry(|| {
        let context = Context::new(context);
        context.own(destroy);
        match select {
            None => Registry::process().clear_selector(),
            Some(select) => Registry::process().set_fallible_selector(move |offer| {
                // The closure captures all of `context`, so that it is destroyed with the selector.
                let context = &context;
                // SAFETY: the contract of this function.
                ask(offer, |question, answer| unsafe { select(context.at, question, answer) })
            }),
        }
        Ok(())
    })
}

/// Asks a function of C which candidate of an offer it chooses.
fn ask(
    offer: &Offer<'_>,
    select: impl FnOnce(*const antiphon_question, *mut c_char) -> i32,
) -> Result<Option<String>, String> {
    let bare = |text: &str| {
        CString::new(text)
            .map_err(|_| format!("C has no name for {text:?}, which has a zero in it"))
    };
    let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
    let names = offer.fitting.iter().map(|candidate| bare(candidate.name()));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let candidates = pointers(&names);
    let tags = offer.question.tags.iter().map(|tag| bare(tag)).collect::<Result<Vec<_>, _>>()?;
    let listed_tags = pointers(&tags);
    let Question { spread, bytes, dtype, op, in_place, root, premultiplied, .. } = offer.question;
    let collective = bare(offer.question.collective.name())?;
    let question = antiphon_question {
        collective: collective.as_ptr(),
        bytes,
        dtype: dtype as i32,
        op: op.map_or(-1, |op| op as i32),
        in_place: in_place.into(),
        premultiplied: premultiplied.into(),
        root,
        world: spread.ranks,
        nodes: spread.nodes,
        candidate_count: candidates.len() as u32,
        candidates: candidates.as_ptr(),
        send_buffer: ptr::with_exposed_provenance(offer.input),
        receive_buffer: ptr::with_exposed_provenance(offer.output),
        tags: listed_tags.as_ptr(),
        tag_count: listed_tags.len() as u64,
        reproducible: match offer.question.reproducible {
            true => antiphon_switch::On,
            false => antiphon_switch::Off,
        } as i32,
        ..NOTHING
    };
    let mut answer = [0 as c_char; ANTIPHON_ANSWER_BYTES];
    let (result, why) = overheard(|| select(&raw const question, answer.as_mut_ptr()));
    match result {
        0 => Ok(None),
        1 => {
            let bytes = answer.map(|letter| letter as u8);
            let name = CStr::from_bytes_until_nul(&bytes).ok().and_then(|name| name.to_str().ok());
            let name = name.ok_or("its answer does not end with a zero, or is not UTF-8")?;
            Ok(Some(name.to_owned()))
        }
        saw => Err(match why {
            Some(why) => format!("it returned {saw}: {why}"),
            None => format!("it returned {saw}, allowed 0 and 1"),
        }),
    }
}

/// The format that antiphon_explain writes.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum antiphon_format {
    /// Lines for people.
    Text = 0,
    /// One object of JSON.
    Json = 1,
}

/// The collective that a question names.
///
/// # Safety
/// Its text, if there is one, ends with a zero.
unsafe fn collective_of(asked: &antiphon_question) -> Result<Collective, Failure> {
    // SAFETY: as this function's.
    Ok(Collective::from_name(unsafe { text(asked.collective, "question.collective")? }))
}

/// Completes a question, which says where the ranks are, with what C says of the call.
///
/// # Errors
/// For values that are not allowed.
fn completed<'a>(
    question: Question<'a>,
    asked: &antiphon_question,
) -> Result<Question<'a>, Failure> {
    let flag = |value: i32, name: &str| match value {
        0 => Ok(false),
        1 => Ok(true),
        saw => Err(Failure::argument(format!("cannot use `{name}`: saw {saw}, allowed 0 and 1"))),
    };
    if asked.root >= question.spread.ranks {
        return Err(Failure::argument(format!(
            "cannot use `question.root`: saw rank {}, allowed 0 to {}",
            asked.root,
            question.spread.ranks - 1
        )));
    }
    Ok(Question {
        op: question.op.map(|_| reduce_op(asked.op)).transpose()?,
        in_place: flag(asked.in_place, "question.in_place")?,
        premultiplied: flag(asked.premultiplied, "question.premultiplied")?,
        root: asked.root,
        ..question
    })
}

/// Describes a choice in an antiphon_format.
///
/// # Errors
/// For a number that stands for no format.
fn explained(choice: &Chosen, format: i32) -> Result<String, Failure> {
    match format {
        format if format == antiphon_format::Text as i32 => Ok(choice.to_string()),
        format if format == antiphon_format::Json as i32 => Ok(choice.to_json()),
        saw => Err(Failure::argument(format!(
            "cannot use `format`: saw {saw}, allowed the numbers of antiphon_format"
        ))),
    }
}

/// Writes what would serve a call on a communicator, why, and what else was considered, as a text that ends with a zero, and to
/// `out_bytes` its size, that zero included. With a null buffer and a capacity of 0 it writes only how many bytes are needed.
/// `format` is an antiphon_format. The selector, if one is set, is asked with null buffers. No call is made, and the other
/// ranks take no part.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `question` is null or as long as it
/// says, and its text ends with a zero; `buffer` is null or has `capacity` bytes; `out_bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_explain(
    communicator: *const antiphon_communicator,
    question: *const antiphon_question,
    format: i32,
    buffer: *mut c_char,
    capacity: u64,
    out_bytes: *mut u64,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_bytes, "out_bytes")?;
        // SAFETY: as this function's.
        let on = unsafe { borrow::<Collectives>(communicator)? };
        // SAFETY: as this function's.
        let asked = unsafe { structure(question, NOTHING)? };
        // SAFETY: as this function's.
        let collective = unsafe { collective_of(&asked)? };
        let question = on.question(&collective, asked.bytes, data_type(asked.dtype)?);
        let choice = on.explain(&completed(question, &asked)?)?;
        let text = explained(&choice, format)?;
        // SAFETY: as this function's.
        unsafe { write_text(&text, "the explanation", buffer, capacity, out) }
    })
}

/// As antiphon_explain, but without a communicator: for a call of `world` ranks on `nodes` nodes, equally many on each, with
/// buffers on the host. It considers what is registered and built in, and asks the selector, which gets the question's tags and
/// order of sums; those that the question leaves open are taken from the environment (ANTIPHON_TAGS, ANTIPHON_REPRODUCIBLE). It
/// considers neither a tuning table nor installed plans, on which ranks agree when their communicator forms.
///
/// Any thread may call it at any time.
///
/// # Safety
/// `question` is null or as long as it says, its list of tags is there, and its texts end with a zero; `buffer` is null or has
/// `capacity` bytes; `out_bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_registry_explain(
    question: *const antiphon_question,
    format: i32,
    buffer: *mut c_char,
    capacity: u64,
    out_bytes: *mut u64,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_bytes, "out_bytes")?;
        // SAFETY: as this function's.
        let asked = unsafe { structure(question, NOTHING)? };
        let antiphon_question { world, nodes, .. } = asked;
        if world == 0 || nodes == 0 || world % nodes != 0 {
            return Err(Failure::argument(format!(
                "cannot explain a call: saw {world} ranks on {nodes} nodes, allowed equally many on each, and 1 or more"
            )));
        }
        if asked.reserved != 0 {
            let saw = asked.reserved;
            let text = format!("cannot use `question.reserved`: saw {saw}, allowed 0");
            return Err(Failure::argument(text));
        }
        let mut options = Options::default();
        if !asked.tags.is_null() || asked.tag_count > 0 {
            // SAFETY: as this function's.
            options.tags = unsafe { texts(asked.tags, asked.tag_count, "question.tags")? };
        }
        // SAFETY: as this function's.
        let collective = unsafe { collective_of(&asked)? };
        let (spread, dtype) = (Spread::here(world, nodes), data_type(asked.dtype)?);
        let question = Question {
            reproducible: switch(asked.reproducible)?.unwrap_or(options.reproducible),
            tags: &options.tags,
            ..Question::new(&collective, spread, asked.bytes, dtype)
        };
        let choice = Registry::process().choose(&completed(question, &asked)?);
        let text = explained(&choice.map_err(ExecutorError::from)?, format)?;
        // SAFETY: as this function's.
        unsafe { write_text(&text, "the explanation", buffer, capacity, out) }
    })
}
