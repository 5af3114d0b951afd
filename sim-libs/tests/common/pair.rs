//! Two processes with a driver each, and a line between them.

use super::{Driver, alone};
use std::io::{Read, Write};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const ROLE: &str = "CUIRASS_SIM_SECOND";

/// The other process.
pub struct Other {
    line: UnixStream,
    child: Option<Child>,
}

impl Other {
    fn start(name: &str) -> Self {
        Self::start_as(name, ROLE)
    }

    /// Starts a test again as another process, which finds this variable set.
    pub fn start_as(name: &str, role: &str) -> Self {
        let (line, theirs) = UnixStream::pair().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(role, "1");
        let child = child.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).spawn().unwrap();
        Self { line, child: Some(child) }
    }

    /// The process that started this one.
    pub fn first() -> Self {
        // SAFETY: [test] the test that started this process gave it the line as its standard input.
        Self { line: unsafe { UnixStream::from_raw_fd(0) }, child: None }
    }

    /// Says something.
    pub fn say<const N: usize>(&mut self, words: [u64; N]) {
        self.say_bytes(&words.map(u64::to_le_bytes).concat());
    }

    /// Hears what was said.
    pub fn hear<const N: usize>(&mut self) -> [u64; N] {
        let bytes = self.hear_bytes(N * 8);
        std::array::from_fn(|at| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap()))
    }

    pub fn say_bytes(&mut self, bytes: &[u8]) {
        self.line.write_all(bytes).unwrap();
    }

    pub fn hear_bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.line.read_exact(&mut bytes).expect("the other process says something");
        bytes
    }

    /// Sends a descriptor; the sender's stays open.
    pub fn give(&mut self, file: RawFd) {
        // SAFETY: [test] a message of one byte with one descriptor beside it, in buffers that outlive the call.
        unsafe {
            let (mut byte, mut control) = (0_u8, [MaybeUninit::<u64>::zeroed(); 4]);
            let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(file);
            assert_eq!(libc::sendmsg(self.line.as_raw_fd(), &raw const message, 0), 1);
        }
    }

    /// Takes a descriptor.
    pub fn take(&mut self) -> OwnedFd {
        // SAFETY: [test] as above; what arrives is a descriptor that this process owns.
        unsafe {
            let (mut byte, mut control) = (0_u8, [MaybeUninit::<u64>::zeroed(); 4]);
            let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
            (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
            assert_eq!(libc::recvmsg(self.line.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC), 1);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            assert!(!header.is_null(), "a descriptor came");
            OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned())
        }
    }

    /// The other process's number.
    pub fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Kills the other process.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Kills the other process, and leaves it unwaited for.
    pub fn kill_only(&mut self) {
        self.child.as_mut().unwrap().kill().unwrap();
    }

    /// Waits until the other process has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.take().unwrap().wait().unwrap()
    }
}

/// Runs a test in two processes of its own.
pub fn pair(name: &str, config: &str, first: impl FnOnce(Driver, &mut Other), second: impl FnOnce(Driver, &mut Other)) {
    alone(name, config, || {
        if std::env::var_os(ROLE).is_some() {
            let mut other = Other::first();
            second(Driver::ready().0, &mut other);
            return;
        }
        let mut other = Other::start(name);
        first(Driver::ready().0, &mut other);
        if let Some(mut child) = other.child.take() {
            assert!(child.wait().unwrap().success(), "the second process of {name}");
        }
    });
}

/// How many descriptors this process has.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Changes how many descriptors this process may have.
pub fn limit_descriptors(soft: u64) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: 4096 };
    // SAFETY: [test] a structure that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// How many mappings of shared memory of the driver this process has.
pub fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("cuirass-sim")).count()
}

/// What is in the folder of shared memory.
pub fn shared_files() -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = std::fs::read_dir("/dev/shm").unwrap().map(name).collect();
    names.sort();
    names
}

/// A device's memory, or the host's, as the properties of a pool that can be shared.
pub fn props(host: bool) -> [u64; 11] {
    // allocType pinned, handleTypes descriptor; location type and id.
    [1 | 1 << 32, if host { 2 } else { 1 }, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Kernels: `add` adds a number to each of as many words as it has threads.
pub const ADD: &std::ffi::CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 to, .param .u32 by)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [by];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r3, [%rd3];
    add.u32 %r4, %r3, %r1;
    st.global.u32 [%rd3], %r4;
    ret;
}
";

