//! What a view is made of: where its memory is, how its elements lie, and what keeps it.

use crate::memory::Buffer;
use crate::view::cupy;
use crate::view::dlpack::{self, CUDA, Device, Dims, refused};
use crate::view::dtype::{self, Dtype};
use crate::view::import::Taken;
use crate::view::interface;
use crate::view::layout::StridedLayout;
use crate::view::protocol::{self, Offers};
use crate::view::strided::StridedMemoryView;
use cuirass::view::StridedLayout as Layout;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// What a view is made of.
pub struct Parts {
    /// The address of the first element.
    pub pointer: u64,
    pub device: Device,
    /// Whether memory of the host's may be page-locked, and a device's managed, which the driver is asked when it
    /// matters.
    pub ask_driver: bool,
    pub shape: Dims,
    /// In elements.
    pub strides: Dims,
    /// Whether the strides were given, and not only follow from the shape.
    pub has_strides: bool,
    /// The bytes of an element; 0 for a view of nothing.
    pub itemsize: usize,
    pub dtype: Dtype,
    pub readonly: bool,
    pub exporter: Option<Py<PyAny>>,
    pub holds: Holds,
}

/// What a view holds for its memory, beside its exporter.
pub enum Holds {
    Nothing,
    /// What DLPack gave, which is deleted with the view.
    Tensor(Taken),
    /// A buffer's memory, of which the view has a share.
    Buffer(Use),
    /// The view that this is another view of, and whose memory it shares.
    View(Parent),
}

/// The view that another one was made of by `view()`.
pub struct Parent {
    pub view: Py<StridedMemoryView>,
    /// As it was given; its offsets count from the parent's first element.
    pub layout: Py<StridedLayout>,
}

impl Parts {
    /// Refuses a view of nothing.
    pub fn laid_out(&self) -> PyResult<&Parts> {
        match self.itemsize {
            0 => Err(PyValueError::new_err("this view is of nothing: it has no shape, strides or type")),
            _ => Ok(self),
        }
    }

    /// The view that this is another view of.
    pub fn parent(&self) -> Option<&Parent> {
        match &self.holds {
            Holds::View(parent) => Some(parent),
            Holds::Nothing | Holds::Tensor(_) | Holds::Buffer(_) => None,
        }
    }

    /// The device as it is exported.
    pub fn exported_device(&self, py: Python<'_>) -> PyResult<Device> {
        if self.ask_driver && self.device.kind == CUDA {
            return cupy::exported(py, self.pointer, self.device);
        }
        Ok(self.device.exported())
    }

    /// How the elements lie, from the first one on.
    pub fn layout(&self) -> cuirass::Result<Layout> {
        Layout::new(&self.shape, self.has_strides.then_some(self.strides.as_slice()), self.itemsize)
    }

    /// The first byte of the memory and the one behind the last: of the buffer, or of the elements.
    fn limits(&self) -> Option<(u64, u64)> {
        if let Holds::Buffer(buffer) = &self.holds {
            let (address, bytes) = buffer.0.get().range();
            return Some((address, address.checked_add(bytes as u64)?));
        }
        if self.shape.contains(&0) {
            return Some((self.pointer, self.pointer));
        }
        let (low, high) = dlpack::span(&self.shape, &self.strides, self.itemsize)?;
        Some((self.pointer.checked_add_signed(low)?, self.pointer.checked_add_signed(high)?))
    }
}

/// A use of a buffer's memory.
pub struct Use(pub Py<Buffer>);

impl Use {
    pub fn of(buffer: &Bound<'_, Buffer>) -> PyResult<Use> {
        buffer.get().enter_until_left()?;
        Ok(Use(buffer.clone().unbind()))
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.get().leave();
    }
}

/// The parts of a view of an object, by DLPack if it has that, else by its CUDA array interface.
pub fn of_any(object: &Bound<'_, PyAny>, stream_ptr: Option<&Bound<'_, PyAny>>) -> PyResult<Parts> {
    let consumer = protocol::consumer(stream_ptr)?;
    of_offers(object, protocol::offers(object)?, consumer)
}

/// The same of an object whose class has been looked at.
pub fn of_offers(object: &Bound<'_, PyAny>, offers: Offers, consumer: i64) -> PyResult<Parts> {
    match offers {
        Offers::Methods => {}
        offers => return protocol::from_offers(object, offers, consumer),
    }
    let py = object.py();
    if object.hasattr(intern!(py, "__dlpack__"))? {
        return protocol::by_methods(object, consumer);
    }
    if object.hasattr(intern!(py, "__cuda_array_interface__"))? {
        return interface::from_cuda(object, consumer);
    }
    let kind = object.get_type().name()?;
    Err(refused(format!("{kind} has neither __dlpack__ nor __cuda_array_interface__")))
}

/// The parts of a view of a buffer's memory.
pub fn of_buffer(
    buffer: &Bound<'_, PyAny>,
    shape: &Bound<'_, PyAny>,
    strides: Option<&Bound<'_, PyAny>>,
    itemsize: Option<usize>,
    dtype: Option<&Bound<'_, PyAny>>,
    is_readonly: bool,
) -> PyResult<Parts> {
    let py = buffer.py();
    let Ok(buffer) = buffer.cast::<Buffer>() else {
        let kind = buffer.get_type().name()?;
        return Err(PyTypeError::new_err(format!("buffer must be a Buffer, not {kind}")));
    };
    let (dtype, itemsize) = typed(py, dtype, itemsize)?;
    let shape = tuple(shape, "shape")?;
    let (strides, has_strides) = match strides {
        None => (dlpack::compact_strides(&shape), false),
        Some(strides) => (tuple(strides, "strides")?, !shape.is_empty()),
    };
    if strides.len() != shape.len() {
        let message = format!("the shape has {} dimensions, the strides {}", shape.len(), strides.len());
        return Err(PyValueError::new_err(message));
    }
    let held = Use::of(buffer)?;
    let (address, bytes) = buffer.get().range();
    check_fits(address, bytes, &shape, &strides, itemsize)?;
    let device = buffer.get().dlpack_device(py)?;
    Ok(Parts {
        pointer: address,
        device,
        ask_driver: false,
        shape,
        strides,
        has_strides,
        itemsize,
        dtype,
        readonly: is_readonly,
        exporter: Some(buffer.clone().into_any().unbind()),
        holds: Holds::Buffer(held),
    })
}

