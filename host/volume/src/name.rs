//! How a user names members: `file:PATH` or `vfio:SERIAL`, several with commas between.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs};

use crate::error::Error;

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

    /// Whether no two names lead to one file: by spelling, or by links, soft or hard.
    ///
    /// # Errors
    /// Which two do.
    pub fn check_files(&self) -> Result<(), Error> {
        let mut files: Vec<(FileId, &Path)> = Vec::new();
        for name in &self.0 {
            let MemberName::File(path) = name else {
                continue;
            };
            let id = FileId::of(path);
            if let Some((_, other)) = files.iter().find(|(earlier, _)| *earlier == id) {
                return Err(Error::SameFile {
                    member: name.to_string(),
                    other: MemberName::File(other.to_path_buf()).to_string(),
                });
            }
            files.push((id, path));
        }
        Ok(())
    }

    /// Whether no name leads to this file, which is read while members are written.
    ///
    /// # Errors
    /// Which one does.
    pub fn check_source(&self, source: &Path) -> Result<(), Error> {
        let id = FileId::of(source);
        let is_it =
            |name: &&MemberName| matches!(name, MemberName::File(path) if FileId::of(path) == id);
        match self.0.iter().find(is_it) {
            None => Ok(()),
            Some(name) => Err(Error::SourceIsMember {
                source_file: source.display().to_string(),
                member: name.to_string(),
            }),
        }
    }
}

/// What two paths share that lead to one file.
#[derive(PartialEq, Eq)]
enum FileId {
    /// Of one that is there: its file system and its number there.
    There { device: u64, inode: u64 },
    /// Of one that is yet to be made: its place.
    ToBeMade(PathBuf),
}

impl FileId {
    fn of(path: &Path) -> Self {
        if let Ok(metadata) = fs::metadata(path) {
            return Self::There {
                device: metadata.dev(),
                inode: metadata.ino(),
            };
        }
        let place = || {
            let folder = match path.parent()? {
                folder if folder == Path::new("") => Path::new("."),
                folder => folder,
            };
            Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
        };
        Self::ToBeMade(place().unwrap_or_else(|| path.to_owned()))
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

    #[test]
    fn names_of_one_file_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| format!("file:{}/{name}", folder.path().display());
        let check = |names: [&str; 2]| {
            let names = names.map(path).join(",");
            let checked = names.parse::<MemberNames>().unwrap().check_files();
            checked.map_err(|error| error.to_string())
        };
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        fs::create_dir(folder.path().join("d")).unwrap();
        assert!(check(["a", "d/../a"]).is_err(), "yet to be made");
        assert_eq!(check(["a", "b"]), Ok(()));
        fs::write(&a, "").unwrap();
        fs::write(&b, "").unwrap();
        assert_eq!(check(["a", "b"]), Ok(()));
        fs::hard_link(&a, folder.path().join("hard")).unwrap();
        std::os::unix::fs::symlink(&a, folder.path().join("soft")).unwrap();
        for other in ["hard", "soft", "d/../a"] {
            let said = check(["a", other]).unwrap_err();
            let expected = format!("{} and {} are one file", path(other), path("a"));
            assert!(said.starts_with(&expected), "{said}");
        }
    }
}
