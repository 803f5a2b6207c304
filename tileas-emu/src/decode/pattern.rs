//! Modifier patterns of the instruction table.
//!
//! In: a pattern such as `setp.{eq,ne}.{and,or}?.{u32,s32}` and the text of an opcode. Out: which
//! alternative each braced part took (`None` for an absent optional part), in order.
//! Parts are separated by dots, `*` is any one modifier; a braced part lists alternatives, `?` makes a part optional.
//! Parts are matched left to right with backtracking, so an optional part never steals a modifier
//! that a later part needs.

/// Chosen alternatives of the braced and optional parts of a pattern.
pub type Choices<'a> = Vec<Option<&'a str>>;

fn parts(pattern: &str) -> Vec<(&str, bool)> {
    let (mut out, mut start, mut depth) = (Vec::new(), 0, 0);
    for (i, c) in pattern.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            '.' if depth == 0 => {
                out.push(&pattern[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&pattern[start..]);
    out.into_iter().map(|p| p.strip_suffix('?').map_or((p, false), |p| (p, true))).collect()
}

fn step<'a>(parts: &[(&str, bool)], text: &[&'a str], out: &mut Choices<'a>) -> bool {
    let Some(&(part, optional)) = parts.first() else { return text.is_empty() };
    let inner = part.strip_prefix('{').and_then(|p| p.strip_suffix('}'));
    let recorded = inner.is_some() || optional;
    if let Some(&word) = text.first() {
        let hit = inner.map_or(part == word, |p| p.split(',').any(|a| a == word || a == "*"));
        if hit {
            let mark = out.len();
            if recorded {
                out.push(Some(word));
            }
            if step(&parts[1..], &text[1..], out) {
                return true;
            }
            out.truncate(mark);
        }
    }
    if optional {
        out.push(None);
        if step(&parts[1..], text, out) {
            return true;
        }
        out.pop();
    }
    false
}

/// Matches an opcode against a pattern.
pub fn matches<'a>(pattern: &str, opcode: &'a str) -> Option<Choices<'a>> {
    let text: Vec<&str> = opcode.split('.').collect();
    let mut out = Vec::new();
    step(&parts(pattern), &text, &mut out).then_some(out)
}

/// The mnemonic a pattern starts with.
pub fn mnemonic(pattern: &str) -> &str {
    pattern.split('.').next().unwrap_or(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_and_options() {
        let p = "setp.{eq,ne}.{and,or}?.ftz?.{u32,f32}";
        assert_eq!(matches(p, "setp.eq.u32"), Some(vec![Some("eq"), None, None, Some("u32")]));
        assert_eq!(matches(p, "setp.ne.and.f32"), Some(vec![Some("ne"), Some("and"), None, Some("f32")]));
        assert_eq!(matches(p, "setp.ne.and.ftz.f32").map(|c| c.len()), Some(4));
        assert_eq!(matches(p, "setp.lt.u32"), None);
        assert_eq!(matches(p, "setp.eq"), None);
        assert_eq!(matches(p, "setp.eq.u32.x"), None);
    }
}
