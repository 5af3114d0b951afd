#![doc = "Generated CUDA types: the driver (`cuda`) and its compiler (`nvrtc`). No logic."]
#![allow(
    unpredictable_function_pointer_comparisons,
    missing_docs,
    non_snake_case,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    clippy::pedantic
)]

pub mod cuda;
pub mod nvrtc;
