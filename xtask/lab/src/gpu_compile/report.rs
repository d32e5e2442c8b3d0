//! What came out of the compilers.

use super::{Compiled, Text, failed};
use crate::{Error, Result};
use std::time::Duration;

/// What was found so far.
#[derive(Default)]
pub struct Report {
    compiled: usize,
    slowest: (Duration, String),
    registers: (u32, String),
    /// Bytes that calls save, at most.
    saved: (u32, String),
    wrong: Vec<Error>,
}

impl Report {
    /// Notes one; no register of what is `judged` may spill.
    pub fn add(&mut self, (text, judged): (&Text, bool), architecture: &str, compiled: &Compiled) {
        let name = format!("{} for {architecture}", text.name);
        if let Err(log) = &compiled.code {
            self.wrong.push(failed(&name, log));
            return;
        }
        self.compiled += 1;
        self.slowest = self.slowest.clone().max((compiled.took, name.clone()));
        let (registers, spilled) = compiled.resources();
        self.registers = self.registers.clone().max((registers, name.clone()));
        if judged && spilled > 0 {
            let saw = format!("{spilled} bytes of registers that spill");
            self.wrong.push(Error::message(format!("cannot accept {name}: saw {saw}, allowed 0")));
        } else {
            self.saved = self.saved.clone().max((spilled, name));
        }
    }

    /// Both together.
    pub fn and(mut self, other: Self) -> Self {
        self.compiled += other.compiled;
        self.slowest = self.slowest.max(other.slowest);
        self.registers = self.registers.max(other.registers);
        self.saved = self.saved.max(other.saved);
        self.wrong.extend(other.wrong);
        self
    }

    /// Says what there is to say.
    pub fn print(&self, took: Duration) {
        let Report { compiled, slowest, registers, saved, .. } = self;
        println!("{compiled} kernels in {:.0} s", took.as_secs_f64());
        println!("slowest: {:.2} s, {}", slowest.0.as_secs_f64(), slowest.1);
        println!("most registers: {}, {}", registers.0, registers.1);
        println!("most bytes of registers saved around calls: {}, {}", saved.0, saved.1);
        self.wrong.iter().for_each(|error| println!("{error}"));
    }

    /// Whether all is well.
    pub fn end(self) -> Result<()> {
        match self.wrong.len() {
            0 => Ok(()),
            n => {
                Err(Error::message(format!("{n} kernels are not as they should be, listed above")))
            }
        }
    }
}
