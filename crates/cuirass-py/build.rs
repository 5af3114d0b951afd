//! Tells the code which interpreter it is built for: `Py_GIL_DISABLED` of one whose threads all run at once.
fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
