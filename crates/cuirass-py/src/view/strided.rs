//! `StridedMemoryView`: where another library's array is, and how its elements lie.

use crate::context::not_yet;
use crate::error::ask;
use crate::fresh;
use crate::nested;
use crate::number::Number;
use crate::raw::{given, raw};
use crate::stream::Stream;
use crate::view::copy;
use crate::view::cupy;
use crate::view::dlpack::{self, CPU, CUDA, Device, Dims, refused};
use crate::view::dtype::{self, Dtype};
use crate::view::export::{self, Kept, Offer};
use crate::view::import::{Seen, Taken};
use crate::view::interface;
use crate::view::layout::StridedLayout;
use crate::view::numpy::{self, As};
use crate::view::parts::{self, Holds, Parts};
use crate::view::protocol::{self, Offers};
use cuirass_fault::lock::Mutex;
use pyo3::PyTraverseError;
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyDeprecationWarning, PyTypeError};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use std::mem;

/// Where an array of another library's is, and how its elements lie: no copy, and no method of its own on the elements.
///
/// It is made by ``from_dlpack()``, ``from_cuda_array_interface()``, ``from_array_interface()``, ``from_any_interface()``
/// and ``from_buffer()``, or by the decorator ``args_viewable_as_strided_memory``. It keeps what it is a view of.
///
/// Parameters
/// ----------
/// obj : object, optional
///     Deprecated: ``from_any_interface(obj, stream_ptr)``.
/// stream_ptr : Stream, object with ``__cuda_stream__`` or int, optional
///     The stream on which the view will be used, as a number. -1: nothing is ordered.
#[pyclass(frozen, subclass, module = "cuirass.utils", name = "StridedMemoryView")]
pub struct StridedMemoryView {
    parts: Parts,
    shape: PyOnceLock<Py<PyTuple>>,
    strides: PyOnceLock<Option<Py<PyTuple>>>,
    dtype: PyOnceLock<Py<PyAny>>,
    layout: PyOnceLock<Py<StridedLayout>>,
}

/// What a view of a subclass is made of, on its way through `__new__`.
#[pyclass(frozen)]
struct Made(Mutex<Option<Parts>>);

impl Drop for StridedMemoryView {
    #[inline]
    fn drop(&mut self) {
        let parts = &mut self.parts;
        nested::let_go((parts.exporter.take(), mem::replace(&mut parts.holds, Holds::Nothing)));
    }
}

impl StridedMemoryView {
    #[inline(always)]
    fn of(parts: Parts) -> StridedMemoryView {
        StridedMemoryView {
            parts,
            shape: PyOnceLock::new(),
            strides: PyOnceLock::new(),
            dtype: PyOnceLock::new(),
            layout: PyOnceLock::new(),
        }
    }

