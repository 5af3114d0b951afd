//! Pictures of graphs: as DOT, and drawn as SVG without any program's help.

use crate::graph::definition::{GraphDefinition, GraphNode, NodeKind, Places, nodes_of};
use crate::graph::recording::Attachments;
use crate::{Outcome, Result};
use cuirass_call::graph::{definition as call, node as node_call};
use cuirass_call::module as module_call;
use cuirass_call::sys::cuda::{CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphConditionalNodeType as Kind};
use cuirass_fault::Failure;
use layout::adt::dag::NodeHandle;
use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a picture shows of a node.
struct Box {
    label: String,
    color: &'static str,
}

/// What a picture shows of a graph: its nodes, the edges between them, and the graphs inside nodes.
struct Picture {
    boxes: Vec<Box>,
    edges: Vec<(usize, usize)>,
    children: Vec<Child>,
}

/// A graph inside a node.
struct Child {
    /// The node that has it.
    of: usize,
    /// What it is to the node: `then`.
    title: String,
    picture: Picture,
}

impl GraphDefinition {
    /// The graph in the DOT language: a node a box with its kind and, for kernels, the name (CUDA 12.3 and newer) and
    /// the shapes of the grid and of the block; child graphs, and bodies of conditional nodes, in frames of their own,
    /// to which dashed lines lead.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn to_dot(&self) -> Result<String> {
        let picture = self.read()?;
        let mut text = String::from("digraph graph_ {\n  rankdir=TB;\n  node [shape=box, style=\"rounded,filled\"];\n");
        write_dot(&picture, "n", 1, &mut text);
        text.push_str("}\n");
        Ok(text)
    }

    /// The graph as a drawing: as [`to_dot`](GraphDefinition::to_dot) says it, without frames.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn to_svg(&self) -> Result<String> {
        let picture = self.read()?;
        // The library that draws is not ours: a mistake of its own must not end the process.
        let drawn = catch_unwind(AssertUnwindSafe(|| draw(&picture)));
        drawn.map_err(|panic| {
            let text = crate::host_function::text_of(&*panic);
            Failure::internal(format_args!("the graph could not be drawn: {text}")).raise()
        })
    }
}

impl GraphDefinition {
    fn read(&self) -> Outcome<Picture> {
        let graph = self.alive()?;
        self.attachments().alone(|| read(graph, self.attachments()))
    }
}

fn read(graph: CUgraph, attachments: &Attachments) -> Outcome<Picture> {
    let nodes = nodes_of(graph)?;
    let places = Places::of(&nodes);
    let edges = call::get_edges(graph)?;
    let edges = edges.into_iter().filter_map(|(from, to)| Some((places.find(from)?, places.find(to)?))).collect();
    let mut picture = Picture { boxes: Vec::new(), edges, children: Vec::new() };
    let mut add_child = |of: usize, title: String, raw: CUgraph| {
        picture.children.push(Child { of, title, picture: read(raw, attachments)? });
        Outcome::Ok(())
    };
    for (at, node) in nodes.iter().enumerate() {
        let (mut label, color) = describe(*node)?;
        if node.kind() == NodeKind::CU_GRAPH_NODE_TYPE_GRAPH {
            add_child(at, "child graph".to_owned(), node_call::child_get_graph(node.as_raw())?)?;
        }
        if node.kind() == NodeKind::CU_GRAPH_NODE_TYPE_CONDITIONAL
            && let Some((kind, bodies)) = attachments.bodies_of(node.as_raw())
        {
            label = name_of(kind).to_owned();
            for (number, body) in bodies.into_iter().enumerate() {
                add_child(at, title_of(kind, number), body)?;
            }
        }
        picture.boxes.push(Box { label, color });
    }
    Ok(picture)
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::CU_GRAPH_COND_TYPE_IF => "if",
        Kind::CU_GRAPH_COND_TYPE_WHILE => "while",
        Kind::CU_GRAPH_COND_TYPE_SWITCH => "switch",
        _ => "conditional",
    }
}

