//! QEMU's qtest socket: one line asks, one line answers.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// I/O ports of a PC's PCI configuration space: address, data.
const CONFIG: [u16; 2] = [0xcf8, 0xcfc];

/// The socket. Everybody who asks waits for the answer before the next one asks.
pub(crate) struct Wire(Mutex<BufReader<UnixStream>>);

impl Wire {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self(Mutex::new(BufReader::new(stream))))
    }

    /// Reads 32 bits of the machine's address space.
    pub(crate) fn read32(&self, address: u64) -> io::Result<u32> {
        self.ask(format_args!("readl {address:#x}\n"))
    }

    /// Writes 32 bits of the machine's address space.
    pub(crate) fn write32(&self, address: u64, value: u32) -> io::Result<()> {
        self.ask(format_args!("writel {address:#x} {value:#x}\n"))
            .map(drop)
    }

    /// Reads a register of a function's configuration space.
    pub(crate) fn config32(&self, function: Function, at: u8) -> io::Result<u32> {
        self.select(function, at)?;
        self.ask(format_args!("inl {:#x}\n", CONFIG[1]))
    }

    /// Writes a register of a function's configuration space.
    pub(crate) fn set_config32(&self, function: Function, at: u8, value: u32) -> io::Result<()> {
        self.select(function, at)?;
        self.ask(format_args!("outl {:#x} {value:#x}\n", CONFIG[1]))
            .map(drop)
    }

    fn select(&self, function: Function, at: u8) -> io::Result<()> {
        let address = 1 << 31 | u32::from(function.slot) << 11 | u32::from(at & !3);
        self.ask(format_args!("outl {:#x} {address:#x}\n", CONFIG[0]))
            .map(drop)
    }

    /// The value in the answer, 0 if it has none.
    fn ask(&self, line: fmt::Arguments<'_>) -> io::Result<u32> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One write: the other side answers once it has a whole line.
        stream.get_mut().write_all(line.to_string().as_bytes())?;
        loop {
            let mut answer = String::new();
            if stream.read_line(&mut answer)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut words = answer.split_whitespace();
            match (words.next(), words.next()) {
                (Some("OK"), None) => return Ok(0),
                (Some("OK"), Some(value)) => return parse(value),
                // An interrupt line that changed in between.
                (Some("IRQ"), _) => {}
                _ => return Err(io::Error::other(format!("{line}qtest says {answer}"))),
            }
        }
    }
}

/// A function of the machine's first PCI bus.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub(crate) slot: u8,
}

fn parse(value: &str) -> io::Result<u32> {
    let digits = value.trim_start_matches("0x");
    let value = u64::from_str_radix(digits, 16).map_err(io::Error::other)?;
    u32::try_from(value).map_err(io::Error::other)
}