    /// A view of the class, which may be a subclass.
    #[inline(always)]
    fn make<'py>(class: &Bound<'py, PyType>, parts: Parts) -> PyResult<Bound<'py, PyAny>> {
        if StridedMemoryView::is(class) {
            return Ok(fresh::make(class.py(), StridedMemoryView::of(parts))?.into_any());
        }
        StridedMemoryView::make_of_subclass(class, parts)
    }

    /// Whether a class is this one, and no subclass.
    #[inline]
    fn is(class: &Bound<'_, PyType>) -> bool {
        class.as_type_ptr() == StridedMemoryView::type_object_raw(class.py())
    }

    /// A view of what was read of an object. It is made in its place: a view's parts are some cache lines, and those that
    /// have just been written are slow to move.
    #[inline(always)]
    fn of_seen<'py>(object: &Bound<'py, PyAny>, seen: Seen<'_>) -> PyResult<Bound<'py, PyAny>> {
        let exporter = Some(object.clone().unbind());
        if seen.is_small() {
            let view = StridedMemoryView::of(seen.into_parts(exporter, Holds::Nothing));
            return Ok(fresh::make(object.py(), view)?.into_any());
        }
        StridedMemoryView::of_large(object.py(), seen, exporter)
    }

    #[cold]
    #[inline(never)]
    fn of_large<'py>(py: Python<'py>, seen: Seen<'_>, exporter: Option<Py<PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        Ok(Bound::new(py, StridedMemoryView::of(seen.into_parts(exporter, Holds::Nothing)))?.into_any())
    }

    #[cold]
    fn make_of_subclass<'py>(class: &Bound<'py, PyType>, parts: Parts) -> PyResult<Bound<'py, PyAny>> {
        let py = class.py();
        let made = Bound::new(py, Made(Mutex::new(Some(parts))))?;
        py.get_type::<StridedMemoryView>().call_method1(intern!(py, "__new__"), (class, made))
    }

    /// A view of a tensor whose exporter is not known.
    pub fn of_tensor(py: Python<'_>, tensor: Taken) -> PyResult<Bound<'_, StridedMemoryView>> {
        Bound::new(py, StridedMemoryView::of(tensor.into_parts(None)?))
    }

    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    pub fn laid_out(&self) -> PyResult<&Parts> {
        self.parts.laid_out()
    }

    /// How its elements lie.
    pub fn layout<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, StridedLayout>> {
        let parts = self.laid_out()?;
        if let Some(parent) = parts.parent() {
            return Ok(parent.layout.bind(py).clone());
        }
        let made = self.layout.get_or_try_init(py, || {
            let layout = ask(py, || parts.layout())?;
            Ok::<_, PyErr>(Bound::new(py, StridedLayout::of(layout))?.unbind())
        })?;
        Ok(made.bind(py).clone())
    }

    pub fn code(&self, py: Python<'_>) -> PyResult<dlpack::DataType> {
        match &self.laid_out()?.dtype {
            Dtype::Code(code) => Ok(*code),
            Dtype::Unknown => Err(refused("the type of the elements is not known: give the view a dtype")),
            Dtype::Object(_, Some(code)) => Ok(*code),
            Dtype::Object(object, None) => dtype::code_of_object(object.bind(py))?
                .ok_or_else(|| refused(format!("DLPack has no type for elements of numpy's {}", object.bind(py)))),
        }
    }

    /// What DLPack offers of it.
    pub fn offer(slf: &Bound<'_, StridedMemoryView>, device: Device) -> PyResult<Offer> {
        let view = slf.get();
        let dtype = view.code(slf.py())?;
        Ok(Offer {
            pointer: view.parts.pointer,
            device,
            dtype,
            shape: view.parts.shape.clone(),
            strides: view.parts.strides.clone(),
            readonly: view.parts.readonly,
            kept: Kept::View(slf.clone().unbind()),
        })
    }

    /// A tensor that points into the view, and lives as long.
    pub fn tensor(&self, py: Python<'_>) -> PyResult<dlpack::Tensor> {
        let dtype = self.code(py)?;
        let parts = &self.parts;
        Ok(dlpack::Tensor {
            data: std::ptr::with_exposed_provenance_mut(usize::try_from(parts.pointer).unwrap_or(0)),
            device: parts.exported_device(py)?,
            ndim: i32::try_from(parts.shape.len()).unwrap_or(0),
            dtype,
            shape: parts.shape.as_ptr().cast_mut(),
            strides: parts.strides.as_ptr().cast_mut(),
            byte_offset: 0,
        })
    }
}

fn warn_of_construction(py: Python<'_>, instead: &str) -> PyResult<()> {
    let text = std::ffi::CString::new(format!("calling StridedMemoryView is deprecated: use {instead}"))?;
    PyErr::warn(py, &py.get_type::<PyDeprecationWarning>(), &text, 1)
}

