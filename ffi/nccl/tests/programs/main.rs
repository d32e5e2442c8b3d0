//! The built library in programs of all kinds.

mod calls;
mod endings;
mod example;
mod foreign;
mod forwards;
mod late;
mod meeting;
mod names;
mod registered;
mod registry;
mod unblocked;

#[path = "../tools/mod.rs"]
mod tools;