/// What another view of a view's memory is made of.
pub fn again(
    view: &Bound<'_, StridedMemoryView>,
    layout: Option<&Bound<'_, StridedLayout>>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<Parts> {
    let py = view.py();
    let parts = view.get().parts().laid_out()?;
    let itemsize = layout.map_or(parts.itemsize, |layout| layout.get().get().itemsize());
    let dtype = match dtype {
        Some(dtype) => {
            let object = dtype::object(py, dtype)?;
            check_itemsize(dtype::itemsize_of_object(&object)?, itemsize)?;
            Dtype::Object(object.unbind(), None)
        }
        None if matches!(parts.dtype, Dtype::Unknown) => Dtype::Unknown,
        None => {
            check_itemsize(parts.itemsize, itemsize)?;
            parts.dtype.clone_ref(py)
        }
    };
    // The root has the memory; a view of a view keeps that one, and no chain.
    let root = parts.parent().map_or(view, |parent| parent.view.bind(py));
    let memory = root.get().parts();
    let own = match layout {
        Some(layout) => layout.clone(),
        None => view.get().layout(py)?,
    };
    let lies = own.get().get();
    let outside = || PyValueError::new_err("the layout reaches out of the address space");
    let item = i64::try_from(itemsize).map_err(|_range| outside())?;
    let bytes = |offset: i64| offset.checked_mul(item).ok_or_else(outside);
    let pointer = memory.pointer.checked_add_signed(lies.slice_offset_in_bytes()).ok_or_else(outside)?;
    if lies.volume() > 0 {
        let low = memory.pointer.checked_add_signed(bytes(lies.min_offset())?).ok_or_else(outside)?;
        let high = lies.max_offset().checked_add(1).ok_or_else(outside).and_then(bytes)?;
        let high = memory.pointer.checked_add_signed(high).ok_or_else(outside)?;
        let (first, last) = memory.limits().ok_or_else(outside)?;
        if low < first || high > last {
            return Err(PyValueError::new_err(format!(
                "the layout reaches from {low:#x} to {high:#x}, the memory is from {first:#x} to {last:#x}"
            )));
        }
    }
    Ok(Parts {
        pointer,
        device: parts.device,
        ask_driver: parts.ask_driver,
        shape: Dims::from_slice(lies.shape()),
        strides: Dims::from_slice(lies.effective_strides()),
        has_strides: lies.strides().is_some(),
        itemsize,
        dtype,
        readonly: parts.readonly,
        exporter: parts.exporter.as_ref().map(|exporter| exporter.clone_ref(py)),
        holds: Holds::View(Parent { view: root.clone().unbind(), layout: own.unbind() }),
    })
}

fn check_itemsize(of_dtype: usize, of_layout: usize) -> PyResult<()> {
    if of_dtype == of_layout {
        return Ok(());
    }
    let message = format!("an element has {of_dtype} bytes by its dtype, and {of_layout} by its layout");
    Err(PyValueError::new_err(message))
}

/// A tuple of numbers.
fn tuple(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Dims> {
    match object.cast::<PyTuple>() {
        Ok(tuple) => interface::numbers(tuple, name),
        Err(_other) => {
            let kind = object.get_type().name()?;
            Err(PyTypeError::new_err(format!("{name} must be a tuple of int, not {kind}")))
        }
    }
}

/// A type and a size that were given, either of which may be missing.
fn typed(py: Python<'_>, dtype: Option<&Bound<'_, PyAny>>, itemsize: Option<usize>) -> PyResult<(Dtype, usize)> {
    let Some(dtype) = dtype else {
        return match itemsize {
            None => Err(PyValueError::new_err("itemsize or dtype must be given")),
            Some(0) => Err(PyValueError::new_err("itemsize must be positive")),
            Some(itemsize) => Ok((Dtype::Unknown, itemsize)),
        };
    };
    let object = dtype::object(py, dtype)?;
    let size = dtype::itemsize_of_object(&object)?;
    if let Some(itemsize) = itemsize.filter(|itemsize| *itemsize != size) {
        return Err(PyValueError::new_err(format!(
            "itemsize is {itemsize}, but an element of {object} has {size} bytes"
        )));
    }
    if size == 0 {
        return Err(PyValueError::new_err(format!("elements of {object} have no bytes")));
    }
    Ok((Dtype::Object(object.unbind(), None), size))
}

/// Refuses an array that does not lie in its memory.
fn check_fits(address: u64, bytes: usize, shape: &[i64], strides: &[i64], itemsize: usize) -> PyResult<()> {
    interface::check_range(address, shape, strides, itemsize)?;
    let (low, high) = dlpack::span(shape, strides, itemsize).unwrap_or((0, 0));
    if low < 0 {
        let message = format!("elements of the array lie up to {} bytes before the buffer's start", low.unsigned_abs());
        return Err(PyValueError::new_err(message));
    }
    if high.unsigned_abs() > bytes as u64 {
        return Err(PyValueError::new_err(format!("the array needs {high} bytes, the buffer has {bytes}")));
    }
    Ok(())
}