#[pymethods]
impl StridedMemoryView {
    #[new]
    #[pyo3(signature = (obj=None, stream_ptr=None))]
    fn new(
        py: Python<'_>,
        obj: Option<&Bound<'_, PyAny>>,
        stream_ptr: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<StridedMemoryView> {
        let Some(object) = obj else {
            warn_of_construction(py, "from_dlpack() and its like")?;
            return Ok(StridedMemoryView::of(Parts {
                pointer: 0,
                device: Device { kind: CPU, id: 0 },
                ask_driver: false,
                shape: Dims::new(),
                strides: Dims::new(),
                has_strides: false,
                itemsize: 0,
                dtype: Dtype::Unknown,
                readonly: false,
                exporter: None,
                holds: Holds::Nothing,
            }));
        };
        if let Ok(made) = object.cast_exact::<Made>()
            && let Some(parts) = made.get().0.lock().take()
        {
            return Ok(StridedMemoryView::of(parts));
        }
        warn_of_construction(py, "from_any_interface()")?;
        Ok(StridedMemoryView::of(parts::of_any(object, stream_ptr)?))
    }

    /// The view of an object with ``__dlpack__``.
    ///
    /// Parameters
    /// ----------
    /// obj : object
    ///     It is asked for memory of the host or of CUDA.
    /// stream_ptr : Stream, object with ``__cuda_stream__`` or int
    ///     The stream on which the view will be used: the object orders its work before. -1: nothing is ordered. A host
    ///     array has no stream, and is not asked to order anything.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     If the object has no such interface.
    /// BufferError
    ///     If ``stream_ptr`` is ``None``, or the object offers what a view cannot be of. What the object raises.
    #[classmethod]
    #[pyo3(signature = (obj, stream_ptr=None))]
    fn from_dlpack<'py>(
        cls: &Bound<'py, PyType>,
        obj: &Bound<'py, PyAny>,
        stream_ptr: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        StridedMemoryView::make(cls, protocol::from_dlpack(obj, protocol::consumer(stream_ptr)?)?)
    }

