//! `verify`: everything read, and compared with the checksums.

use anyhow::Result;
use warpstore::VolumeAccess;
use warpstore_terminal::Progress;

use crate::options::Verify;
use crate::{Failure, print, shown};

pub fn run(options: &Verify) -> Result<(), Failure> {
    let access = match options.seal {
        true => VolumeAccess::ReadWrite,
        false => VolumeAccess::ReadOnly,
    };
    let mut volume = warpstore::open_volume(&options.members, access)?;
    let bytes = volume.description().verified_bytes();
    let progress = Progress::begin(format!("read {}", options.members), bytes);
    if options.seal {
        volume.seal(&mut |_, bytes| progress.reach(bytes))?;
        progress.end("sealed");
        print(&shown::volume(volume.description(), &volume.member_names()));
        print(&shown::arrays(volume.description()));
        return Ok(());
    }
    let remarks = volume.remarks().to_vec();
    let audit = volume.verify(&mut |_, bytes| progress.reach(bytes))?;
    let Some(audit) = audit else {
        return Err(anyhow::anyhow!(
            "{} is not sealed, so no checksum holds; --seal takes what is there for right",
            options.members
        )
        .into());
    };
    progress.end(&format!("{} bytes", audit.bytes));
    for remark in &remarks {
        print(&format!("{remark}\n"));
    }
    for fault in &audit.faults {
        print(&format!("wrong: {fault}\n"));
    }
    match (audit.count, remarks.len()) {
        (0, 0) => {
            print(&format!("{} bytes, every checksum is right\n", audit.bytes));
            Ok(())
        }
        (0, count) => Err(Failure::Damaged(format!(
            "the data of {} are right, and {count} superblocks are not; verify --seal mends them",
            options.members
        ))),
        (count, _) => Err(Failure::Damaged(format!(
            "{} is damaged in {count} places; flash it anew",
            options.members
        ))),
    }
}
