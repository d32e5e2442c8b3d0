//! Calls by name, served by a plan of one's own and by code, and a selector that chooses.
//!
//! `cargo run --release --example registry` says who serves an allreduce of which size.

use antiphon::plan::builder::{BuildError, ProgramBuilder};
use antiphon::plan::model::{Collective, Plan};
use antiphon::{
    Call, Code, CodeCall, Communicator, DataType, ExecutorError, Op, Options, Registry, Terms,
};
use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;

/// An allreduce of two ranks: each tells the other that its input is there, and adds both up.
fn pull(name: &str) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new(name, Collective::AllReduce, 2).in_place(false);
    let channel = [p.channel(0, 1)];
    for me in [0, 1] {
        let tb = p.block(me);
        tb.signal(&channel);
        tb.wait(&channel);
        tb.reduce(&[p.input(0).all(), p.input(1).all()], p.output(me).all());
        // Nobody leaves while the other still reads.
        tb.signal(&channel);
        tb.wait(&channel);
    }
    p.build()
}

/// The same plan, run by code that says so.
struct Talkative(Plan);

impl Code for Talkative {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn fits(&self, question: &antiphon::executor::selection::Question<'_>) -> Result<(), String> {
        if question.in_place { Err("is for calls out of place".to_owned()) } else { Ok(()) }
    }

    unsafe fn run(&self, call: &CodeCall<'_>) -> Result<(), ExecutorError> {
        let rank = call.executor.communicator().rank();
        let CodeCall { input_bytes, op, .. } = call;
        // Who reads may have gone, as `head` goes: that is no failure.
        let _ = writeln!(io::stdout(), "  rank {rank}: code reduces {input_bytes} bytes by {op:?}");
        let plan = call.executor.load(&self.0)?;
        let buffers = ((call.input, call.input_bytes), (call.output, call.output_bytes));
        let mut launch = Call::new(&plan, call.dtype, buffers.0, buffers.1);
        launch.op = call.op;
        match call.stream {
            // SAFETY: the buffers are the call's until it is complete, as the contract of `run` says.
            Some(stream) => unsafe { call.executor.execute(&launch, stream) },
            // SAFETY: as above.
            None => unsafe { call.executor.run(&launch) },
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // `Registry::process()` is the one that communicators use unless their options say otherwise.
    let registry = Registry::new();
    let small = Terms { max_bytes: 4096, ..Terms::default() };
    registry.register(pull("pull")?, small)?;
    let talkative = Arc::new(Talkative(pull("pull under another name")?));
    registry.register_code("talkative", 1, talkative, Terms::default())?;
    registry.set_selector(|offer| match offer.question.bytes {
        // What the rules say.
        0..=65536 => None,
        _ => Some("allreduce_zero_copy".to_owned()),
    });

    let ranks =
        Communicator::in_process_with(2, &Options::default().with_registry(registry.clone()))?;
    for elements in [16, 4096, 1 << 20] {
        let bytes = elements as u64 * 4;
        let calls = ranks[0].collectives();
        let question = calls.question(&Collective::AllReduce, bytes, DataType::F32);
        let _ = write!(io::stdout(), "{question}\n{}", ranks[0].explain(&question)?);
        std::thread::scope(|scope| {
            for rank in &ranks {
                scope.spawn(move || {
                    let input = vec![rank.rank() as f32 + 1.0; elements];
                    let mut sums = vec![0.0; elements];
                    rank.all_reduce_into(&input, &mut sums, Op::Sum).expect("the sum");
                    assert!(sums.iter().all(|&sum| sum == 3.0));
                });
            }
        });
    }
    Ok(())
}
