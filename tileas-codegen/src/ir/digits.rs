//! Numbers in texts, without the formatting machinery: names and expressions are made in every compilation.

/// Appends a number in decimal digits.
pub(crate) fn push_number(text: &mut String, number: impl Into<u64>) {
    text.push_str(itoa::Buffer::new().format(number.into()));
}
