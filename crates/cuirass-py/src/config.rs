//! `LaunchConfig`: the shape of a launch.

use crate::handle::Equal;
use crate::number::{self, Refused, out_of_range, read};
use crate::raw::{object, raw};
use crate::slot::Shared;
use cuirass::LaunchConfig as Config;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The shape of a launch.
///
/// Parameters
/// ----------
/// grid : int or tuple of int
///     Blocks in up to three dimensions; clusters, where ``cluster`` is given.
/// cluster : int or tuple of int, optional
///     Blocks of a cluster in up to three dimensions (compute capability 9.0 and newer).
/// block : int or tuple of int
///     Threads of a block in up to three dimensions.
/// shmem_size : int, optional
///     Dynamic shared memory of a block, in bytes; 0 without it.
/// is_cooperative : bool
///     Whether all blocks are resident at once, so that they may wait for each other.
/// programmatic_stream_serialization : bool
///     Whether the kernel may start before the one ahead of it on the stream has ended.
///
/// Raises
/// ------
/// ValueError
///     If a size is no int or tuple of up to three, or is less than 1.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "LaunchConfig")]
pub struct LaunchConfig(Shared<Config>);

impl LaunchConfig {
    /// The values as they are now.
    #[inline]
    pub fn get(&self) -> Config {
        self.0.get()
    }
}

// A grid and a block alone.
raw!(constructor static NEW = |call| {
    let [grid, block] = call.grid_and_block()?;
    let config = sizes(&grid, "grid").and_then(|grid| Ok(Config::new(grid, sizes(&block, "block")?)));
    Some(object(call, config, |config| LaunchConfig(Shared::new(config))))
});

/// Puts the constructor in, in the form that is called most.
pub fn install(py: Python<'_>) -> PyResult<()> {
    NEW.replace_constructor(&py.get_type::<LaunchConfig>())
}

/// Sizes in three dimensions.
#[inline]
fn sizes(object: &Bound<'_, PyAny>, name: &str) -> PyResult<[u32; 3]> {
    if object.is_exact_instance_of::<PyInt>() || object.is_instance_of::<PyInt>() {
        return Ok([size(object, name)?, 1, 1]);
    }
    if let Ok(tuple) = object.cast::<PyTuple>()
        && (1..=3).contains(&tuple.len())
    {
        let mut sizes = [1; 3];
        for (place, item) in sizes.iter_mut().zip(tuple.iter()) {
            *place = size(&item, name)?;
        }
        return Ok(sizes);
    }
    Err(not_sizes(object, name))
}

#[cold]
fn not_sizes(object: &Bound<'_, PyAny>, name: &str) -> PyErr {
    let given = match object.cast::<PyTuple>() {
        Ok(tuple) => format!("a tuple of {}", tuple.len()),
        Err(_other) => object.get_type().name().map(|name| name.to_string()).unwrap_or_default(),
    };
    PyValueError::new_err(format!("LaunchConfig.{name} must be an int or a tuple of up to 3 ints, not {given}"))
}

#[inline]
fn size(object: &Bound<'_, PyAny>, name: &str) -> PyResult<u32> {
    match read(object.as_borrowed()) {
        Ok(size @ 1..) => Ok(size),
        other => Err(not_a_size(other, name)),
    }
}

#[cold]
fn not_a_size(size: Result<u32, Refused>, name: &str) -> PyErr {
    let name = format!("LaunchConfig.{name}");
    match size {
        Ok(size) => out_of_range(&name, &1, &u32::MAX, &size.to_string()),
        Err(Refused::Kind(kind)) => {
            PyValueError::new_err(format!("{name} must be an int or a tuple of up to 3 ints, not a tuple with {kind}"))
        }
        Err(refused) => refused.error_of(&name, "an int", &1, &u32::MAX),
    }
}

fn bytes(object: &Bound<'_, PyAny>) -> PyResult<u32> {
    number::of(object, "LaunchConfig.shmem_size")
}

