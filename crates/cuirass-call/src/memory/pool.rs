//! Stream-ordered allocation from memory pools.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{
    CUdevice, CUdeviceptr, CUgraphMem_attribute, CUmemAllocationType, CUmemLocation, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool, CUstream,
};

/// `cuDeviceGetDefaultMemPool`
pub fn device_get_default_mem_pool(device: CUdevice) -> Result<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    driver_call!(entry!(cuDeviceGetDefaultMemPool), (&raw mut pool, device), "device {device}")?;
    Ok(pool)
}

/// `cuDeviceGetMemPool`: the pool that allocations without a pool of their own come from.
pub fn device_get_mem_pool(device: CUdevice) -> Result<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    driver_call!(entry!(cuDeviceGetMemPool), (&raw mut pool, device), "device {device}")?;
    Ok(pool)
}

/// `cuMemGetMemPool`: the pool that memory of this kind in this place comes from where none is named.
pub fn get_mem_pool(location: &CUmemLocation, kind: CUmemAllocationType) -> Result<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    let mut location = *location;
    driver_call!(
        entry!(cuMemGetMemPool),
        (&raw mut pool, &raw mut location, kind),
        "location type {}, number {}, allocation type {}",
        location.type_.0,
        id_of(&location),
        kind.0
    )?;
    Ok(pool)
}

/// `cuMemPoolCreate`
pub fn create(properties: &CUmemPoolProps) -> Result<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    driver_call!(
        entry!(cuMemPoolCreate),
        (&raw mut pool, properties),
        "location type {}, number {}, at most {} bytes",
        properties.location.type_.0,
        id_of(&properties.location),
        properties.maxSize
    )?;
    Ok(pool)
}

fn id_of(location: &CUmemLocation) -> i32 {
    // SAFETY: [plain-union] both members of the union are an int.
    unsafe { location.__bindgen_anon_1.id }
}

/// `cuMemPoolDestroy`: its memory goes back once what was allocated from it is freed.
pub fn destroy(pool: CUmemoryPool) -> Result<()> {
    driver_call!(entry!(cuMemPoolDestroy), (pool), "{pool:p}")
}

/// `cuMemPoolGetAttribute`, whichever its width; flags are 0 or 1.
pub fn get_attribute(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Result<u64> {
    // Some attributes are an int and some 64 bits: a small one leaves the upper half as it is, zero.
    let mut value: u64 = 0;
    driver_call!(
        entry!(cuMemPoolGetAttribute),
        (pool, attribute, (&raw mut value).cast()),
        "pool {pool:p}, attribute {}",
        attribute.0
    )?;
    Ok(value)
}

/// `cuMemPoolSetAttribute`, whichever its width.
pub fn set_attribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: u64) -> Result<()> {
    let mut value = value;
    driver_call!(
        entry!(cuMemPoolSetAttribute),
        (pool, attribute, (&raw mut value).cast()),
        "pool {pool:p}, attribute {}, value {value}",
        attribute.0
    )
}

/// `cuMemPoolTrimTo`: gives memory back to the system, but for `keep` bytes.
pub fn trim_to(pool: CUmemoryPool, keep: usize) -> Result<()> {
    driver_call!(entry!(cuMemPoolTrimTo), (pool, keep), "pool {pool:p}, keeping {keep} bytes")
}

/// `cuMemAllocFromPoolAsync`
#[inline]
pub fn alloc_from_pool_async(bytes: usize, pool: CUmemoryPool, stream: CUstream) -> Result<CUdeviceptr> {
    let mut address = 0;
    driver_call!(
        entry!(cuMemAllocFromPoolAsync),
        (&raw mut address, bytes, pool, stream),
        "pool {pool:p}, {bytes} bytes, stream {stream:p}"
    )?;
    Ok(address)
}

/// `cuMemFreeAsync`
#[inline]
pub fn free_async(address: CUdeviceptr, stream: CUstream) -> Result<()> {
    driver_call!(entry!(cuMemFreeAsync), (address, stream), "{address:#x}, stream {stream:p}")
}

/// `cuMemAllocAsync`: from the current pool of the stream's device; while the stream is captured, a node of the graph.
pub fn alloc_async(bytes: usize, stream: CUstream) -> Result<CUdeviceptr> {
    let mut address = 0;
    driver_call!(entry!(cuMemAllocAsync), (&raw mut address, bytes, stream), "{bytes} bytes, stream {stream:p}")?;
    Ok(address)
}

/// `cuDeviceGraphMemTrim`: gives memory of graphs that is not used back to the system.
pub fn device_graph_mem_trim(device: CUdevice) -> Result<()> {
    driver_call!(entry!(cuDeviceGraphMemTrim), (device), "device {device}")
}

/// `cuDeviceGetGraphMemAttribute`, in bytes.
pub fn device_get_graph_mem_attribute(device: CUdevice, attribute: CUgraphMem_attribute) -> Result<u64> {
    let mut value = 0_u64;
    driver_call!(
        entry!(cuDeviceGetGraphMemAttribute),
        (device, attribute, (&raw mut value).cast()),
        "device {device}, attribute {}",
        attribute.0
    )?;
    Ok(value)
}

/// `cuDeviceSetGraphMemAttribute`: a high-water mark can be set to 0.
pub fn device_set_graph_mem_attribute(device: CUdevice, attribute: CUgraphMem_attribute, value: u64) -> Result<()> {
    let mut value = value;
    driver_call!(
        entry!(cuDeviceSetGraphMemAttribute),
        (device, attribute, (&raw mut value).cast()),
        "device {device}, attribute {}, value {value}",
        attribute.0
    )
}
