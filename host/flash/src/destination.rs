//! The members that a user names, opened or to be made.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use nvme_model::{MediaError, MediaFile, holds_nothing};
use warpstore::VolumeAccess;
use warpstore_terminal::UsageError;
use warpstore_volume::{BlankMember, Error, FileMember, Found, Member, MemberName, Members};

use crate::options::Flash;

/// What a flash writes to: members that are there, and in place of files that are not, blank ones.
pub struct Destination {
    /// All of them, in order.
    pub members: Members,
    /// The files that are to be made, with their places among the members.
    new: Vec<(usize, PathBuf)>,
    bytes: u64,
}

impl Destination {
    /// Opens what is there. A new file will have `bytes` bytes.
    pub fn open(options: &Flash, bytes: u64) -> Result<Self> {
        let names: Vec<&MemberName> = options.to.iter().collect();
        for named in &options.yes_destroy {
            let called = |name: &&&MemberName| is_called(&name.to_string(), named);
            let reason = match names.iter().filter(called).count() {
                0 => "it is no member that --to names",
                1 => continue,
                _ => "it may be several members; give the whole name, with file: or vfio:",
            };
            return Err(UsageError::new("--yes-destroy", named, reason).into());
        }
        // Of files that are yet to be made, too.
        if let Err(error) = options.to.check_files() {
            return Err(UsageError::new("--to", &options.to, error).into());
        }
        for source in &options.sources {
            if let Err(error) = options.to.check_source(&source.resolved().file) {
                return Err(UsageError::new("--to", &options.to, error).into());
            }
        }
        let access = match options.dry_run {
            true => VolumeAccess::ReadOnly,
            false => VolumeAccess::ReadWrite,
        };
        let (mut new, mut there) = (Vec::new(), Vec::new());
        for (index, name) in names.into_iter().enumerate() {
            match name {
                MemberName::File(path)
                    if is_to_be_made(path, may_destroy(options, &name.to_string()))? =>
                {
                    new.push((index, path.clone()));
                }
                _ => there.push(name),
            }
        }
        if let (Some(size), true) = (options.size, new.is_empty()) {
            let reason = "it is for media files that are made, and all members are there";
            return Err(UsageError::new("--size", size, reason).into());
        }
        let mut members: Vec<Box<dyn Member>> = warpstore::open_members(&there, access)?;
        for (index, path) in &new {
            members.insert(*index, Box::new(BlankMember::new(path, bytes)));
        }
        let members = Members::new(members)?;
        Ok(Self {
            members,
            new,
            bytes,
        })
    }

    /// The files that are to be made.
    pub fn new_files(&self) -> impl Iterator<Item = &Path> {
        self.new.iter().map(|(_, path)| path.as_path())
    }

    /// Bytes of each of them.
    pub fn new_bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes the files: all of them, or none. What has come to the place of one meanwhile is refused, as
    /// the plan was made for a blank one.
    pub fn make(mut self, options: &Flash) -> Result<Members> {
        let mut made: Vec<(usize, FileMember)> = Vec::new();
        for (index, path) in self.new {
            let overwrite = may_destroy(options, &FileMember::name_of(&path));
            match FileMember::create(&path, self.bytes, overwrite) {
                Ok(member) => made.push((index, member)),
                Err(error) => {
                    let others = made.iter();
                    others.for_each(|(_, member)| member.media().discard_if_new());
                    return Err(error.into());
                }
            }
        }
        for (index, member) in made {
            self.members.replace(index, Box::new(member));
        }
        Ok(self.members)
    }
}

/// Whether the user said that what is on this member may be lost.
pub fn may_destroy(options: &Flash, member: &str) -> bool {
    let mut named = options.yes_destroy.iter();
    named.any(|named| is_called(member, named))
}

/// A member is called by its whole name, or by its path or serial number.
fn is_called(member: &str, named: &str) -> bool {
    member == named
        || member
            .split_once(':')
            .is_some_and(|(_, name)| name == named)
}

/// Whether a media file is to be made: there is none, or it holds nothing, or it is none and may be lost.
fn is_to_be_made(path: &Path, overwrite: bool) -> Result<bool> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => bail!(
            "{} is not a regular file; name a media file that is there or shall be made",
            path.display()
        ),
        Ok(metadata) if metadata.len() > 0 => {}
        _ => return Ok(true),
    }
    match MediaFile::open(path, false) {
        Ok(_) => Ok(false),
        Err(MediaError::Foreign { .. }) if overwrite || holds_nothing(path) => Ok(true),
        Err(MediaError::Foreign { .. }) => Err(Error::InTheWay {
            member: FileMember::name_of(path),
            found: Found::Data,
        }
        .into()),
        Err(error) => Err(error.into()),
    }
}