    /// The view of an object with ``__cuda_array_interface__``, of version 3 or later.
    ///
    /// Parameters
    /// ----------
    /// obj : object
    ///     The object.
    /// stream_ptr : Stream, object with ``__cuda_stream__`` or int
    ///     The stream on which the view will be used: it waits for the object's stream, if that has one
    ///     (``cuStreamWaitEvent``). -1: nothing is ordered.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     If the object has no such interface, or numpy has no such type of elements.
    /// BufferError
    ///     If ``stream_ptr`` is ``None``, the array is masked or of an older version, a part of the interface is missing
    ///     or its stream is 0.
    /// CUDAError
    ///     What the driver answers where one stream is to wait for the other.
    #[classmethod]
    #[pyo3(signature = (obj, stream_ptr=None))]
    fn from_cuda_array_interface<'py>(
        cls: &Bound<'py, PyType>,
        obj: &Bound<'py, PyAny>,
        stream_ptr: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        StridedMemoryView::make(cls, interface::from_cuda(obj, protocol::consumer(stream_ptr)?)?)
    }

    /// The view of an object with ``__array_interface__``, of version 3 or later: a numpy array of any type but
    /// that of Python objects.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     If the object has no such interface, or elements that are Python objects.
    /// BufferError
    ///     If the array is masked or of an older version, or a part of the interface is missing.
    #[classmethod]
    #[pyo3(signature = (obj))]
    fn from_array_interface<'py>(cls: &Bound<'py, PyType>, obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let read = match protocol::offers(obj)? {
            Offers::Array => numpy::read(obj, As::ArrayInterface)?,
            Offers::Api(..) | Offers::Attributes | Offers::Methods => None,
        };
        match read {
            Some(parts) => StridedMemoryView::make(cls, parts),
            None => StridedMemoryView::make(cls, interface::from_host(obj)?),
        }
    }

    /// The view of an object by DLPack if it has that, else by its CUDA array interface.
    ///
    /// Parameters
    /// ----------
    /// obj : object
    ///     The object.
    /// stream_ptr : Stream, object with ``__cuda_stream__`` or int
    ///     As of ``from_dlpack()`` and ``from_cuda_array_interface()``.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     If it has neither.
    #[classmethod]
    #[pyo3(signature = (obj, stream_ptr=None))]
    #[inline(always)]
    fn from_any_interface<'py>(
        cls: &Bound<'py, PyType>,
        obj: &Bound<'py, PyAny>,
        stream_ptr: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let consumer = protocol::consumer(stream_ptr)?;
        let offers = protocol::offers(obj)?;
        if StridedMemoryView::is(cls) {
            if let Some(borrow) = offers.borrow(consumer) {
                return protocol::borrowed(obj, borrow, |seen| StridedMemoryView::of_seen(obj, seen));
            }
            if let Offers::Array = offers
                && let Some(seen) = numpy::see(obj, As::DlPack)?
                && seen.is_small()
                && let Some(parts) = seen.into_parts(obj)
            {
                return Ok(fresh::make(obj.py(), StridedMemoryView::of(parts))?.into_any());
            }
            if let Offers::Attributes = offers
                && consumer == -1
                && let Some(parts) = cupy::read(obj)?
            {
                return Ok(fresh::make(obj.py(), StridedMemoryView::of(parts))?.into_any());
            }
        }
        StridedMemoryView::make(cls, parts::of_offers(obj, offers, consumer)?)
    }

    /// The view of a buffer's memory as an array. Nothing is ordered; the view has a share of the memory.
    ///
    /// Parameters
    /// ----------
    /// buffer : Buffer
    ///     The memory.
    /// shape : tuple of int
    ///     The shape.
    /// strides : tuple of int, optional
    ///     In elements; without them the array is in C order.
    /// itemsize : int, optional
    ///     The bytes of an element, where there is no type.
    /// dtype : numpy.dtype, optional
    ///     The type of an element.
    /// is_readonly : bool
    ///     Whether the view says that its memory must not be written to.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the buffer is too small, elements lie before its start, ``itemsize`` and ``dtype`` differ, or both are
    ///     missing.
    #[classmethod]
    #[pyo3(signature = (buffer, shape, strides=None, *, itemsize=None, dtype=None, is_readonly=false))]
    fn from_buffer<'py>(
        cls: &Bound<'py, PyType>,
        buffer: &Bound<'py, PyAny>,
        shape: &Bound<'py, PyAny>,
        strides: Option<&Bound<'py, PyAny>>,
        itemsize: Option<Number<usize>>,
        dtype: Option<&Bound<'py, PyAny>>,
        is_readonly: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let itemsize = itemsize.map(|itemsize| itemsize.named("itemsize")).transpose()?;
        let parts = parts::of_buffer(buffer, shape, strides, itemsize, dtype, is_readonly)?;
        StridedMemoryView::make(cls, parts)
    }

    /// The array for other libraries: a capsule with a DLPack tensor, which has a share of what the view keeps.
    ///
    /// A view does not know which work uses its memory: who has used it on one stream, and hands it on to another, orders
    /// the two.
    ///
    /// Parameters
    /// ----------
    /// stream : int, optional
    ///     The consumer's stream.
    /// max_version : tuple of int, optional
    ///     The newest version that the consumer knows; without it, or before ``(1, 0)``, the capsule is of the old kind,
    ///     which cannot say that memory is read-only.
    /// dl_device : tuple of int, optional
    ///     Where the consumer wants it: where it is, or the host for page-locked memory.
    /// copy : bool, optional
    ///     ``True`` is refused: nothing is copied.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     If DLPack has no such type or cannot say what must be said, or a copy would be needed.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, StridedMemoryView>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let device = slf.get().parts.exported_device(slf.py())?;
        let (asked, device) = export::asked(device, stream, max_version, dl_device, copy)?;
        StridedMemoryView::offer(slf, device)?.into_capsule(slf.py(), &asked)
    }

    /// Where it is: DLPack's device type (1 host, 2 CUDA, 3 page-locked, 13 managed) and the device's ordinal.
    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        let device = self.parts.exported_device(py)?;
        Ok((device.kind, device.id))
    }

    /// The array as numpy's, of memory that the host can use; nothing is copied unless it is asked for.
    ///
    /// Parameters
    /// ----------
    /// dtype : numpy.dtype, optional
    ///     What the elements are converted to.
    /// copy : bool, optional
    ///     As of ``numpy.array()``.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     If the host cannot use the memory, or DLPack has no such type.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, StridedMemoryView>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().parts.device.exported().kind == CUDA {
            return Err(refused(numpy::NO_HOST));
        }
        let array = slf.py().import("numpy")?.call_method1("from_dlpack", (slf,))?;
        numpy::convert(&array, dtype, copy)
    }

    /// How many elements it has.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        let parts = self.laid_out()?;
        Ok(dlpack::volume(&parts.shape, parts.itemsize).unwrap_or(0))
    }

    /// Its shape.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let parts = self.laid_out()?;
        let made = self.shape.get_or_try_init(py, || Ok::<_, PyErr>(PyTuple::new(py, &parts.shape)?.unbind()))?;
        Ok(made.bind(py).clone())
    }

    /// Its strides, in elements and not in bytes; ``None`` for an array in C order that was given without.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let parts = self.laid_out()?;
        let made = self.strides.get_or_try_init(py, || {
            let tuple = if parts.has_strides { Some(PyTuple::new(py, &parts.strides)?.unbind()) } else { None };
            Ok::<_, PyErr>(tuple)
        })?;
        Ok(made.as_ref().map(|tuple| tuple.bind(py).clone()))
    }

    /// The type of its elements as numpy's object, for which numpy is imported; ``None`` where it is not known.
    ///
    /// Raises
    /// ------
    /// NotImplementedError
    ///     If the type needs the package ``ml_dtypes``, as bfloat16 and the 8-bit floats do, and it is not there; for a
    ///     vector type.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.laid_out()?.dtype {
            Dtype::Unknown => Ok(py.None().into_bound(py)),
            Dtype::Object(object, _) => Ok(object.bind(py).clone()),
            Dtype::Code(code) => {
                let made =
                    self.dtype.get_or_try_init(py, || Ok::<_, PyErr>(dtype::object_of_code(py, *code)?.unbind()))?;
                Ok(made.bind(py).clone())
            }
        }
    }

    /// The address of its first element.
    #[getter]
    fn ptr(&self) -> u64 {
        self.parts.pointer
    }

    /// The ordinal of the device that it is on; -1 for memory of the host alone.
    #[getter]
    fn device_id(&self) -> i32 {
        if self.parts.device.kind == CPU { -1 } else { self.parts.device.id }
    }

    /// Whether kernels can use it.
    #[getter]
    fn is_device_accessible(&self, py: Python<'_>) -> PyResult<bool> {
        if self.parts.ask_driver && self.parts.device.kind == CPU {
            return interface::is_known_to_driver(py, self.parts.pointer);
        }
        Ok(self.parts.device.kind != CPU)
    }

    /// Whether its memory must not be written to.
    #[getter]
    fn readonly(&self) -> bool {
        self.parts.readonly
    }

    /// What it is a view of.
    #[getter]
    fn exporting_obj<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.parts.exporter.as_ref().map(|exporter| exporter.bind(py).clone())
    }

    /// Another view of the same memory, with another layout or type; without either, the same again.
    ///
    /// Parameters
    /// ----------
    /// layout : _StridedLayout, optional
    ///     Where the elements are. Its offsets count from where those of ``_layout`` do.
    /// dtype : numpy.dtype, optional
    ///     The type of an element, of the same size.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the sizes of an element differ, or the layout reaches out of the memory that is viewed: the buffer, or
    ///     what the exporter's elements span.
    #[pyo3(signature = (layout=None, dtype=None))]
    fn view<'py>(
        slf: &Bound<'py, StridedMemoryView>,
        layout: Option<&Bound<'py, PyAny>>,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let layout = match layout {
            None => None,
            Some(layout) => Some(layout.cast::<StridedLayout>().map_err(|_other| {
                let kind = layout.get_type().name().map(|name| name.to_string()).unwrap_or_default();
                PyTypeError::new_err(format!("layout must be a _StridedLayout, not {kind}"))
            })?),
        };
        Bound::new(slf.py(), StridedMemoryView::of(parts::again(slf, layout, dtype)?)).map(Bound::into_any)
    }

    /// How its elements lie.
    #[getter]
    fn _layout<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, StridedLayout>> {
        self.layout(py)
    }

    /// A descriptor for the tensor memory accelerator. Not available yet.
    #[pyo3(signature = (
        box_dim=None, *, options=None, element_strides=None, data_type=None, interleave=None, swizzle=None,
        l2_promotion=None, oob_fill=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "the interface's own")]
    fn as_tensor_map(
        &self,
        box_dim: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyAny>>,
        element_strides: Option<&Bound<'_, PyAny>>,
        data_type: Option<&Bound<'_, PyAny>>,
        interleave: Option<&Bound<'_, PyAny>>,
        swizzle: Option<&Bound<'_, PyAny>>,
        l2_promotion: Option<&Bound<'_, PyAny>>,
        oob_fill: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let _unused = (box_dim, options, element_strides, data_type, interleave, swizzle, l2_promotion, oob_fill);
        Err(not_yet("StridedMemoryView.as_tensor_map()"))
    }

    /// Copies all elements of another view into this one, in the stream's order.
    ///
    /// Both have the same shape and type; the elements may lie in different ways. Within memory that the driver can use
    /// (device, managed, page-locked) it is one ``cuMemcpyAsync``, or as many ``cuMemcpy2DAsync`` as the strides need: one
    /// for each row of a transposition. Where one of them is ordinary host memory, and is strided, the host rearranges the
    /// elements, for which the call waits.
    ///
    /// Parameters
    /// ----------
    /// other : StridedMemoryView
    ///     The source.
    /// stream : Stream
    ///     The stream.
    /// allocator : MemoryResource, optional
    ///     Where host memory for rearranging comes from, if any is needed: page-locked memory is faster. Without it,
    ///     ordinary memory is taken.
    /// blocking : bool, optional
    ///     Whether the copy is done when the call returns. Without it: where ordinary host memory takes part.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If shapes or types differ, this view is read-only or has elements at the same address, or the two overlap.
    /// RuntimeError
    ///     If the stream is being captured, and the copy uses ordinary host memory or would wait.
    /// CUDAError
    ///     What the driver answers; a note says if a part was submitted.
    #[pyo3(signature = (other, stream, allocator=None, blocking=None))]
    fn copy_from(
        slf: &Bound<'_, StridedMemoryView>,
        other: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
        allocator: Option<&Bound<'_, PyAny>>,
        blocking: Option<bool>,
    ) -> PyResult<()> {
        copy::copy(slf, view_argument(other)?, stream, allocator, blocking)
    }

    /// Copies all elements of this view into another one, as ``other.copy_from(self, ...)``. Without a stream it is the
    /// legacy default stream.
    #[pyo3(signature = (other, stream=None, allocator=None, blocking=None))]
    fn copy_to(
        slf: &Bound<'_, StridedMemoryView>,
        other: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        allocator: Option<&Bound<'_, PyAny>>,
        blocking: Option<bool>,
    ) -> PyResult<()> {
        let to = view_argument(other)?;
        match stream {
            Some(stream) => copy::copy(to, slf, stream, allocator, blocking),
            None => {
                let legacy = Bound::new(slf.py(), Stream::of(cuirass::Stream::legacy_default()))?;
                copy::copy(to, slf, legacy.as_any(), allocator, blocking)
            }
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.parts.exporter)?;
        if let Dtype::Object(dtype, _) = &self.parts.dtype {
            visit.call(dtype)?;
        }
        match &self.parts.holds {
            Holds::Buffer(buffer) => visit.call(&buffer.0),
            Holds::View(parent) => visit.call(&parent.view),
            Holds::Nothing | Holds::Tensor(_) => Ok(()),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let parts = &self.parts;
        if parts.itemsize == 0 {
            return Ok("<StridedMemoryView of nothing>".to_owned());
        }
        let dtype = match self.dtype(py) {
            Ok(dtype) => dtype.str()?.to_string(),
            Err(_no_such_type) => "?".to_owned(),
        };
        Ok(format!(
            "<StridedMemoryView ptr={:#x} shape={} strides={} itemsize={} dtype={dtype} device_id={} readonly={}>",
            parts.pointer,
            self.shape(py)?.repr()?,
            self.strides(py)?
                .map_or_else(|| Ok("None".to_owned()), |tuple| tuple.repr().map(|text| text.to_string()))?,
            parts.itemsize,
            self.device_id(),
            if parts.readonly { "True" } else { "False" }
        ))
    }
}

fn view_argument<'a, 'py>(object: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, StridedMemoryView>> {
    match object.cast::<StridedMemoryView>() {
        Ok(view) => Ok(view),
        Err(_other) => {
            let kind = object.get_type().name()?;
            Err(PyTypeError::new_err(format!(
                "other must be a StridedMemoryView, not {kind}: from_any_interface() makes one of an array, and \
                 from_buffer() of a Buffer"
            )))
        }
    }
}

raw!(static FROM_ANY_INTERFACE = |call| {
    let ([object, stream_ptr], class) = (call.one_and_stream_ptr()?, call.receiver::<PyType>());
    let stream_ptr = Some(&*stream_ptr).filter(|stream| !stream.is_none());
    Some(given(StridedMemoryView::from_any_interface(&class, &object, stream_ptr).map(Bound::into_ptr)))
});

/// Puts the method in that is called most.
pub fn install(py: Python<'_>) -> PyResult<()> {
    FROM_ANY_INTERFACE.replace_class_method(&py.get_type::<StridedMemoryView>(), "from_any_interface")
}
