//! `ls`: what a volume holds.

use anyhow::Result;
use warpstore::VolumeAccess;

use crate::options::Ls;
use crate::{Failure, print, shown};

pub fn run(options: &Ls) -> Result<(), Failure> {
    let volume = warpstore::open_volume(&options.members, VolumeAccess::ReadOnly)?;
    let description = volume.description();
    print(&shown::volume(description, &volume.member_names()));
    for remark in volume.remarks() {
        print(&format!("{remark}\n"));
    }
    print(&shown::arrays(description));
    Ok(())
}
