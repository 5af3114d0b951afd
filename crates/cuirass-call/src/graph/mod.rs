//! Graphs: capture (`builder`), definitions, their nodes, and executable graphs.

pub mod builder;
pub mod definition;
pub mod exec;
pub mod node;
