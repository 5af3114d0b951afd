//! Nodes of graphs.
