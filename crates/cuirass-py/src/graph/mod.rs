//! Graphs: builders, definitions, executable graphs, conditions.

pub mod builder;
pub mod callback;
pub mod condition;
pub mod definition;
pub mod exec;
pub mod keep;
mod options;

use pyo3::prelude::*;

/// Adds the classes of `cuirass.graph`.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<builder::GraphBuilder>()?;
    module.add_class::<condition::GraphCondition>()?;
    module.add_class::<definition::GraphDefinition>()?;
    module.add_class::<definition::GraphNode>()?;
    module.add_class::<exec::Graph>()?;
    builder::install(module.py())?;
    definition::install(module.py())?;
    exec::install(module.py())
}
