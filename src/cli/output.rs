//! What a command prints on standard output: text for people, aligned and within 80 columns, or JSON.

use std::io::Write;

use serde::Serialize;

/// Prints the text and a line end. Whoever closed the pipe has read enough: that is no error.
pub fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints one JSON document on one line; false where nobody reads any more.
pub fn print_json_line(value: &impl Serialize) -> bool {
    let line = serde_json::to_string(value).expect("strings, numbers and lists are always JSON");
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_ok()
}

/// Prints one JSON document.
pub fn print_json(value: &impl Serialize) {
    print(&serde_json::to_string_pretty(value).expect("strings, numbers and lists are always JSON"));
}

/// Aligns the columns; the last one is not padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|i| rows.iter().filter_map(|row| row.get(i)).map(|cell| width(cell)).max().unwrap_or(0))
        .collect();
    let lines = rows.iter().map(|row| {
        let cells =
            row.iter().zip(&widths).map(|(cell, &widest)| format!("{cell}{}", " ".repeat(widest - width(cell))));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The name, cut so that a table of it stays readable.
pub fn short(name: &str) -> String {
    cut(name, 24)
}

/// The text, or as much of it as fits into so many columns, with a sign that there was more.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut room = columns.saturating_sub(1);
    for character in text.chars() {
        match room.checked_sub(width(character.encode_utf8(&mut [0; 4]))) {
            Some(left) => room = left,
            None => break,
        }
        kept.push(character);
    }
    if columns > 0 { kept + "…" } else { kept }
}

/// The text in lines of at most so many columns, broken between words where that is possible. What follows the first line
/// stands two columns further in.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    if width(text) <= columns {
        return vec![text.to_owned()];
    }
    let indent = text.chars().take_while(|c| *c == ' ').count();
    let further = " ".repeat((indent + 2).min(columns / 2));
    let mut lines = Vec::new();
    let mut line = " ".repeat(indent.min(columns / 2));
    let mut begun = false;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let gap = usize::from(begun);
        if width(&line) + gap + width(word) > columns && begun {
            lines.push(std::mem::replace(&mut line, further.clone()));
        } else if begun {
            line.push(' ');
        }
        line.push_str(&cut(word, columns.saturating_sub(width(&line))));
        begun = true;
    }
    lines.push(line);
    lines
}

/// Parts per million as a percentage: `12.5%`.
pub fn percent(ppm: f64) -> String {
    let text = format!("{:.2}", ppm / 10_000.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Columns on a terminal: Hangul, Han and emoji take two.
pub fn width(text: &str) -> usize {
    let wide = |c: char| {
        matches!(c, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}'
            | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}' | '\u{1f300}'..='\u{1faff}')
    };
    text.chars().map(|c| if wide(c) { 2 } else { 1 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_in_hangul_too() {
        let rows = [vec!["주문".to_owned(), "1".to_owned()], vec!["order".to_owned(), "2".to_owned()]];
        assert_eq!(table(&rows), "주문   1\norder  2");
    }

    #[test]
    fn a_long_name_is_cut_to_its_columns() {
        assert_eq!(short("order"), "order");
        assert_eq!(width(&short(&"가".repeat(100))), 23);
        assert_eq!(width(&short(&"a".repeat(100))), 24);
    }

    #[test]
    fn a_sentence_is_wrapped_between_words_and_no_line_is_wider_than_asked() {
        assert_eq!(wrap("  why: bad ones in a row", 14), ["  why: bad", "    ones in a", "    row"]);
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(wrap("주문이 밀려 있습니다", 8), ["주문이", "  밀려", "  있습…"]);
        for columns in 1..40 {
            for line in
                wrap("    held 주문 for 3s: a-word-that-is-longer-than-the-screen is, 길다길다길다길다", columns)
            {
                assert!(width(&line) <= columns, "{columns}: {line:?}");
            }
        }
    }

    #[test]
    fn a_share_is_read_as_percent() {
        assert_eq!(percent(125_000.0), "12.5%");
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(1_000_000.0), "100%");
    }
}
