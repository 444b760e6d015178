//! `tokenizers` behind C functions: encode with byte offsets, decode, and the bytes of every token.

use crate::{guard, json_depth, slice, Sink, Text};
use std::collections::HashMap;
use tokenizers::{AddedVocabulary, PostProcessor, PostProcessorWrapper, Tokenizer};

const MAX_DEPTH: usize = 32;
const MAX_ID: u32 = 1 << 22; // tables below are indexed by id; real vocabularies end at 300 000

/// How a token's entry in the vocabulary becomes bytes of text.
#[derive(Clone, Copy, PartialEq)]
enum Bytes {
    Level,                     // GPT-2's alphabet: one character is one byte
    Fallback { strip: usize }, // SentencePiece: `▁` is a space, `<0x0A>` a byte; leading spaces to strip
}

pub struct Handle {
    tokenizer: Tokenizer, // without its post-processor: that one moves offsets off white space
    processor: Option<PostProcessorWrapper>,
    bytes: Bytes,
    blob: Vec<u8>,    // every token's bytes, one after the other, in order of id
    ends: Vec<usize>, // ends[id]: where they end
    kind: Vec<u8>,    // 0 no such id, 1 ordinary, 2 special
}

impl Handle {
    fn open(json: &[u8]) -> Result<Handle, String> {
        json_depth::check(json, MAX_DEPTH)?;
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(|e| e.to_string())?;
        tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
        tokenizer.with_padding(None);
        let processor = tokenizer.get_post_processor().cloned();
        tokenizer.with_post_processor(None::<PostProcessorWrapper>);
        let bytes = byte_rule(&tokenizer)?;
        let mut handle = Handle {
            tokenizer,
            processor,
            bytes,
            blob: vec![],
            ends: vec![],
            kind: vec![],
        };
        handle.fill_table()?;
        Ok(handle)
    }

    fn fill_table(&mut self) -> Result<(), String> {
        let vocabulary = self.tokenizer.get_vocab(true);
        let mut by_id: Vec<Option<&str>> = vec![];
        for (token, &id) in &vocabulary {
            if id >= MAX_ID {
                return Err(format!(
                    "token {token:?} has id {id}, ids must be below {MAX_ID}"
                ));
            }
            if by_id.len() <= id as usize {
                by_id.resize(id as usize + 1, None);
            }
            if let Some(other) = by_id[id as usize].replace(token) {
                return Err(format!("id {id} is used twice, by {other:?} and {token:?}"));
            }
        }
        if by_id.is_empty() {
            return Err("the vocabulary is empty".into());
        }
        let added: &AddedVocabulary = self.tokenizer.get_added_vocabulary();
        let alphabet = byte_level_alphabet();
        for token in &by_id {
            if let Some(token) = token {
                push_bytes(&mut self.blob, token, self.bytes, &alphabet);
            }
            self.kind
                .push(token.map_or(0, |t| 1 + added.is_special_token(t) as u8));
            self.ends.push(self.blob.len());
        }
        Ok(())
    }

    fn token(&self, id: u32) -> Option<(&[u8], bool)> {
        let kind = *self.kind.get(id as usize)?;
        let begin = if id == 0 {
            0
        } else {
            self.ends[id as usize - 1]
        };
        (kind > 0).then(|| (&self.blob[begin..self.ends[id as usize]], kind == 2))
    }

    /// Without `want_starts` the library keeps no offsets, which is quicker; the starts are then all 0.
    fn encode(
        &self,
        text: &str,
        add_special_tokens: bool,
        want_starts: bool,
    ) -> Result<(Vec<u32>, Vec<u32>), String> {
        let encoded = if want_starts {
            self.tokenizer.encode(text, false)
        } else {
            self.tokenizer.encode_fast(text, false)
        };
        let mut encoding = encoded.map_err(|e| e.to_string())?;
        if let (true, Some(processor)) = (add_special_tokens, &self.processor) {
            encoding = processor
                .process(encoding, None, true)
                .map_err(|e| e.to_string())?;
            // The post-processor writes its ids out; nobody held them against the vocabulary.
            if let Some(bad) = encoding.get_ids().iter().find(|id| self.token(**id).is_none()) {
                return Err(format!(
                    "the post-processor adds id {bad}, which is not in the vocabulary of {} ids",
                    self.kind.len()
                ));
            }
        }
        let offsets = encoding.get_offsets().iter();
        let starts = offsets.map(|(start, _)| *start as u32).collect();
        Ok((encoding.get_ids().to_vec(), starts))
    }

    fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, String> {
        if let Some(bad) = ids.iter().find(|id| self.token(**id).is_none()) {
            return Err(format!(
                "token id {bad} is not in the vocabulary of {} ids",
                self.kind.len()
            ));
        }
        self.tokenizer
            .decode(ids, skip_special)
            .map_err(|e| e.to_string())
    }
}

