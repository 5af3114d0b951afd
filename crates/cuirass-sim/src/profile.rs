//! The measured profile of the simulated device, made from `facts/device.json` when the crate is built.

use crate::status::Status;
use cuirass_sys::cuda::{CUdevice_attribute, CUlimit};

include!(concat!(env!("OUT_DIR"), "/profile.rs"));