fn optional_sizes(object: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Option<[u32; 3]>> {
    object.filter(|object| !object.is_none()).map(|object| sizes(object, name)).transpose()
}

fn needed<'a, 'py>(object: Option<&'a Bound<'py, PyAny>>, name: &str) -> PyResult<&'a Bound<'py, PyAny>> {
    object.ok_or_else(|| {
        PyValueError::new_err(format!("LaunchConfig.{name} must be given: an int or a tuple of up to 3"))
    })
}

#[pymethods]
impl LaunchConfig {
    #[new]
    #[pyo3(signature = (grid=None, cluster=None, block=None, shmem_size=None, is_cooperative=false, programmatic_stream_serialization=false))]
    fn new(
        grid: Option<&Bound<'_, PyAny>>,
        cluster: Option<&Bound<'_, PyAny>>,
        block: Option<&Bound<'_, PyAny>>,
        shmem_size: Option<&Bound<'_, PyAny>>,
        is_cooperative: bool,
        programmatic_stream_serialization: bool,
    ) -> PyResult<LaunchConfig> {
        Ok(LaunchConfig(Shared::new(Config {
            grid: sizes(needed(grid, "grid")?, "grid")?,
            cluster: optional_sizes(cluster, "cluster")?,
            block: sizes(needed(block, "block")?, "block")?,
            shared_bytes: shmem_size.map(bytes).transpose()?.unwrap_or(0),
            cooperative: is_cooperative,
            programmatic_stream_serialization,
        })))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<LaunchConfig>().ok().map(|other| {
            let other = other.get().get();
            self.get() == other
        }))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.get().hash(&mut hasher);
        hasher.finish()
    }

    /// Blocks in each dimension; clusters, where ``cluster`` is set.
    #[getter]
    fn grid(&self) -> (u32, u32, u32) {
        self.get().grid.into()
    }

    #[setter]
    fn set_grid(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = sizes(value, "grid")?;
        self.0.change(|config| config.grid = value);
        Ok(())
    }

    /// Blocks of a cluster in each dimension; ``None`` without clusters.
    #[getter]
    fn cluster(&self) -> Option<(u32, u32, u32)> {
        self.get().cluster.map(Into::into)
    }

    #[setter]
    fn set_cluster(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = optional_sizes(Some(value), "cluster")?;
        self.0.change(|config| config.cluster = value);
        Ok(())
    }

    /// Threads of a block in each dimension.
    #[getter]
    fn block(&self) -> (u32, u32, u32) {
        self.get().block.into()
    }

    #[setter]
    fn set_block(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = sizes(value, "block")?;
        self.0.change(|config| config.block = value);
        Ok(())
    }

    /// Dynamic shared memory of a block, in bytes.
    #[getter]
    fn shmem_size(&self) -> u32 {
        self.get().shared_bytes
    }

    #[setter]
    fn set_shmem_size(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = if value.is_none() { 0 } else { bytes(value)? };
        self.0.change(|config| config.shared_bytes = value);
        Ok(())
    }

    /// Whether all blocks are resident at once.
    #[getter]
    fn is_cooperative(&self) -> bool {
        self.get().cooperative
    }

    #[setter]
    fn set_is_cooperative(&self, value: bool) {
        self.0.change(|config| config.cooperative = value);
    }

    /// Whether the kernel may start before the one ahead of it on the stream has ended.
    #[getter]
    fn programmatic_stream_serialization(&self) -> bool {
        self.get().programmatic_stream_serialization
    }

    #[setter]
    fn set_programmatic_stream_serialization(&self, value: bool) {
        self.0.change(|config| config.programmatic_stream_serialization = value);
    }

    fn __repr__(&self) -> String {
        let config = self.get();
        let (grid, block): ((u32, u32, u32), (u32, u32, u32)) = (config.grid.into(), config.block.into());
        let cluster = config.cluster.map_or_else(|| "None".to_owned(), |[x, y, z]| format!("({x}, {y}, {z})"));
        let python = |value| if value { "True" } else { "False" };
        format!(
            "LaunchConfig(grid={grid:?}, cluster={cluster}, block={block:?}, shmem_size={}, is_cooperative={}, \
             programmatic_stream_serialization={})",
            config.shared_bytes,
            python(config.cooperative),
            python(config.programmatic_stream_serialization)
        )
    }
}
