//! What the tests share: a device memory of plain vectors, and a host that keeps what is printed.

#![allow(dead_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cuirass_ptx::{DeviceMemory, Fault, Host, Launch, Loaded, Module, ModuleError, Region, Stats, Target, run};

/// Everything up to the newest version.
pub const TARGET: Target = Target { max_ptx_version: (9, 9), arch: 90 };

/// Allocations of words, each at its own address.
#[derive(Default)]
pub struct Ram {
    allocations: Vec<(u64, u64, Vec<AtomicU64>)>,
}

impl Ram {
    /// A new allocation of zeros.
    pub fn alloc(&mut self, bytes: usize) -> u64 {
        let start = 0x7000_0000_0000 + self.allocations.len() as u64 * 0x1_0000_0000;
        let words = (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        self.allocations.push((start, bytes as u64, words));
        start
    }

    /// A new allocation with these bytes.
    pub fn alloc_bytes(&mut self, bytes: &[u8]) -> u64 {
        let start = self.alloc(bytes.len().max(1));
        let (_, _, words) = self.allocations.last().unwrap();
        for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
            let mut raw = [0; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
        }
        start
    }

    pub fn alloc_u32(&mut self, values: &[u32]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.alloc_bytes(&bytes)
    }

    pub fn alloc_f32(&mut self, values: &[f32]) -> u64 {
        let bits: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
        self.alloc_u32(&bits)
    }

    /// All bytes of the allocation that begins there.
    pub fn bytes(&self, start: u64) -> Vec<u8> {
        let (_, len, words) = self.allocations.iter().find(|a| a.0 == start).unwrap();
        let mut out: Vec<u8> = words.iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect();
        out.truncate(*len as usize);
        out
    }

    pub fn u32s(&self, start: u64) -> Vec<u32> {
        let bytes = self.bytes(start);
        bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
    }

    pub fn f32s(&self, start: u64) -> Vec<f32> {
        self.u32s(start).into_iter().map(f32::from_bits).collect()
    }
}

impl DeviceMemory for Ram {
    fn region(&self, address: u64) -> Option<Region> {
        let found = self
            .allocations
            .iter()
            .find(|(start, len, _)| address.checked_sub(*start).is_some_and(|offset| offset < *len));
        let (start, len, words) = found?;
        let host = words.as_ptr().cast_mut().cast();
        Some(Region { start: *start, len: *len, host, writable: true })
    }

    fn epoch(&self) -> u64 {
        self.allocations.len() as u64
    }
}

/// A host whose `malloc` has nothing.
pub struct TestHost {
    pub begin: Instant,
    pub printed: Mutex<Vec<u8>>,
    pub heap: Option<Mutex<u64>>,
}

impl Default for TestHost {
    fn default() -> Self {
        Self { begin: Instant::now(), printed: Mutex::new(Vec::new()), heap: None }
    }
}

impl TestHost {
    pub fn text(&self) -> String {
        String::from_utf8(self.printed.lock().unwrap().clone()).unwrap()
    }
}

impl Host for TestHost {
    fn print(&self, text: &[u8]) {
        self.printed.lock().unwrap().extend_from_slice(text);
    }
    fn timer_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }
    fn malloc(&self, bytes: u64) -> u64 {
        let Some(heap) = &self.heap else { return 0 };
        let mut next = heap.lock().unwrap();
        let at = *next;
        *next += bytes.next_multiple_of(16);
        at
    }
    fn free(&self, _address: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

/// A parameter block in the making.
#[derive(Default)]
pub struct Params(pub Vec<u8>);

impl Params {
    pub fn push(mut self, bytes: &[u8], align: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(align), 0);
        self.0.extend_from_slice(bytes);
        self
    }
    pub fn u64(self, v: u64) -> Self {
        self.push(&v.to_le_bytes(), 8)
    }
    pub fn u32(self, v: u32) -> Self {
        self.push(&v.to_le_bytes(), 4)
    }
    pub fn f32(self, v: f32) -> Self {
        self.u32(v.to_bits())
    }
}

/// Parses a module and places its globals in `ram`.
pub fn load(source: &str, ram: &mut Ram) -> Result<Loaded, ModuleError> {
    let module = Arc::new(Module::parse(source, &TARGET)?);
    let mut places = Vec::new();
    for global in module.globals() {
        places.push((global.name.clone(), 0u64, global.size as usize));
    }
    for place in &mut places {
        place.1 = ram.alloc(place.2.max(8));
    }
    let addresses: Vec<(String, u64)> = places.into_iter().map(|(n, a, _)| (n, a)).collect();
    let loaded = Loaded::new(module.clone(), &addresses)?;
    for (i, (_, address)) in addresses.iter().enumerate() {
        let image = loaded.image_of(i);
        let at = ram.allocations.iter().position(|a| a.0 == *address).unwrap();
        for (word, chunk) in ram.allocations[at].2.iter().zip(image.chunks(8)) {
            let mut raw = [0; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
        }
    }
    Ok(loaded)
}

/// A launch with the tests' everyday settings.
pub struct Go<'a> {
    pub kernel: &'a str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub params: Params,
    pub workers: usize,
    pub fuel: Option<u64>,
}

impl<'a> Go<'a> {
    pub fn new(kernel: &'a str, grid: u32, block: u32, params: Params) -> Self {
        Self {
            kernel,
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared: 0,
            params,
            workers: 2,
            fuel: Some(20_000_000_000),
        }
    }

    pub fn run(&self, loaded: &Loaded, ram: &dyn DeviceMemory, host: &TestHost) -> Result<Stats, Fault> {
        let kernel = loaded.module().kernel(self.kernel).expect("no such kernel");
        let launch = Launch {
            kernel,
            loaded,
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.shared,
            params: &self.params.0,
            workers: self.workers,
            fuel: self.fuel,
            grid_id: 1,
            multiprocessors: 132,
        };
        run(&launch, ram, host)
    }
}