/// What a body is to its node.
fn title_of(kind: Kind, number: usize) -> String {
    match (kind, number) {
        (Kind::CU_GRAPH_COND_TYPE_IF, 0) => "then".to_owned(),
        (Kind::CU_GRAPH_COND_TYPE_IF, _) => "else".to_owned(),
        (Kind::CU_GRAPH_COND_TYPE_WHILE, _) => "body".to_owned(),
        _ => format!("case {number}"),
    }
}

fn describe(node: GraphNode) -> Outcome<(String, &'static str)> {
    let plain = |name: &str, color| Ok((name.to_owned(), color));
    match node.kind() {
        NodeKind::CU_GRAPH_NODE_TYPE_KERNEL => {
            let params = node_call::kernel_get_params(node.as_raw())?;
            let name = kernel_name(&params)?;
            let grid = [params.gridDimX, params.gridDimY, params.gridDimZ];
            let block = [params.blockDimX, params.blockDimY, params.blockDimZ];
            Ok((format!("{name}\n{} x {}", shape(grid), shape(block)), "#c8e6c9"))
        }
        NodeKind::CU_GRAPH_NODE_TYPE_MEMSET => {
            let params = node_call::memset_get_params(node.as_raw())?;
            let bytes = params.width.saturating_mul(params.height.max(1)).saturating_mul(params.elementSize as usize);
            Ok((format!("fill\n{bytes} bytes"), "#bbdefb"))
        }
        NodeKind::CU_GRAPH_NODE_TYPE_MEMCPY => plain("copy", "#bbdefb"),
        NodeKind::CU_GRAPH_NODE_TYPE_HOST => plain("host callback", "#ffe0b2"),
        NodeKind::CU_GRAPH_NODE_TYPE_GRAPH => plain("child graph", "#e1bee7"),
        NodeKind::CU_GRAPH_NODE_TYPE_EMPTY => plain("empty", "#eeeeee"),
        NodeKind::CU_GRAPH_NODE_TYPE_WAIT_EVENT => plain("wait for event", "#fff9c4"),
        NodeKind::CU_GRAPH_NODE_TYPE_EVENT_RECORD => plain("record event", "#fff9c4"),
        NodeKind::CU_GRAPH_NODE_TYPE_MEM_ALLOC => plain("allocate", "#b2dfdb"),
        NodeKind::CU_GRAPH_NODE_TYPE_MEM_FREE => plain("free", "#b2dfdb"),
        NodeKind::CU_GRAPH_NODE_TYPE_CONDITIONAL => plain("conditional", "#e1bee7"),
        other => Ok((format!("node of kind {}", other.0), "#eeeeee")),
    }
}

/// A kernel's name, where the driver can tell it (CUDA 12.3 and newer).
fn kernel_name(params: &CUDA_KERNEL_NODE_PARAMS) -> Outcome<String> {
    let (function, kernel) = (params.func, params.kern);
    if cuirass_call::load::driver_version().is_ok_and(|version| version < 12030) {
        return Ok("kernel".to_owned());
    }
    // A node has the one or the other, and the function goes first.
    match (function.is_null(), kernel.is_null()) {
        (false, _) => module_call::func_get_name(function),
        (true, false) => module_call::kernel_get_name(kernel),
        (true, true) => Ok("kernel".to_owned()),
    }
}

fn shape([x, y, z]: [u32; 3]) -> String {
    match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("({x}, {y})"),
        _ => format!("({x}, {y}, {z})"),
    }
}

