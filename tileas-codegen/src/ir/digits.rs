//! Numbers in texts, without the formatting machinery: names and expressions are made in every compilation.

/// Appends a number in decimal digits.
pub(crate) fn push_number(text: &mut String, number: impl Into<u64>) {
    push(text, number.into());
}

fn push(text: &mut String, number: u64) {
    if number > 9 {
        push(text, number / 10);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_read_as_they_are_formatted() {
        for n in [0_u64, 7, 9, 10, 99, 100, 1024, u64::from(u32::MAX), u64::MAX] {
            let mut text = String::from("n");
            super::push_number(&mut text, n);
            assert_eq!(text, format!("n{n}"));
        }
    }
}
