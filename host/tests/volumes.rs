//! Sessions on volumes: arrays by their names, read and written by kernels.

mod store;

use std::path::Path;

use warpstore::device::Layout;
use warpstore::{Medium, MemberNames, Session, SsdSource, VolumeAccess, open_volume};
use warpstore_kernels::rw::{Run, rw, value};
use warpstore_volume::{
    ArrayShape, ElementType, FileMember, Member, Members, NewVolume, Plan, State, UNIT,
};
use zerocopy::IntoBytes;

const RUN: Run = Run {
    lanes: 64,
    values_each: 300,
    sums: 10_007,
    seed: 3,
};

/// The arrays that [`rw`] begins with.
fn values() -> Vec<u64> {
    (0..RUN.lanes * RUN.values_each)
        .map(|index| value(index, 0))
        .collect()
}

/// Writes a volume of them to media files in `folder`.
fn flash(folder: &Path, files: usize, layout: Layout) -> MemberNames {
    let paths: Vec<_> = (0..files)
        .map(|index| folder.join(format!("m{index}")))
        .collect();
    let (values, sums) = (values(), vec![0u64; RUN.sums as usize]);
    let shape = |name: &str, len: usize| ArrayShape {
        name: name.to_owned(),
        element: ElementType::U64,
        len: len as u64,
    };
    let shapes = [shape("values", values.len()), shape("sums", sums.len())];
    let new = NewVolume::new(layout, UNIT, &shapes).unwrap();
    let bytes = new.member_bytes_for_two(files as u32).unwrap();
    let member =
        |path| -> Box<dyn Member> { Box::new(FileMember::create(path, bytes, false).unwrap()) };
    let member = paths.iter().map(|path| member(path));
    let mut members = Members::new(member.collect()).unwrap();
    let plan = Plan::make(&new, &mut members, |_| false).unwrap();
    let sources: Vec<Box<dyn std::io::Read>> =
        vec![Box::new(values.as_bytes()), Box::new(sums.as_bytes())];
    plan.write(&mut members, sources, UNIT, &mut |_, _| {})
        .unwrap();
    let names = paths.iter().map(|path| FileMember::name_of(path));
    names.collect::<Vec<_>>().join(",").parse().unwrap()
}

fn open(members: &MemberNames, access: VolumeAccess) -> Result<Session, warpstore::Error> {
    Session::open_volume(store::configuration(), members, access, "")
}

fn refusal<T>(result: Result<T, warpstore::Error>) -> String {
    result.err().expect("it was refused").to_string()
}

#[test]
fn what_kernels_write_is_on_the_volume_and_unseals_it() {
    let folder = tempfile::tempdir().unwrap();
    let members = flash(folder.path(), 3, Layout::Stripe);
    let session = open(&members, VolumeAccess::ReadWrite).unwrap();
    let differing = session.memory::<u64>(1).unwrap();
    let (steps, launch) = (60, session.fill(&rw).unwrap());
    let args = (
        session.array_mut("values").unwrap(),
        session.array_mut("sums").unwrap(),
        RUN.values_each,
        steps,
        RUN.seed,
        differing.atomics(),
    );
    session.launch(&rw, launch, args).unwrap();
    assert_eq!(differing.to_vec().unwrap(), [0]);
    session.flush().unwrap();
    let [written, added] = ["values", "sums"].map(|name| session.stored::<u64>(name).unwrap());
    session.finish().unwrap();
    assert!(written != values() && added.iter().any(|&sum| sum != 0));
    let mut volume = open_volume(&members, VolumeAccess::ReadOnly).unwrap();
    assert_eq!(volume.description().state, State::Unsealed);
    for (name, expected) in [("values", written), ("sums", added)] {
        let mut read = Vec::new();
        volume.copy(name, &mut read).unwrap();
        assert!(read == expected.as_bytes(), "{name}");
    }
}

