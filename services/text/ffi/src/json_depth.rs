//! A look at JSON before a recursive parser sees it.

/// Refuses nesting deeper than `limit` (untagged enums of `tokenizers` buffer and re-parse every level).
/// Strings are skipped; whether it is JSON at all is the parser's business.
pub fn check(json: &[u8], limit: usize) -> Result<(), String> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, byte) in json.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return Err(format!("nested deeper than {limit} levels at byte {at}"));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}
