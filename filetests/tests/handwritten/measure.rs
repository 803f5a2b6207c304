//! Counts over PTX and machine code: whole loops, and what stands in them.

/// Instructions and labels of a module without comments.
pub fn lines(ptx: &str) -> Vec<&str> {
    ptx.lines().map(|l| l.split("//").next().unwrap_or("").trim()).filter(|l| !l.is_empty()).collect()
}

/// Instructions and labels of machine code without addresses.
pub fn machine_lines(text: &str) -> Vec<&str> {
    let code = text.lines().map(|l| l.split_once("*/").map_or(l, |(_, code)| code));
    let code = code.map(|l| l.split("/*").next().unwrap_or("").trim());
    code.filter(|l| l.ends_with(';') || l.starts_with(".L") && l.ends_with(':')).collect()
}

/// The innermost loop around an instruction that contains a word: the shortest stretch from a label to a later branch back to it. Without labels.
pub fn loop_around<'a>(lines: &[&'a str], word: &str) -> Vec<&'a str> {
    let mut best = 0..usize::MAX;
    for (first, label) in lines.iter().enumerate().filter_map(|(i, l)| Some((i, l.strip_suffix(':')?))) {
        let back = |l: &&str| {
            let to = l.strip_suffix(';').and_then(|l| l.split_once("bra ").or_else(|| l.split_once("BRA ")));
            to.is_some_and(|(_, to)| to.trim_matches(['`', '(', ')', ' ']) == label)
        };
        let ends = lines.iter().enumerate().skip(first + 1).filter(|(_, l)| back(l));
        let mut around = ends.filter(|&(last, _)| lines[first..last].iter().any(|l| l.contains(word)));
        if let Some((last, _)) = around.next()
            && last - first < best.len()
        {
            best = first..last + 1;
        }
    }
    assert!(best.end <= lines.len(), "no loop around {word}");
    lines[best].iter().copied().filter(|l| l.ends_with(';')).collect()
}

/// How many of these contain a word.
pub fn count(lines: &[&str], word: &str) -> usize {
    lines.iter().filter(|l| l.contains(word)).count()
}

/// One more than the highest number behind a letter: registers that machine code names.
pub fn registers(lines: &[&str]) -> usize {
    let words = lines.iter().flat_map(|l| l.split(|c: char| !c.is_ascii_alphanumeric()));
    words.filter_map(|w| w.strip_prefix('R')?.parse::<usize>().ok()).max().map_or(0, |n| n + 1)
}
