//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{Args, Parser};
use warpstore_terminal::{UsageError, size};
use warpstore_volume::{ElementType, MemberNames, UNIT};

/// Writes and reads volumes: named arrays on SSDs and media files.
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Write a volume from files
    Flash(Flash),
    /// Say what a volume holds
    Ls(Ls),
    /// Read a volume and compare it with its checksums
    Verify(Verify),
    /// Copy arrays of a volume to files, as raw binary
    Extract(Extract),
}

/// Arguments of `flash`. Sizes take K, M or G: powers of 1024.
#[derive(Args)]
pub struct Flash {
    /// Where to: file:PATH or vfio:SERIAL, several with commas between
    #[arg(long, value_name = "MEMBERS")]
    pub to: MemberNames,
    /// Bytes of each media file that is made [default: room for this volume and the next one]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub size: Option<u64>,
    /// Bytes on one member before the next one's
    #[arg(long, value_name = "BYTES", default_value_t = UNIT, value_parser = size)]
    pub stripe: u64,
    /// Put everything on every member
    #[arg(long, conflicts_with = "stripe")]
    pub replicate: bool,
    /// Say what would be done, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write over this member, whatever it holds; once for each
    #[arg(long, value_name = "MEMBER")]
    pub yes_destroy: Vec<String>,
    /// NAME=FILE: a graph (.el, .el.gz, .mtx, .col with .dst), a table (.csv, .parquet, or a column of it as
    /// FILE#COLUMN), or raw binary as NAME:TYPE=FILE
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<SourceName>,
}

/// Arguments of `ls`.
#[derive(Args)]
pub struct Ls {
    /// The members, in any order: file:PATH or vfio:SERIAL, several with commas between
    pub members: MemberNames,
}

/// Arguments of `verify`.
#[derive(Args)]
pub struct Verify {
    /// The members, in any order: file:PATH or vfio:SERIAL, several with commas between
    pub members: MemberNames,
    /// Take what is there for right: compute the checksums anew and mend superblocks
    #[arg(long)]
    pub seal: bool,
}

/// Arguments of `extract`.
#[derive(Args)]
pub struct Extract {
    /// The members, in any order: file:PATH or vfio:SERIAL, several with commas between
    pub members: MemberNames,
    /// NAME=FILE: an array and the file to make
    #[arg(required = true, value_name = "ARRAY")]
    pub arrays: Vec<TargetName>,
}

/// Where an array comes from: `NAME[:TYPE]=FILE[#COLUMN]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceName {
    /// The array, or what its names begin with.
    pub name: String,
    /// The type of its elements, if it was said.
    pub element: Option<ElementType>,
    /// The file.
    pub file: PathBuf,
    /// The column of a table.
    pub column: Option<String>,
}

/// Where an array goes: `NAME=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetName {
    /// The array.
    pub name: String,
    /// The file.
    pub file: PathBuf,
}

impl FromStr for SourceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (left, right) = halves(text, "NAME=FILE or NAME:TYPE=FILE")?;
        let (name, element) = match left.split_once(':') {
            Some((name, element)) => (name, Some(element.parse()?)),
            None => (left, None),
        };
        let (file, column) = match right.rsplit_once('#') {
            Some((file, column)) => (file, Some(column.to_owned())),
            None => (right, None),
        };
        Ok(Self {
            name: name.to_owned(),
            element,
            file: file.into(),
            column,
        })
    }
}

impl SourceName {
    /// The same, where a file has all of the name, `#` included: then there is no column.
    pub fn resolved(&self) -> Self {
        let mut source = self.clone();
        if let Some(column) = &self.column {
            let mut whole = self.file.clone().into_os_string();
            whole.push("#");
            whole.push(column);
            let whole = PathBuf::from(whole);
            if whole.exists() {
                (source.file, source.column) = (whole, None);
            }
        }
        source
    }
}

impl FromStr for TargetName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, file) = halves(text, "NAME=FILE")?;
        Ok(Self {
            name: name.to_owned(),
            file: file.into(),
        })
    }
}

fn halves<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str), String> {
    let halves = text.split_once('=');
    halves
        .filter(|(left, right)| !left.is_empty() && !right.is_empty())
        .ok_or_else(|| format!("it must be {form}"))
}

/// What a command line asks for.
pub enum Request {
    /// To do something.
    Run(Command),
    /// To show help or the version.
    Show(String),
}

/// Reads the command line.
///
/// # Errors
/// What is wrong with it, in one sentence.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, UsageError> {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => Ok(Request::Run(cli.command)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            Ok(Request::Show(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sources_are_read() {
        let source = |text: &str| text.parse::<SourceName>();
        assert_eq!(
            source("a:u32=x/y=z.bin"),
            Ok(SourceName {
                name: "a".into(),
                element: Some(ElementType::U32),
                file: "x/y=z.bin".into(),
                column: None
            })
        );
        let table = source("t=a#b.csv#price").unwrap();
        assert_eq!(table.file, PathBuf::from("a#b.csv"));
        assert_eq!(table.column.as_deref(), Some("price"));
        for text in ["", "a", "a=", "=f", "a:u9=f"] {
            assert!(source(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wrong_command_line_is_one_sentence() {
        for (line, words) in [
            ("flash", "--to is missing"),
            ("flash --to file:a", "source is missing"),
            ("flash --to a x=y", "'a' is no member"),
            (
                "flash --to file:a --stripe 4k x=y",
                "--stripe 4k: it must be",
            ),
            ("flash --to file:a --replicate --stripe 64K x=y", "--stripe"),
            ("ls", "members is missing"),
            ("extract file:a x", "array x: it must be NAME=FILE"),
            ("verify file:a --quick", "--quick is not an option"),
        ] {
            let words_of = std::iter::once("xtask").chain(line.split_whitespace());
            let error = match parse(words_of.map(OsString::from)) {
                Err(error) => error.to_string(),
                Ok(_) => panic!("{line}"),
            };
            assert!(
                error.contains(words) && !error.contains('\n'),
                "{line}: {error}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = (text.parse::<SourceName>(), text.parse::<TargetName>());
        }
    }
}
