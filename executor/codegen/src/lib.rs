//! From a lowered program to GPU kernel source: pure text.
//!
//! Nothing is here yet: GPU engines come with the CUDA and ROCm devices. The crate holds the layer's place, so that
//! the arrows between layers are tested from the start.
#![forbid(unsafe_code)]
