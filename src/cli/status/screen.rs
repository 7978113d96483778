//! The terminal: each picture in place of the last, and everything as it was when this ends, however it ends.

use std::env;
use std::io::{IsTerminal, Write, stdout};

use super::picture::{Line, Tone};
use crate::cli::output::width;

/// A terminal that shows pictures. Dropping it gives the terminal back.
pub struct Screen {
    colour: bool,
}

impl Screen {
    /// Takes the terminal, where stdout is one that can show pictures.
    pub fn open() -> Option<Screen> {
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if dumb || !stdout().is_terminal() {
            return None;
        }
        let screen = Screen { colour: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
        screen.take();
        Some(screen)
    }

    /// Columns and rows, as they are now.
    pub fn size(&self) -> (usize, usize) {
        match rustix::termios::tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Shows the lines, which must fit, in one write: nothing flickers.
    pub fn draw(&self, lines: &[Line], columns: usize) {
        let mut picture = String::from("\x1b[H");
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                picture.push_str("\r\n");
            }
            self.paint(line, &mut picture);
            // After a full line the cursor stands on its last character, which this would wipe.
            if width(&line.text) < columns {
                picture.push_str("\x1b[K");
            }
        }
        picture.push_str("\x1b[J");
        write(&picture);
    }

    /// Gives the terminal back for a while; [`Screen::take`] ends it.
    pub fn give_back(&self) {
        write("\x1b[0m\x1b[?25h\x1b[?1049l");
    }

    /// The alternate screen, without a cursor.
    pub fn take(&self) {
        write("\x1b[?1049h\x1b[?25l\x1b[2J");
    }

    fn paint(&self, line: &Line, picture: &mut String) {
        let colour = match line.tone {
            _ if !self.colour => None,
            Tone::Plain => None,
            Tone::Heading => Some("1"),
            Tone::Held => Some("33"),
            Tone::Wrong => Some("1;31"),
        };
        match colour {
            Some(colour) => *picture += &format!("\x1b[{colour}m{}\x1b[0m", line.text),
            None => picture.push_str(&line.text),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A terminal that has gone is no error: the signal that says so is on its way.
fn write(text: &str) {
    let mut stdout = stdout().lock();
    let _ = stdout.write_all(text.as_bytes());
    let _ = stdout.flush();
}
