//! Graphs: nodes and the order between them, captures in progress, executable graphs.

pub mod beside;
pub mod builder;
pub mod capture;
pub mod definition;
pub mod exec;
mod launch;
pub mod node;

pub use capture::{Capture, Capturing, NodeSet};
pub use node::condition;

use crate::c::HostFunction;
use crate::handle::{Handle, Kind, Table};
use crate::state::State;
use crate::status::{Answer, CONTEXT_IS_DESTROYED, INVALID_VALUE};
use crate::task::{NodeKind, Work};
use std::collections::HashSet;

/// Graphs and what belongs to them.
pub struct Graphs {
    /// Graphs.
    pub graphs: Table<Graph>,
    /// Nodes of all graphs.
    pub nodes: Table<Node>,
    /// Executable graphs.
    pub execs: Table<exec::Exec>,
    /// Captures in progress.
    pub captures: Table<Capture>,
    /// User objects.
    pub user_objects: Table<definition::UserObject>,
}

/// A graph.
#[derive(Default)]
pub struct Graph {
    /// Its nodes, in the order in which they were added.
    pub nodes: Vec<Handle>,
    /// The graph that it is a child node's body of.
    pub parent: Option<Handle>,
    /// Whether a capture is still adding to it.
    pub capturing: bool,
    /// Whether it is a conditional body that a failed capture added to: the real driver crashes when it is destroyed.
    pub broken: bool,
    /// User objects that it holds, with how many references.
    pub held: Vec<(Handle, u32)>,
    /// Its conditions.
    pub conditions: Vec<std::sync::Arc<condition::Condition>>,
}

/// A node.
#[derive(Clone)]
pub struct Node {
    /// Its graph.
    pub graph: Handle,
    /// What sort of node it is.
    pub kind: NodeKind,
    /// What it does.
    pub work: Work,
    /// The nodes that must be done before it.
    pub after: Vec<Handle>,
    /// The graph that it runs, if it is a child graph node.
    pub child: Option<Handle>,
    /// What it asks and runs, if it is a conditional node.
    pub conditional: Option<condition::Conditional>,
    /// The node that it was cloned from.
    pub original: Option<Handle>,
}

impl Graphs {
    /// None at all.
    pub fn new() -> Self {
        Self {
            graphs: Table::new(Kind::Graph),
            nodes: Table::new(Kind::GraphNode),
            execs: Table::new(Kind::GraphExec),
            captures: Table::new(Kind::Capture),
            user_objects: Table::new(Kind::UserObject),
        }
    }

    /// Adds a node to a graph.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a dependency that is not of the graph or that is named twice.
    pub fn add(&mut self, graph: Handle, kind: NodeKind, work: Work, after: &[Handle]) -> Answer<Handle> {
        self.graphs.get(graph, INVALID_VALUE)?;
        let mut seen = HashSet::new();
        for node in after {
            if self.nodes.get(*node, INVALID_VALUE)?.graph != graph || !seen.insert(*node) {
                return Err(INVALID_VALUE);
            }
        }
        let node = self.nodes.insert(Node {
            graph,
            kind,
            work,
            after: after.to_vec(),
            child: None,
            conditional: None,
            original: None,
        })?;
        self.graphs.get_mut(graph, INVALID_VALUE)?.nodes.push(node);
        Ok(node)
    }

    /// Ends a graph with its nodes and their child graphs; answers the destructors of user objects that are due.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a graph that is none.
    pub fn destroy(&mut self, graph: Handle) -> Answer<Vec<HostFunction>> {
        let ended = self.graphs.remove(graph, INVALID_VALUE, INVALID_VALUE)?;
        if ended.broken {
            condition::broken("a graph was destroyed");
        }
        let mut destructors = Vec::new();
        for node in ended.nodes {
            let Some(node) = self.nodes.end(node, INVALID_VALUE) else { continue };
            let bodies = node.conditional.into_iter().flat_map(|conditional| conditional.bodies);
            for inner in node.child.into_iter().chain(bodies) {
                destructors.extend(self.destroy(inner)?);
            }
        }
        for (object, count) in ended.held {
            destructors.extend(self.release_object(object, count)?);
        }
        Ok(destructors)
    }

    /// The nodes in an order in which each stands behind those that it waits for; `None` if there is a cycle.
    pub fn order(&self, graph: Handle) -> Option<Vec<Handle>> {
        let nodes = &self.graphs.peek(graph)?.nodes;
        let mut placed: HashSet<Handle> = HashSet::new();
        let mut order = Vec::with_capacity(nodes.len());
        while order.len() < nodes.len() {
            let before = order.len();
            for node in nodes {
                let ready = |node: &Node| node.after.iter().all(|earlier| placed.contains(earlier));
                if !placed.contains(node) && self.nodes.peek(*node).is_some_and(ready) {
                    placed.insert(*node);
                    order.push(*node);
                }
            }
            if order.len() == before {
                return None;
            }
        }
        Some(order)
    }
}

impl Default for Graphs {
    fn default() -> Self {
        Self::new()
    }
}

/// A context ends: captures of its streams go with it. (Graphs belong to no context.)
pub fn context_ended(state: &mut State, context: Handle) {
    for capture in state.graphs.captures.handles(|capture| capture.context == context) {
        if state.graphs.captures.peek(capture).is_some_and(|capture| capture.poisoned) {
            condition::poisoned("the context of a spoilt capture was released");
        }
        state.end_capture(capture, CONTEXT_IS_DESTROYED);
    }
}
