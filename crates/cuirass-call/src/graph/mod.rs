//! Graphs: capture (`builder`), definitions.

pub mod builder;
pub mod definition;
