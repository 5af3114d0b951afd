//! What a loader is given: PTX text, or something else.

use super::Code;
use crate::c::{In, Out, Untyped};
use crate::report;
use crate::status::{
    Answer, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NO_BINARY_FOR_GPU, Status, UNSUPPORTED_PTX_VERSION,
};
use crate::thread;
use cuirass_ptx::{ModuleErrorKind, Target};
use cuirass_sys::cuda::CUjit_option;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// Where a loader writes what it has to say.
#[derive(Default)]
pub struct Logs {
    errors: Option<(Untyped, usize)>,
    error_bytes: Option<usize>,
    infos: Option<(Untyped, usize)>,
    info_bytes: Option<usize>,
}

impl Logs {
    /// From the options of a call.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub fn new(options: &In<CUjit_option>, values: &Out<*mut c_void>, count: usize) -> Answer<Self> {
        let mut logs = Self::default();
        let (mut error_room, mut info_room) = (0, 0);
        if count > 0 && (options.is_null() || values.is_null()) {
            return Err(INVALID_VALUE);
        }
        for (at, option) in options.read_many(count)?.into_iter().enumerate() {
            let value = Untyped::from(values.read_at(at)?);
            match option {
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER => logs.errors = Some((value, 0)),
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    error_room = value.address();
                    logs.error_bytes = Some(at);
                }
                CUjit_option::CU_JIT_INFO_LOG_BUFFER => logs.infos = Some((value, 0)),
                CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => {
                    info_room = value.address();
                    logs.info_bytes = Some(at);
                }
                // They change how code is compiled, which does not show here.
                option if option.0 < CUjit_option::CU_JIT_NUM_OPTIONS.0 => {}
                _ => return Err(INVALID_VALUE),
            }
        }
        if let Some((_, room)) = &mut logs.errors {
            *room = error_room;
        }
        if let Some((_, room)) = &mut logs.infos {
            *room = info_room;
        }
        Ok(logs)
    }

    /// Writes the logs.
    pub fn write(&self, values: &Out<*mut c_void>, errors: &str) -> Answer {
        for (buffer, size, text) in [(self.errors, self.error_bytes, errors), (self.infos, self.info_bytes, "")] {
            let Some((buffer, room)) = buffer else { continue };
            if buffer.is_null() || room == 0 {
                continue;
            }
            buffer.out::<c_char>().write_text(text, room)?;
            if let Some(at) = size {
                let written = if text.is_empty() { 0 } else { (text.len() + 1).min(room) };
                values.write_at(at, written as *mut c_void)?;
            }
        }
        Ok(())
    }
}

/// What an image is.
pub enum Image {
    /// PTX text.
    Text(Vec<u8>),
    /// Native code of a device.
    Cubin,
    /// Several images in one.
    Fatbin(Option<Vec<u8>>),
    /// Nothing known.
    Unknown,
}

const ELF: [u8; 4] = *b"\x7fELF";
const FATBIN: u32 = 0xba55_ed50;
const FATBIN_WRAPPER: u32 = 0x4662_43b1;

impl Image {
    /// Looks at an image in the caller's memory.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a null pointer.
    pub fn read(image: Untyped) -> Answer<Self> {
        let first = image.bytes(1)?;
        // One byte after the other: text may end before the fourth.
        let mut start = first.clone();
        while start.len() < 4 && start.last() != Some(&0) {
            start = image.bytes(start.len() + 1)?;
        }
        let magic = <[u8; 4]>::try_from(start.as_slice()).map(u32::from_le_bytes);
        if start == ELF {
            return Ok(Image::Cubin);
        }
        match magic {
            Ok(FATBIN) => Ok(Image::Fatbin(fatbin_text(image))),
            Ok(FATBIN_WRAPPER) => {
                let inner = image.offset(8).of::<*mut c_void>().read()?;
                Ok(Image::Fatbin(fatbin_text(Untyped::from(inner))))
            }
            _ => Self::of(image.bytes_to_zero()?),
        }
    }

    /// Looks at the contents of a file.
    ///
    /// # Errors
    /// None so far.
    pub fn of(bytes: Vec<u8>) -> Answer<Self> {
        if bytes.starts_with(&ELF) {
            return Ok(Image::Cubin);
        }
        if bytes.starts_with(&FATBIN.to_le_bytes()) {
            return Ok(Image::Fatbin(super::image::text_in(&bytes)));
        }
        Ok(if is_ptx(&bytes) { Image::Text(bytes) } else { Image::Unknown })
    }
}

/// Whether bytes are meant to be PTX: text that has a version, however wrong the rest may be.
fn is_ptx(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.contains(".version"))
}