fn write_dot(picture: &Picture, prefix: &str, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for (at, Box { label, color }) in picture.boxes.iter().enumerate() {
        let label = escaped(label);
        text.push_str(&format!("{indent}{prefix}{at} [label=\"{label}\", fillcolor=\"{color}\"];\n"));
    }
    for (from, to) in &picture.edges {
        text.push_str(&format!("{indent}{prefix}{from} -> {prefix}{to};\n"));
    }
    for (number, Child { of, title, picture: child }) in picture.children.iter().enumerate() {
        text.push_str(&format!("{indent}subgraph cluster_{prefix}{of}_{number} {{\n{indent}  label=\"{title}\";\n"));
        let inside = format!("{prefix}{of}_{number}_");
        write_dot(child, &inside, depth + 1, text);
        text.push_str(&format!("{indent}}}\n"));
        for root in child.roots() {
            text.push_str(&format!("{indent}{prefix}{of} -> {inside}{root} [style=dashed];\n"));
        }
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The most nodes that are drawn: a drawing of more takes long, and shows nothing.
const MOST_DRAWN: usize = 1000;

impl Picture {
    /// How many nodes there are in all.
    fn count(&self) -> usize {
        self.boxes.len() + self.children.iter().map(|child| child.picture.count()).sum::<usize>()
    }

    /// The nodes that wait for no other.
    fn roots(&self) -> impl Iterator<Item = usize> {
        let mut waits = vec![false; self.boxes.len()];
        for (_, to) in &self.edges {
            if let Some(waits) = waits.get_mut(*to) {
                *waits = true;
            }
        }
        waits.into_iter().enumerate().filter_map(|(node, waits)| (!waits).then_some(node))
    }
}

fn draw(picture: &Picture) -> String {
    let mut graph = VisualGraph::new(Orientation::TopToBottom);
    let mut writer = SVGWriter::new();
    match picture.count() {
        0 => {
            add_box(&mut graph, "a graph without nodes", "#eeeeee");
        }
        count if count > MOST_DRAWN => {
            add_box(&mut graph, &format!("a graph of {count} nodes"), "#eeeeee");
        }
        _ => {
            add(picture, &mut graph);
        }
    }
    graph.do_it(false, false, false, &mut writer);
    // The library writes Times, which is hard to read at this size.
    writer.finalize().replace("font-family: Times, serif", "font-family: Helvetica, Arial, DejaVu Sans, sans-serif")
}

fn add_box(graph: &mut VisualGraph, label: &str, color: &str) -> NodeHandle {
    let longest = label.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let lines = label.lines().count().max(1);
    // The library's letters are about 9 units wide and 21 high.
    #[allow(clippy::cast_precision_loss)]
    let size = Point::new(longest as f64 * 9. + 20., lines as f64 * 21. + 14.);
    graph.add_node(Element::create(ShapeKind::new_box(label), style(color), Orientation::TopToBottom, size))
}

/// Adds a graph's nodes; the nodes of a child graph hang on the node that has it, by dashed lines.
fn add(picture: &Picture, graph: &mut VisualGraph) -> Vec<NodeHandle> {
    let handles: Vec<NodeHandle> =
        picture.boxes.iter().map(|Box { label, color }| add_box(graph, label, color)).collect();
    for (from, to) in &picture.edges {
        if let (Some(from), Some(to)) = (handles.get(*from), handles.get(*to)) {
            graph.add_edge(Arrow::simple(""), *from, *to);
        }
    }
    for Child { of, title, picture: child } in &picture.children {
        let inside = add(child, graph);
        for root in child.roots() {
            if let (Some(node), Some(root)) = (handles.get(*of), inside.get(root)) {
                let mut arrow = Arrow::simple(title);
                arrow.line_style = layout::core::style::LineStyleKind::Dashed;
                graph.add_edge(arrow, *node, *root);
            }
        }
    }
    handles
}

fn style(color: &str) -> StyleAttr {
    use layout::core::color::Color;
    // `#rrggbb` as the library wants it: with full opacity behind.
    let number = u32::from_str_radix(color.trim_start_matches('#'), 16).unwrap_or(0x00ee_eeee);
    // One size of letters throughout, that of arrows: the library writes sizes in no certain order.
    StyleAttr::new(Color::new(0x3747_4fff), 1, Some(Color::new(number << 8 | 0xff)), 6, 15)
}
