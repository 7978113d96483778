//! What a command prints on standard output: text for people, aligned and within 80 columns, or JSON.

use std::io::Write;

use serde::Serialize;

/// Prints the text and a line end. Whoever closed the pipe has read enough: that is no error.
pub fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
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
    const LONGEST: usize = 24;
    if width(name) <= LONGEST {
        return name.to_owned();
    }
    let mut cut = String::new();
    for character in name.chars() {
        if width(&cut) + width(character.encode_utf8(&mut [0; 4])) >= LONGEST {
            break;
        }
        cut.push(character);
    }
    cut + "…"
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
    fn a_share_is_read_as_percent() {
        assert_eq!(percent(125_000.0), "12.5%");
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(1_000_000.0), "100%");
    }
}