/// The newest PTX in a fat binary in the caller's memory.
fn fatbin_text(image: Untyped) -> Option<Vec<u8>> {
    let header = image.bytes(16).ok()?;
    let len = u64::from_le_bytes(header.get(8..16)?.try_into().ok()?);
    let head = u16::from_le_bytes(header.get(6..8)?.try_into().ok()?);
    let all = usize::try_from(len).ok()?.checked_add(head.into())?;
    if all > 1 << 30 {
        return None;
    }
    text_in(&image.bytes(all).ok()?)
}

/// The PTX with the highest architecture among the entries of a fat binary; compressed entries are left alone.
pub(super) fn text_in(bytes: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let mut at = usize::from(u16::from_le_bytes(bytes.get(6..8)?.try_into().ok()?));
    let mut best: Option<(u32, Vec<u8>)> = None;
    while let (Some(kind), Some(head), Some(len)) = (word(at), word(at + 4), long(at + 8)) {
        let start = at.checked_add(head as usize)?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        let (packed, arch) = (word(at + 16)?, word(at + 28)?);
        if kind & 0xffff == 1 && packed == 0 {
            let text = bytes.get(start..end)?;
            let text = text.split(|byte| *byte == 0).next()?.to_vec();
            if is_ptx(&text) && best.as_ref().is_none_or(|(other, _)| *other < arch) {
                best = Some((arch, text));
            }
        }
        if end <= at {
            break;
        }
        at = end;
    }
    best.map(|(_, text)| text)
}

/// Makes code of an image; what is wrong with it goes into the text.
pub fn parse(image: Image, target: &Target) -> Result<Arc<Code>, (Status, String)> {
    let refuse = |status, text: &str| {
        report::unsupported(format!("{}: {text}", thread::place()));
        Err((status, text.to_owned()))
    };
    let bytes = match image {
        Image::Text(bytes) | Image::Fatbin(Some(bytes)) => bytes,
        Image::Cubin => {
            return refuse(
                NO_BINARY_FOR_GPU,
                "the image is a cubin, code of a real GPU; the simulated device's native code is PTX, so load PTX text",
            );
        }
        Image::Fatbin(None) => {
            return refuse(
                NO_BINARY_FOR_GPU,
                "the fat binary has no uncompressed PTX, which is all that the simulated device runs",
            );
        }
        Image::Unknown => {
            return Err((INVALID_IMAGE, "the image is neither PTX text, nor a cubin, nor a fat binary".to_owned()));
        }
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Err((INVALID_PTX, format!("the PTX text is not UTF-8: {error}"))),
    };
    match cuirass_ptx::Module::parse(&text, target) {
        Ok(module) => Ok(Arc::new(Code::new(module))),
        Err(error) => {
            let status = match error.kind {
                ModuleErrorKind::UnsupportedVersion => UNSUPPORTED_PTX_VERSION,
                _ => INVALID_PTX,
            };
            Err((
                status,
                format!(
                    "ptxas application ptx input, line {}; error   : {error}\nptxas fatal   : Ptx assembly aborted due to errors\n",
                    error.line
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fat binary as nvFatbin writes it: a header of 16 bytes, then entries of 88 bytes and their payload.
    fn fatbin(entries: &[(u16, u32, u32, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, packed, arch, payload) in entries {
            let mut head = [0_u8; 88];
            head[..2].copy_from_slice(&kind.to_le_bytes());
            head[4] = 88;
            head[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
            head[16..20].copy_from_slice(&packed.to_le_bytes());
            head[28..32].copy_from_slice(&arch.to_le_bytes());
            body.extend_from_slice(&head);
            body.extend_from_slice(payload);
        }
        let mut all = FATBIN.to_le_bytes().to_vec();
        all.extend_from_slice(&[1, 0, 16, 0]);
        all.extend_from_slice(&(body.len() as u64).to_le_bytes());
        all.extend(body);
        all
    }

    #[test]
    fn the_newest_plain_ptx_of_a_fat_binary_is_taken() {
        let (old, new) = (b".version 8.0 old\0".as_slice(), b".version 8.0 new\0\0\0".as_slice());
        let all = fatbin(&[(2, 0, 90, b"\x7fELF"), (1, 0, 80, old), (1, 0, 90, new), (1, 9, 100, b"packed")]);
        assert_eq!(text_in(&all), Some(b".version 8.0 new".to_vec()));
        assert_eq!(text_in(&fatbin(&[(1, 9, 100, b"packed")])), None);
        for len in 0..all.len() {
            // Cut anywhere it is no more than found nothing, or the older text.
            let found = text_in(&all[..len]);
            assert!(found.is_none_or(|text| text.starts_with(b".version")));
        }
    }
}
