//! What ranks do together, as threads and as processes.

mod code;
mod contexts;
mod departures;
mod ends_of_transfers;
mod environment;
mod failures;
mod forks;
mod groups;
mod hosts;
mod in_process;
mod installed;
mod mismatches;
mod names;
mod over_nodes;
mod processes;
mod proxy;
mod registry;
mod reproducible;
mod rooted;
mod tuning;

mod support {
    pub mod children;
    pub mod ports;
    pub mod processes;
    pub mod requests;
    pub mod threads;
}
