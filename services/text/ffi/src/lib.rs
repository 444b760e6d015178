//! The C face of two Rust crates, `tokenizers` and `minijinja`, and of what Rust knows of Unicode. `dex_text_ffi.h` is
//! the contract.
//!
//! Nothing unwinds into C++: every entry point runs inside [`guard`], which turns an error or a panic into a
//! return code and a message. Nothing allocated here is freed there: results leave through a sink (a callback
//! that copies) or as a pointer that lives as long as its handle.

mod characters;
mod json_depth;
mod template;
mod tokenizer;

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

pub const OK: i32 = 0;
pub const FAILED: i32 = 1;
pub const PANICKED: i32 = 2;

/// Takes the bytes of a result. Called at most once a call, on the calling thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sink {
    context: *mut std::ffi::c_void,
    write: extern "C" fn(*mut std::ffi::c_void, *const u8, usize),
}

impl Sink {
    pub fn put(&self, bytes: &[u8]) {
        (self.write)(self.context, bytes.as_ptr(), bytes.len());
    }
}

/// UTF-8 text of the caller, valid during the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    data: *const u8,
    size: usize,
}

impl Text {
    /// # Safety
    /// `data` points to `size` bytes, or `size` is 0.
    pub unsafe fn bytes<'a>(&self) -> &'a [u8] {
        slice(self.data, self.size)
    }

    /// # Safety
    /// As [`Text::bytes`].
    pub unsafe fn str<'a>(&self) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes())
            .map_err(|e| format!("text must be UTF-8, byte {} is not", e.valid_up_to()))
    }
}

/// # Safety
/// `data` points to `size` values, or `size` is 0.
pub unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// Runs `work`; a failure or a panic becomes a code, and its message goes to `error`.
pub fn guard(error: Sink, work: impl FnOnce() -> Result<(), String>) -> i32 {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {}))); // the message goes to the caller instead
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => OK,
        Ok(Err(message)) => {
            error.put(message.as_bytes());
            FAILED
        }
        Err(panic) => {
            error.put(panic_text(&panic).as_bytes());
            PANICKED
        }
    }
}

fn panic_text(panic: &Box<dyn Any + Send>) -> &str {
    if let Some(text) = panic.downcast_ref::<String>() {
        return text;
    }
    panic
        .downcast_ref::<&str>()
        .copied()
        .unwrap_or("unknown panic")
}
