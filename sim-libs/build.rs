//! Gives the library the name under which everything in a process asks for the driver.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its table of addresses means its own functions, whatever else in the process has functions of these names.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Its worker threads live as long as the process: it must never be unmapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
