//! Pictures of graphs: as DOT, and drawn as SVG without any program's help.

use crate::graph::definition::{GraphDefinition, GraphNode, NodeKind, nodes_of};
use crate::{Outcome, Result};
use cuirass_call::graph::{definition as call, node as node_call};
use cuirass_call::module as module_call;
use cuirass_call::sys::cuda::CUgraph;
use cuirass_fault::Failure;
use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;
use std::fmt::Write as _;
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
    /// The node that has it, and the graph.
    children: Vec<(usize, Picture)>,
}

impl GraphDefinition {
    /// The graph in the DOT language: a node a box with its kind and, for kernels, the name and the shape of the grid;
    /// child graphs in frames of their own.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn to_dot(&self) -> Result<String> {
        let picture = read(self.alive()?)?;
        let mut text = String::from("digraph graph_ {\n  rankdir=TB;\n  node [shape=box, style=\"rounded,filled\"];\n");
        write_dot(&picture, "n", 1, &mut text);
        text.push_str("}\n");
        Ok(text)
    }

    /// The graph as a drawing.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn to_svg(&self) -> Result<String> {
        let picture = read(self.alive()?)?;
        // The library that draws is not ours: a mistake of its own must not end the process.
        let drawn = catch_unwind(AssertUnwindSafe(|| draw(&picture)));
        drawn.map_err(|panic| {
            let text = crate::host_function::text_of(&*panic);
            Failure::internal(format_args!("the graph could not be drawn: {text}")).raise()
        })
    }
}

fn read(graph: CUgraph) -> Outcome<Picture> {
    let nodes = nodes_of(graph)?;
    let place = |raw| nodes.iter().position(|node| node.as_raw() == raw);
    let edges = call::get_edges(graph)?;
    let edges = edges.into_iter().filter_map(|(from, to)| Some((place(from)?, place(to)?))).collect();
    let mut picture = Picture { boxes: Vec::new(), edges, children: Vec::new() };
    for (at, node) in nodes.iter().enumerate() {
        let (label, color) = describe(*node)?;
        picture.boxes.push(Box { label, color });
        if node.kind() == NodeKind::CU_GRAPH_NODE_TYPE_GRAPH {
            picture.children.push((at, read(node_call::child_get_graph(node.as_raw())?)?));
        }
    }
    Ok(picture)
}

fn describe(node: GraphNode) -> Outcome<(String, &'static str)> {
    let plain = |name: &str, color| Ok((name.to_owned(), color));
    match node.kind() {
        NodeKind::CU_GRAPH_NODE_TYPE_KERNEL => {
            let params = node_call::kernel_get_params(node.as_raw())?;
            let name = kernel_name(params.kern)?;
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

/// A kernel's name, where the driver can tell it (CUDA 12.3 and newer, and kernels of libraries).
fn kernel_name(kernel: cuirass_call::sys::cuda::CUkernel) -> Outcome<String> {
    if kernel.is_null() || cuirass_call::load::driver_version().is_ok_and(|version| version < 12030) {
        return Ok("kernel".to_owned());
    }
    module_call::kernel_get_name(kernel)
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
        // Writing to a string does not fail.
        if writeln!(text, "{indent}{prefix}{at} [label=\"{label}\", fillcolor=\"{color}\"];").is_err() {}
    }
    for (from, to) in &picture.edges {
        if writeln!(text, "{indent}{prefix}{from} -> {prefix}{to};").is_err() {}
    }
    for (at, child) in &picture.children {
        if writeln!(text, "{indent}subgraph cluster_{prefix}{at} {{\n{indent}  label=\"in node {at}\";").is_err() {}
        write_dot(child, &format!("{prefix}{at}_"), depth + 1, text);
        if writeln!(text, "{indent}}}").is_err() {}
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn draw(picture: &Picture) -> String {
    let mut graph = VisualGraph::new(Orientation::TopToBottom);
    add(picture, &mut graph);
    let mut writer = SVGWriter::new();
    if picture.boxes.is_empty() {
        let style = style("#eeeeee");
        let empty = ShapeKind::new_box("a graph without nodes");
        graph.add_node(Element::create(empty, style, Orientation::TopToBottom, Point::new(190., 40.)));
    }
    graph.do_it(false, false, false, &mut writer);
    writer.finalize()
}

/// Adds a graph's nodes; the nodes of a child graph hang on the node that has it, by dashed lines.
fn add(picture: &Picture, graph: &mut VisualGraph) -> Vec<layout::adt::dag::NodeHandle> {
    let mut handles = Vec::new();
    for Box { label, color } in &picture.boxes {
        let longest = label.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let lines = label.lines().count().max(1);
        // The library's letters are about 8.5 units wide and 20 high.
        #[allow(clippy::cast_precision_loss)]
        let size = Point::new(longest as f64 * 8.5 + 20., lines as f64 * 20. + 14.);
        let shape = ShapeKind::new_box(label);
        handles.push(graph.add_node(Element::create(shape, style(color), Orientation::TopToBottom, size)));
    }
    for (from, to) in &picture.edges {
        if let (Some(from), Some(to)) = (handles.get(*from), handles.get(*to)) {
            graph.add_edge(Arrow::simple(""), *from, *to);
        }
    }
    for (at, child) in &picture.children {
        let roots: Vec<usize> =
            (0..child.boxes.len()).filter(|node| !child.edges.iter().any(|(_, to)| to == node)).collect();
        let inside = add(child, graph);
        for root in roots {
            if let (Some(node), Some(root)) = (handles.get(*at), inside.get(root)) {
                let mut arrow = Arrow::simple("");
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
    StyleAttr::new(Color::new(0x3747_4fff), 1, Some(Color::new(number << 8 | 0xff)), 6, 14)
}
