//! Blocks stay where they were written, and a file that is not ours is left alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::rig::{PAGE, Rig, Server, admin_sqe, configuration, io_sqe};
use nvme_model::{Media, MediaError, MediaFile, Sharing, holds_nothing};

fn bytes() -> u64 {
    configuration().media_bytes().unwrap()
}

fn open(path: &Path, overwrite: bool) -> Result<Media, MediaError> {
    Media::file(path, bytes(), "WS0001", overwrite)
}

fn up(media: Media) -> Rig {
    let mut rig = Rig::with(configuration(), Server::Thread, media, None);
    rig.enable();
    rig
}

#[test]
fn a_file_keeps_what_was_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("media");
    for round in 0..3u8 {
        let mut rig = up(open(&path, false).unwrap());
        let mut pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(PAGE);
        assert_eq!(pair.run(&mut rig, io_sqe(2, 1, 5, 1, page, 0)), 0);
        assert_eq!(
            rig.memory.byte(page),
            if round == 0 { 0 } else { 0x10 + round - 1 }
        );
        rig.memory.fill(page, 512, 0x10 + round);
        assert_eq!(pair.run(&mut rig, io_sqe(1, 1, 5, 1, page, 0)), 0);
        assert_eq!(pair.run(&mut rig, admin_sqe(0, 1, 0, 0, 0)), 0);
    }
    let content = fs::read(&path).unwrap();
    assert_eq!(content.len() as u64, bytes() + 4096, "media and a trailer");
    assert_eq!(
        content[5 * 512..6 * 512],
        [0x12; 512],
        "raw blocks from offset 0"
    );
    assert_eq!(content[4 * 512..5 * 512], [0; 512]);
    drop(open(&path, true).unwrap());
    assert!(
        fs::read(&path).unwrap()[..bytes() as usize]
            .iter()
            .all(|&byte| byte == 0)
    );
}

#[test]
fn foreign_and_small_files_are_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letters");
    for content in [b"dear reader".to_vec(), vec![7; bytes() as usize + 4096]] {
        fs::write(&path, &content).unwrap();
        let error = open(&path, false).unwrap_err();
        assert!(matches!(error, MediaError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("letters"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    drop(open(&path, true).unwrap());
    drop(open(&path, false).unwrap());
    let error = Media::file(&path, bytes() + 512, "WS0001", false).unwrap_err();
    let (needed, held) = (bytes() + 512, bytes());
    assert!(
        matches!(error, MediaError::TooSmall { found, needed: asked, .. } if found == held && asked == needed),
        "{error}"
    );
    drop(Media::file(&path, bytes() - 512, "WS0001", false).unwrap());
    // A copy that lost its end is no longer ours; one of zeros alone would count as new.
    let mut whole = fs::read(&path).unwrap();
    whole[0] = 1;
    fs::write(&path, &whole[..whole.len() - 4096]).unwrap();
    assert!(matches!(
        open(&path, false),
        Err(MediaError::Foreign { .. })
    ));
}

#[test]
fn what_cannot_be_created_is_said_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let said = |path: &Path, bytes| {
        let error = Media::file(path, bytes, "WS0001", false)
            .unwrap_err()
            .to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        error
    };
    assert!(said(folder.path(), 4096).contains("cannot open"));
    assert!(said(&folder.path().join("no/such/folder"), 4096).contains("cannot open"));
    let huge = folder.path().join("huge");
    assert!(said(&huge, 1 << 60).contains("space"));
    assert!(!huge.exists(), "a file of ours that failed is removed");
    fs::write(&huge, []).unwrap();
    assert!(said(&huge, 1 << 60).contains("space"));
    assert_eq!(
        fs::metadata(&huge).unwrap().len(),
        0,
        "a file of the user's stays as it was"
    );
}

#[test]
fn a_read_only_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("media");
    drop(open(&path, false).unwrap());
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    if fs::OpenOptions::new().write(true).open(&path).is_ok() {
        eprintln!("skipped: this user may write read-only files");
        return;
    }
    assert!(
        open(&path, false)
            .unwrap_err()
            .to_string()
            .contains("cannot open it for writing")
    );
}

#[test]
fn a_file_in_use_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("media");
    let in_use = |opened: Result<Media, MediaError>| {
        let error = opened.expect_err("it is in use");
        assert!(matches!(error, MediaError::InUse { .. }), "{error}");
        assert!(error.to_string().contains("in use by another process"));
    };
    let sharing = |sharing| {
        let file = MediaFile::open(&path, true)?.lock(sharing)?;
        Media::over(Arc::new(file), bytes())
    };
    let first = up(open(&path, false).unwrap());
    let content = fs::read(&path).unwrap();
    for overwrite in [false, true] {
        in_use(open(&path, overwrite));
    }
    in_use(sharing(Sharing::Readers));
    assert!(fs::read(&path).unwrap() == content, "it was written");
    drop(first);
    let readers = [(); 2].map(|()| sharing(Sharing::Readers).unwrap());
    in_use(sharing(Sharing::Nobody));
    in_use(open(&path, true));
    drop(readers);
    drop(sharing(Sharing::Nobody).unwrap());
}

