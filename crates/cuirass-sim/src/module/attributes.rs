//! Attributes of kernels.

use crate::device::Device;
use crate::status::{Answer, INVALID_VALUE};
use cuirass_ptx::Kernel;
use cuirass_sys::cuda::{CUdevice_attribute, CUfunction_attribute};

/// What a program may set of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The most dynamic shared memory that a launch may ask for.
    pub dynamic_shared: u32,
    /// How much of the cache is shared memory, in percent; -1: the driver chooses.
    pub carveout: i32,
    /// Whether clusters larger than every device has are allowed.
    pub non_portable: i32,
    /// How clusters are scheduled.
    pub scheduling: i32,
}

/// The shared memory that a block may have without asking.
const SHARED: u32 = 48 << 10;

impl Settings {
    /// What holds before the program sets anything.
    pub fn new(kernel: &Kernel) -> Self {
        let dynamic_shared = SHARED.saturating_sub(kernel.static_shared_bytes());
        Self { dynamic_shared, carveout: -1, non_portable: 0, scheduling: 0 }
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an attribute that cannot be set, and for a value that it cannot have.
    pub fn set(&mut self, attribute: CUfunction_attribute, value: i32, kernel: &Kernel, device: &Device) -> Answer {
        let most = device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        let (place, range) = match attribute {
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                if value < 0 || i64::from(value) + i64::from(kernel.static_shared_bytes()) > i64::from(most) {
                    return Err(INVALID_VALUE);
                }
                self.dynamic_shared = value as u32;
                return Ok(());
            }
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => (&mut self.carveout, -1..=100),
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => {
                (&mut self.non_portable, 0..=1)
            }
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => {
                (&mut self.scheduling, 0..=2)
            }
            _ => return Err(INVALID_VALUE),
        };
        if !range.contains(&value) {
            return Err(INVALID_VALUE);
        }
        *place = value;
        Ok(())
    }
}

/// The most threads that a block of the kernel may have.
pub fn most_threads(kernel: &Kernel, device: &Device) -> u32 {
    let device_most = device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) as u32;
    let registers = device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK) as u32;
    // Registers are given to warps, 256 at a time.
    let warps = registers / (kernel.registers().max(1) * 32).next_multiple_of(256);
    let product = |size: [u32; 3]| size.iter().fold(1_u32, |all, size| all.saturating_mul((*size).max(1)));
    let bounds = [kernel.max_threads(), kernel.required_threads()];
    let bound = bounds.into_iter().flatten().map(product).min().unwrap_or(u32::MAX);
    device_most.min(warps / 4 * 4 * 32).min(bound)
}

/// Reads an attribute.
///
/// # Errors
/// `INVALID_VALUE` for an unknown one.
pub fn get(
    attribute: CUfunction_attribute,
    kernel: &Kernel,
    settings: &Settings,
    constant_bytes: u64,
    ptx_arch: u32,
    device: &Device,
) -> Answer<i32> {
    let value = match attribute {
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => most_threads(kernel, device),
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => kernel.static_shared_bytes(),
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => constant_bytes as u32,
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => kernel.local_bytes(),
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS => kernel.registers(),
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION => ptx_arch,
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION => device.arch(),
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => settings.dynamic_shared,
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => return Ok(settings.carveout),
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => return Ok(settings.non_portable),
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => return Ok(settings.scheduling),
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => 0,
        _ => return Err(INVALID_VALUE),
    };
    Ok(value as i32)
}
