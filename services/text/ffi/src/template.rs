//! `minijinja` behind C functions, set up as Hugging Face's `apply_chat_template` sets up Jinja2.

use crate::{guard, slice, Sink, Text};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{context, Environment, Error, ErrorKind};
use serde::Serialize;
use std::io::Write;

/// Work that one rendering may do: an instruction or 64 bytes of text cost 1, so it bounds time (about a second)
/// and memory (256 MB). A chat of 8 MiB, copied ten times on its way, costs 1.3 million.
const FUEL: u64 = 4_000_000;

pub struct Handle {
    environment: Environment<'static>,
}

/// One message of a chat; `name` may be empty and is then absent.
#[repr(C)]
pub struct Message {
    role: Text,
    content: Text,
    name: Text,
}

#[repr(C)]
pub struct Pair {
    key: Text,
    value: Text,
}

impl Handle {
    fn open(source: &str) -> Result<Handle, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(|e| describe(&e))?);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<Value, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        // No strftime_now: a prompt must not depend on the day, or training and serving would differ.
        environment.add_filter("tojson", python_json);
        environment
            .add_template_owned("chat_template", without_generation_tags(source))
            .map_err(|e| describe(&e))?;
        Ok(Handle { environment })
    }
}

/// Transformers' `{% generation %}` only marks text for its own loss mask; here it is a block that always shows.
fn without_generation_tags(source: &str) -> String {
    let mut text = source.to_owned();
    for (tag, plain) in [("endgeneration", "endif"), ("generation", "if true")] {
        for open in ["{% ", "{%- ", "{%-", "{%"] {
            for close in [" %}", " -%}", "-%}", "%}"] {
                text = text.replace(
                    &format!("{open}{tag}{close}"),
                    &format!("{open} {plain} {close}"),
                );
            }
        }
    }
    text
}

fn describe(error: &Error) -> String {
    let what = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    match (error.kind(), error.line()) {
        (ErrorKind::OutOfFuel, _) => "it runs too long or makes too much text".into(),
        (_, Some(line)) => format!("line {line}: {what}"),
        _ => what,
    }
}

/// `json.dumps(value, ensure_ascii=False, indent=…)`: Python's separators, nothing escaped for HTML.
fn python_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let fail =
        |e: serde_json::Error| Error::new(ErrorKind::InvalidOperation, format!("tojson: {e}"));
    let mut out = vec![];
    if let Some(width) = indent {
        let spaces = " ".repeat(width.min(16));
        let pretty = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
        value
            .serialize(&mut serde_json::Serializer::with_formatter(
                &mut out, pretty,
            ))
            .map_err(fail)?;
    } else {
        value
            .serialize(&mut serde_json::Serializer::with_formatter(
                &mut out, Spaced,
            ))
            .map_err(fail)?;
    }
    Ok(Value::from_safe_string(
        String::from_utf8_lossy(&out).into_owned(),
    ))
}

/// `", "` between items and `": "` after keys.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }
    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> std::io::Result<()> {
        w.write_all(b": ")
    }
}

/// Keeps the rendering, up to a limit.
struct Capped {
    text: Vec<u8>,
    limit: usize,
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.text.len() + bytes.len() > self.limit {
            return Err(std::io::Error::other("more text than the limit"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// # Safety
/// As said in dex_text_ffi.h; so for every function below.
#[no_mangle]
pub unsafe extern "C" fn dex_template_open(
    source: Text,
    out: *mut *mut Handle,
    error: Sink,
) -> i32 {
    guard(error, || {
        *out = Box::into_raw(Box::new(Handle::open(source.str()?)?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn dex_template_close(handle: *mut Handle) {
    if !handle.is_null() {
        drop(Box::from_raw(handle));
    }
}

#[no_mangle]
pub unsafe extern "C" fn dex_template_render(
    handle: *const Handle,
    messages: *const Message,
    count: usize,
    special_tokens: *const Pair,
    special_count: usize,
    add_generation_prompt: i32,
    out: Sink,
    error: Sink,
) -> i32 {
    guard(error, || {
        let (mut list, mut input_bytes) = (vec![], 0);
        for message in slice(messages, count) {
            let (role, content, name) = (
                message.role.str()?,
                message.content.str()?,
                message.name.str()?,
            );
            input_bytes += role.len() + content.len() + name.len();
            let mut entry = vec![
                ("role", Value::from(role)),
                ("content", Value::from(content)),
            ];
            if !name.is_empty() {
                entry.push(("name", Value::from(name)));
            }
            list.push(Value::from_pairs(entry));
        }
        let mut tokens = vec![];
        for pair in slice(special_tokens, special_count) {
            tokens.push((pair.key.str()?, Value::from(pair.value.str()?)));
        }
        let values = context! {
            messages => list,
            tools => Value::from(()),
            documents => Value::from(()),
            add_generation_prompt => add_generation_prompt != 0,
            ..Value::from_pairs(tokens)
        };
        let text = render(&*handle, values, input_bytes, count)?;
        out.put(&text);
        Ok(())
    })
}

fn render(
    handle: &Handle,
    values: Value,
    input_bytes: usize,
    messages: usize,
) -> Result<Vec<u8>, String> {
    let mut out = Capped {
        text: vec![],
        limit: (1 << 20) + 8 * input_bytes + 4096 * messages,
    };
    let template = handle
        .environment
        .get_template("chat_template")
        .map_err(|e| describe(&e))?;
    template
        .render_captured_to(values, &mut out)
        .map_err(|e| describe(&e))?;
    Ok(out.text)
}