/// What somebody made since its user saw nothing there is not taken.
#[test]
fn a_file_that_was_made_meanwhile_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("media");
    let create = |overwrite| MediaFile::create(&path, bytes(), "WS0001", overwrite);
    let first = create(false).unwrap();
    assert!(matches!(create(false), Err(MediaError::InUse { .. })));
    drop(first);
    let error = create(false).unwrap_err();
    assert!(matches!(error, MediaError::Taken { .. }), "{error}");
    assert_eq!(create(true).unwrap().bytes, bytes());
    fs::write(&path, []).unwrap();
    assert_eq!(create(false).unwrap().bytes, bytes(), "an empty one is");
}

#[test]
fn a_file_whose_making_was_interrupted_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("media");
    let file = fs::File::create(&path).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert!(holds_nothing(&path));
    // Somebody reads it: now some of it is in the page cache.
    assert!(fs::read(&path).unwrap() == vec![0; 1 << 20]);
    assert!(holds_nothing(&path));
    drop(open(&path, false).unwrap());
    assert!(!holds_nothing(&path));
    let len = fs::metadata(&path).unwrap().len();
    assert_eq!(len, bytes() + 4096);
}

#[test]
fn only_a_file_that_was_made_here_is_discarded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("media");
    let open = || MediaFile::open_or_create(&path, bytes(), "WS0001", false).unwrap();
    drop(open());
    open().discard_if_new();
    assert!(path.exists(), "it was there before");
    fs::remove_file(&path).unwrap();
    let made = open();
    let other = folder.path().join("other");
    fs::write(&other, "somebody's").unwrap();
    fs::rename(&other, &path).unwrap();
    made.discard_if_new();
    assert_eq!(fs::read(&path).unwrap(), b"somebody's");
    fs::remove_file(&path).unwrap();
    open().discard_if_new();
    assert!(!path.exists());
}

/// One that is only read need not be writable, and nothing comes to it.
#[test]
fn a_file_that_is_open_for_reading_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("media");
    drop(open(&path, false).unwrap());
    let before = fs::read(&path).unwrap();
    let file = MediaFile::open(&path, false).unwrap();
    let file = file.lock(Sharing::Readers).unwrap();
    let mut rig = up(Media::over(Arc::new(file), bytes()).unwrap());
    let mut pair = rig.create_pair(1, 8);
    let page = rig.memory.pages(PAGE);
    rig.memory.fill(page, 512, 0x77);
    assert_eq!(pair.run(&mut rig, io_sqe(1, 1, 5, 1, page, 0)), 0);
    assert_eq!(pair.run(&mut rig, admin_sqe(0, 1, 0, 0, 0)), 0);
    assert!(fs::read(&path).unwrap() == before);
}