#[test]
fn arrays_are_there_by_name_and_type() {
    let folder = tempfile::tempdir().unwrap();
    for (files, layout) in [
        (1, Layout::Stripe),
        (3, Layout::Stripe),
        (2, Layout::Replicate),
    ] {
        let folder = folder.path().join(format!("{files}"));
        std::fs::create_dir(&folder).unwrap();
        let members = flash(&folder, files, layout);
        let session = open(&members, VolumeAccess::ReadOnly).unwrap();
        assert_eq!(session.stored::<u64>("values").unwrap(), values());
        assert_eq!(session.array::<u64>("sums").unwrap().len(), RUN.sums);
        // Plain data of a type of one's own is told by its size.
        assert_eq!(session.array::<[u32; 2]>("sums").unwrap().len(), RUN.sums);
        let message = refusal(session.array::<f64>("sums"));
        assert!(
            message.contains("\"sums\" has elements of type u64, not f64"),
            "{message}"
        );
        let message = refusal(session.array::<u64>("sum"));
        assert!(
            message.contains("no array \"sum\"") && message.contains("sums, values"),
            "{message}"
        );
        let message = refusal(session.array_mut::<u64>("sums"));
        assert!(message.contains("opened for reading only"), "{message}");
        assert!(session.create_array("new", &[1u8]).is_err());
        // Another session may read, and nobody write.
        let message = refusal(open(&members, VolumeAccess::ReadWrite));
        assert!(message.contains("in use"), "{message}");
        session.finish().unwrap();
        let mut volume = open_volume(&members, VolumeAccess::ReadOnly).unwrap();
        let audit = volume
            .verify(&mut |_, _| {})
            .unwrap()
            .expect("it is sealed");
        assert_eq!(audit.count, 0);
    }
}

#[test]
fn replicas_are_not_opened_for_writing() {
    let folder = tempfile::tempdir().unwrap();
    let members = flash(folder.path(), 2, Layout::Replicate);
    let message = refusal(open(&members, VolumeAccess::ReadWrite));
    assert!(
        message.contains("2 replicas, which kernels only read"),
        "{message}"
    );
    let volume = open_volume(&members, VolumeAccess::ReadOnly).unwrap();
    assert_eq!(volume.description().state, State::Sealed);
    let real = SsdSource::Vfio(warpstore::VfioConfig {
        ssds: Vec::new(),
        destroy: Vec::new(),
    });
    let config = warpstore::Configuration {
        ssd: real,
        ..store::configuration()
    };
    let message = refusal(Session::open_volume(
        config,
        &members,
        VolumeAccess::ReadOnly,
        "",
    ));
    assert!(
        message.contains("media files are read by emulated SSDs"),
        "{message}"
    );
}

#[test]
fn a_session_that_is_refused_leaves_the_volume_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let members = flash(folder.path(), 2, Layout::Stripe);
    for config in [
        warpstore::Configuration {
            line_bytes: 1000,
            ..store::configuration()
        },
        // More than any machine has.
        warpstore::Configuration {
            cache_lines: warpstore::Configuration::MAX_CACHE_LINES,
            line_bytes: 1 << 16,
            ..store::configuration()
        },
    ] {
        let opened = Session::open_volume(config, &members, VolumeAccess::ReadWrite, "");
        assert!(opened.is_err());
        let volume = open_volume(&members, VolumeAccess::ReadOnly).unwrap();
        assert_eq!(volume.description().state, State::Sealed);
        assert_eq!(volume.description().generation, 1);
    }
}

/// Nobody can write it, so nobody needs to be allowed to.
#[test]
fn a_session_says_what_volume_it_is_on() {
    let folder = tempfile::tempdir().unwrap();
    let members = flash(folder.path(), 2, Layout::Stripe);
    for (access, state) in [
        (VolumeAccess::ReadOnly, State::Sealed),
        (VolumeAccess::ReadWrite, State::Unsealed),
    ] {
        let session = open(&members, access).unwrap();
        assert_eq!(session.volume().unwrap().state, state);
        let message = refusal(open_volume(&members, VolumeAccess::ReadWrite));
        assert!(message.contains("in use"), "{message}");
        session.finish().unwrap();
    }
    let volume = open_volume(&members, VolumeAccess::ReadOnly).unwrap();
    assert_eq!(volume.description().generation, 2);
}

/// From the look at the volume to the end of the session its files are locked.
#[test]
fn no_moment_is_left_in_which_somebody_could_write_the_volume() {
    let folder = tempfile::tempdir().unwrap();
    let members = flash(folder.path(), 1, Layout::Stripe);
    for access in [VolumeAccess::ReadOnly, VolumeAccess::ReadWrite] {
        let session = open(&members, access).unwrap();
        let mut config = session.configuration().clone();
        session.finish().unwrap();
        // The session's media are the files that the volume was read from.
        let SsdSource::Emulated(each) = &mut config.ssd else {
            panic!("media files are emulated SSDs");
        };
        let Medium::Files(files) = &each.medium else {
            panic!("they are media files");
        };
        assert_eq!(files[0].is_writable(), access == VolumeAccess::ReadWrite);
        let message = refusal(open_volume(&members, VolumeAccess::ReadWrite));
        assert!(message.contains("in use"), "{message}");
    }
}
