//! How a user names members: `file:PATH` or `vfio:SERIAL`, several with commas between.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A member, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberName {
    /// A media file.
    File(PathBuf),
    /// The SSD with this serial number, on vfio-pci.
    Vfio(String),
}

/// The members of a volume, as a user names them; at least one, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberNames(Vec<MemberName>);

impl MemberNames {
    /// The names, as they were given.
    pub fn iter(&self) -> impl Iterator<Item = &MemberName> {
        self.0.iter()
    }
}

impl FromStr for MemberName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("file" | "vfio", "")) | None => {}
            Some(("file", path)) => return Ok(Self::File(path.into())),
            Some(("vfio", serial)) => return Ok(Self::Vfio(serial.to_owned())),
            Some(_) => {}
        }
        Err(format!(
            "'{text}' is no member: write file:PATH or vfio:SERIAL, several with commas between"
        ))
    }
}

impl FromStr for MemberNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut names: Vec<MemberName> = Vec::new();
        for part in text.split(',') {
            let name = part.parse()?;
            if names.contains(&name) {
                return Err(format!("'{name}' is there twice; give each member once"));
            }
            names.push(name);
        }
        Ok(Self(names))
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Vfio(serial) => write!(f, "vfio:{serial}"),
        }
    }
}

impl fmt::Display for MemberNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_printed() {
        let text = "file:/data/a b.img,vfio:S6EVNX0R,file:c:d";
        let names: MemberNames = text.parse().unwrap();
        assert_eq!(names.iter().count(), 3);
        assert_eq!(names.to_string(), text);
        for (text, word) in [
            ("", "'' is no member"),
            ("a.img", "'a.img' is no member"),
            ("file:", "'file:' is no member"),
            ("model:ideal", "'model:ideal' is no member"),
            ("file:a,,file:b", "'' is no member"),
            ("file:a,file:a", "'file:a' is there twice"),
        ] {
            let error = text.parse::<MemberNames>().unwrap_err();
            assert!(error.starts_with(word), "{text}: {error}");
        }
    }
}
