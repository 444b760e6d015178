//! What Unicode says of characters: lower case, capitals, punctuation, blanks.

use crate::{guard, Sink, Text};
use unicode_categories::UnicodeCategories;

const OTHER: u8 = 0;
const CAPITAL: u8 = 1;
const PUNCTUATION: u8 = 2;
const BLANK: u8 = 3;

fn kind(c: char) -> u8 {
    if c.is_whitespace() || c.is_control() {
        BLANK
    } else if c.is_ascii_punctuation() || c.is_punctuation() {
        PUNCTUATION
    } else if !c.to_lowercase().eq([c]) {
        CAPITAL // also the few letters in title case
    } else {
        OTHER
    }
}

/// As said in dex_text_ffi.h; so for every function below.
#[no_mangle]
pub unsafe extern "C" fn dex_text_lowercase(text: Text, out: Sink, error: Sink) -> i32 {
    guard(error, || {
        out.put(text.str()?.to_lowercase().as_bytes());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn dex_text_kinds(text: Text, out: Sink, error: Sink) -> i32 {
    guard(error, || {
        let text = text.str()?;
        let mut kinds = Vec::with_capacity(text.len());
        for c in text.chars() {
            kinds.resize(kinds.len() + c.len_utf8(), kind(c));
        }
        out.put(&kinds);
        Ok(())
    })
}
