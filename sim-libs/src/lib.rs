//! `libcuda.so.1`: the simulated driver as a shared library.
//!
//! `exports` has every function of `cuda.h`; `sim` has a few more, `cuirass_sim_*`, that a test reads and sets
//! the simulator through. Their names are in `families/sim.toml`:
//!
//! ```c
//! const char *cuirass_sim_version(void);                       // "cuirass-sim 0.1.0"; lives for ever
//! size_t  cuirass_sim_census(char *text, size_t room);         // {"stream":1,"event":0,…} alive now
//! int64_t cuirass_sim_alive(const char *kind);                 // one count of it; -1 for an unknown kind
//! size_t  cuirass_sim_objects(char *text, size_t room);        // one JSON object a line for everything alive
//! uint64_t cuirass_sim_pending(void);                          // ops in all streams that are not done
//! uint64_t cuirass_sim_reports_mark(void);                     // the number that the next report will have
//! size_t  cuirass_sim_reports(uint64_t mark, char *text, size_t room);
//!                                                              // reports from a mark on, one JSON object a line:
//!                                                              // {"number":0,"kind":"bug","call":"cu…","text":"…"}
//! int     cuirass_sim_set_seed(uint64_t seed);                 // a deterministic schedule from now on; 0 = done
//! int     cuirass_sim_clear_seed(void);                        // a free schedule again
//! int     cuirass_sim_check_order(int on);                     // 1: the stream-order checker on; 0: off, once the work
//!                                                              // that is pending is done; as often; 0 = done
//! int     cuirass_sim_reset(void);                             // ends everything that is alive; 0 = done
//! size_t  cuirass_sim_state(char *text, size_t room);          // configuration, devices and contexts as JSON
//! size_t  cuirass_sim_calls(char *text, size_t room);          // {"cuInit":1,…}: calls made, by name
//! uint64_t cuirass_sim_calls_made(const char *name);           // one of them; UINT64_MAX for an unknown name
//! ```
//!
//! A function with `text` and `room` returns how many bytes the text has without its closing zero; it writes it, cut
//! and closed with a zero, if `text` is not null and `room` is not 0. Ask with room 0 first, then with enough.
//! Kinds of report: `bug`, `order` (of the stream-order checker), `unsupported`, `fault`, `panic`, `config`.
//!
//! None of these needs `cuInit`; before it there is simply nothing alive. They may be called from any thread, in
//! host functions too, and after a fork (they then answer that there is nothing).

#[rustfmt::skip]
mod exports;
mod gate;
pub mod sim;
