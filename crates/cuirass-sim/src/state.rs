//! Everything that the simulated driver knows, behind one lock.
//!
//! A call locks it once, for a short time; nothing of the program's runs while it is held. Work runs without it.

use crate::config::Config;
use crate::context::Context;
use crate::device::Device;
use crate::engine::Engine;
use crate::event::Event;
use crate::graph::Graphs;
use crate::green::{Description, GreenContext};
use crate::handle::{Kind, Table};
use crate::memory::Memory;
use crate::module::Modules;
use crate::status::{Answer, NOT_INITIALIZED};
use crate::stream::Stream;
use parking_lot::{Mutex, MutexGuard};
use std::sync::OnceLock;
use std::time::Instant;

/// The state.
pub struct State {
    /// What was asked for.
    pub config: Config,
    /// The devices, by ordinal.
    pub devices: Vec<Device>,
    /// Contexts.
    pub contexts: Table<Context>,
    /// Streams, the default ones included.
    pub streams: Table<Stream>,
    /// Events.
    pub events: Table<Event>,
    /// Pending work.
    pub engine: Engine,
    /// Graphs and captures.
    pub graphs: Graphs,
    /// Green contexts.
    pub green: Table<GreenContext>,
    /// What green contexts can be made of; the driver has no call that ends one.
    pub descriptions: Table<Description>,
    /// Memory of every kind.
    pub memory: Memory,
    /// Loaded code.
    pub modules: Modules,
    next_id: u64,
}

/// The lock, held.
pub type Guard = MutexGuard<'static, State>;

static STATE: OnceLock<Mutex<State>> = OnceLock::new();

/// Makes the state; only the first call does anything.
pub fn initialise(config: &Config) {
    STATE.get_or_init(|| {
        crate::host::watch_fork();
        now();
        let state = State {
            config: config.clone(),
            devices: (0..config.devices).map(|ordinal| Device::new(ordinal, config)).collect(),
            contexts: Table::new(Kind::Context),
            streams: Table::new(Kind::Stream),
            events: Table::new(Kind::Event),
            engine: Engine::new(config.seed),
            graphs: Graphs::new(),
            green: Table::new(Kind::GreenContext),
            descriptions: Table::new(Kind::ResourceDescription),
            memory: Memory::new(config),
            modules: Modules::new(),
            next_id: 1,
        };
        if config.check_order {
            crate::order::start(&state);
        }
        Mutex::new(state)
    });
}

/// Whether `cuInit` has succeeded.
pub fn initialised() -> bool {
    STATE.get().is_some()
}

/// Locks the state.
///
/// # Errors
/// `NOT_INITIALIZED` before `cuInit` (the way in has already refused that).
pub fn lock() -> Answer<Guard> {
    if crate::host::forked() {
        return Err(NOT_INITIALIZED);
    }
    STATE.get().map(Mutex::lock).ok_or(NOT_INITIALIZED)
}

/// Nanoseconds since the driver was initialised.
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

impl State {
    /// A number that no other object of the process has (stream, context and capture ids).
    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// A call has waited for work: what that brings about beside.
    pub fn synchronised(&mut self) {
        crate::memory::synchronised(self);
        crate::launch::output::fetch();
    }
}