/// Only decoders whose output is the concatenation of each token's bytes: streaming and log-probabilities need
/// to say what one token stands for.
fn byte_rule(tokenizer: &Tokenizer) -> Result<Bytes, String> {
    let decoder = tokenizer
        .get_decoder()
        .ok_or("no decoder: expected ByteLevel or ByteFallback")?;
    let json = serde_json::to_value(decoder).map_err(|e| e.to_string())?;
    let parts = match json["type"].as_str() {
        Some("Sequence") => json["decoders"].as_array().cloned().unwrap_or_default(),
        _ => vec![json],
    };
    let types: Vec<&str> = parts.iter().filter_map(|p| p["type"].as_str()).collect();
    match types.as_slice() {
        ["ByteLevel"] => Ok(Bytes::Level),
        ["Replace", "ByteFallback", "Fuse"] => Ok(Bytes::Fallback { strip: 0 }),
        ["Replace", "ByteFallback", "Fuse", "Strip"] => Ok(Bytes::Fallback {
            strip: parts[3]["start"].as_u64().unwrap_or(0) as usize,
        }),
        _ => Err(format!(
            "decoder {types:?} is not supported: expected ByteLevel or ByteFallback"
        )),
    }
}

/// GPT-2's map from visible characters to bytes (openai/gpt-2, encoder.py, bytes_to_unicode).
fn byte_level_alphabet() -> HashMap<char, u8> {
    let visible = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 256u32;
    let mut map = HashMap::new();
    for byte in 0..=255u8 {
        let code = if visible(byte) { byte as u32 } else { next };
        next += !visible(byte) as u32;
        map.insert(char::from_u32(code).expect("below 512"), byte);
    }
    map
}

fn push_bytes(blob: &mut Vec<u8>, token: &str, rule: Bytes, alphabet: &HashMap<char, u8>) {
    if rule == Bytes::Level {
        // A token with a character outside the alphabet (an added one) stands for itself.
        match token
            .chars()
            .map(|c| alphabet.get(&c).copied())
            .collect::<Option<Vec<u8>>>()
        {
            Some(bytes) => blob.extend(bytes),
            None => blob.extend(token.as_bytes()),
        }
        return;
    }
    let hex = token
        .strip_prefix("<0x")
        .and_then(|t| t.strip_suffix('>'))
        .filter(|t| t.len() == 2);
    match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
        Some(byte) => blob.push(byte),
        None => blob.extend(token.replace('▁', " ").as_bytes()),
    }
}

#[repr(C)]
pub struct Info {
    vocab_size: u32,
    strip_leading_spaces: u32,
}

/// Takes token ids and, for each, the byte where it starts in the text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IdSink {
    context: *mut std::ffi::c_void,
    write: extern "C" fn(*mut std::ffi::c_void, *const u32, *const u32, usize),
}

/// # Safety
/// As said in dex_text_ffi.h; so for every function below.
#[no_mangle]
pub unsafe extern "C" fn dex_tokenizer_open(
    json: Text,
    out: *mut *mut Handle,
    info: *mut Info,
    error: Sink,
) -> i32 {
    guard(error, || {
        let handle = Handle::open(json.bytes())?;
        let strip = match handle.bytes {
            Bytes::Level => 0,
            Bytes::Fallback { strip } => strip as u32,
        };
        *info = Info {
            vocab_size: handle.kind.len() as u32,
            strip_leading_spaces: strip,
        };
        *out = Box::into_raw(Box::new(handle));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn dex_tokenizer_close(handle: *mut Handle) {
    if !handle.is_null() {
        drop(Box::from_raw(handle));
    }
}

#[no_mangle]
pub unsafe extern "C" fn dex_tokenizer_encode(
    handle: *const Handle,
    text: Text,
    add_special_tokens: i32,
    want_starts: i32,
    out: IdSink,
    error: Sink,
) -> i32 {
    guard(error, || {
        let (ids, starts) =
            (*handle).encode(text.str()?, add_special_tokens != 0, want_starts != 0)?;
        (out.write)(out.context, ids.as_ptr(), starts.as_ptr(), ids.len());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn dex_tokenizer_decode(
    handle: *const Handle,
    ids: *const u32,
    count: usize,
    skip_special_tokens: i32,
    out: Sink,
    error: Sink,
) -> i32 {
    guard(error, || {
        let text = (*handle).decode(slice(ids, count), skip_special_tokens != 0)?;
        out.put(text.as_bytes());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn dex_tokenizer_token(
    handle: *const Handle,
    id: u32,
    out: *mut Text,
    special: *mut i32,
) -> i32 {
    let Some((bytes, is_special)) = (*handle).token(id) else {
        return crate::FAILED;
    };
    *out = Text {
        data: bytes.as_ptr(),
        size: bytes.len(),
    };
    *special = is_special as i32;
    crate::OK
}

#[no_mangle]
pub unsafe extern "C" fn dex_tokenizer_id(
    handle: *const Handle,
    token: Text,
    id: *mut u32,
    error: Sink,
) -> i32 {
    guard(error, || {
        let token = token.str()?;
        *id = (*handle)
            .tokenizer
            .token_to_id(token)
            .ok_or_else(|| format!("no token {token:?}"))?;
        Ok(())
    })
}