static HELD: AtomicBool = AtomicBool::new(false);

extern "C" fn wait(_: *mut std::ffi::c_void) {
    while HELD.load(Ordering::SeqCst) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// What a process does with shared memory.
pub struct Tool<'a> {
    pub d: &'a Driver,
    pub stream: usize,
    add: usize,
}

impl<'a> Tool<'a> {
    pub fn new(d: &'a Driver) -> Self {
        let module = d.get("cuModuleLoadData", |out| (out, ADD.as_ptr()));
        let add = d.get("cuModuleGetFunction", |out| (out, module, c"add".as_ptr()));
        Self { d, stream: d.stream(1), add }
    }

    /// A pool that can be shared.
    pub fn pool(&self, host: bool) -> usize {
        let props = props(host);
        let pool = self.d.get("cuMemPoolCreate", |out| (out, props.as_ptr()));
        self.give_access(pool);
        pool
    }

    /// The first device has access: to a pool of the host it has none until it is given.
    fn give_access(&self, pool: usize) {
        // CU_MEM_LOCATION_TYPE_DEVICE, its number, CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
        let access = [1_i32, 0, 3];
        self.d.ok("cuMemPoolSetAccess", (pool, access.as_ptr(), 1_usize));
    }

    pub fn allocate(&self, pool: usize, bytes: usize) -> usize {
        self.d.get("cuMemAllocFromPoolAsync", |out| (out, bytes, pool, self.stream))
    }

    /// A descriptor of a pool.
    pub fn file(&self, pool: usize) -> OwnedFd {
        let mut file: RawFd = -1;
        self.d.ok("cuMemPoolExportToShareableHandle", (&raw mut file, pool, 1_u32, 0_u64));
        // SAFETY: [test] the descriptor is the caller's.
        unsafe { OwnedFd::from_raw_fd(file) }
    }

    /// What another process imports a pointer by.
    pub fn export(&self, pointer: usize) -> [u64; 8] {
        let mut data = [0_u64; 8];
        self.d.ok("cuMemPoolExportPointer", (data.as_mut_ptr(), pointer));
        data
    }

    pub fn import_pool(&self, file: &OwnedFd) -> usize {
        let pool =
            self.d.get("cuMemPoolImportFromShareableHandle", |out| (out, file.as_raw_fd() as usize, 1_u32, 0_u64));
        self.give_access(pool);
        pool
    }

    pub fn import(&self, pool: usize, data: &[u64; 8]) -> usize {
        self.d.get("cuMemPoolImportPointer", |out| (out, pool, data.as_ptr()))
    }

    /// Adds a number to each of so many words, in the stream's order.
    pub fn add(&self, to: usize, words: u32, by: u32) {
        let params = [(&raw const to).cast::<u8>(), (&raw const by).cast::<u8>()];
        let one = 1_u32;
        let args = (self.add, one, one, one, words, one, one, 0_u32, self.stream, params.as_ptr(), super::NULL);
        self.d.ok("cuLaunchKernel", args);
    }

    /// Holds the stream up until [`Tool::let_go`].
    pub fn hold(&self) {
        HELD.store(true, Ordering::SeqCst);
        self.d.ok("cuLaunchHostFunc", (self.stream, wait as *const () as usize, super::NULL));
    }

    pub fn let_go(&self) {
        HELD.store(false, Ordering::SeqCst);
    }

    pub fn sync(&self) {
        self.d.ok("cuStreamSynchronize", (self.stream,));
    }

    /// Words of memory, behind the stream's work.
    pub fn read(&self, from: usize, words: usize) -> Vec<u32> {
        let mut back = vec![0_u32; words];
        // The calls that name sides take no memory of a pool of the host for the device's.
        self.d.ok("cuMemcpyAsync", (back.as_mut_ptr(), from, words * 4, self.stream));
        self.sync();
        back
    }

    pub fn fill(&self, to: usize, words: usize, value: u32) {
        self.d.ok("cuMemsetD32Async", (to, value, words, self.stream));
    }

    pub fn free(&self, pointer: usize) {
        self.d.ok("cuMemFreeAsync", (pointer, self.stream));
        self.sync();
    }

    pub fn destroy(&self, pool: usize) {
        self.d.ok("cuMemPoolDestroy", (pool,));
    }
}
