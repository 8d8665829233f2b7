//! Survives a BAR that vanishes under its mapping.
//!
//! When an SSD is pulled, or its memory space is switched off by a reset, an access of the mapped
//! BAR is a SIGBUS. The handler puts pages of ones where the BAR was and lets the access happen
//! again: so a removal looks as it does on the bus, and the next look at CSTS tells. A SIGBUS
//! anywhere else goes to whoever handled it before.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::ptr::with_exposed_provenance_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};

/// Most mappings at a time. A handler can only look at what is there for good.
const MOST: usize = 1024;

/// The mappings that are watched.
static AREAS: [Slot; MOST] = [const { Slot::free() }; MOST];

/// Who handled the signal before.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Where a mapping is, and what replaces it.
struct Slot {
    /// Address, or [`FREE`] or [`TAKEN`].
    first: AtomicUsize,
    bytes: AtomicUsize,
    /// Descriptor of a file of ones.
    ones: AtomicI32,
}

const FREE: usize = 0;
/// Somebody is about to fill the slot.
const TAKEN: usize = 1;

impl Slot {
    const fn free() -> Self {
        Self {
            first: AtomicUsize::new(FREE),
            bytes: AtomicUsize::new(0),
            ones: AtomicI32::new(-1),
        }
    }
}

/// A mapping that is watched until this is dropped, which comes before it is unmapped.
pub(super) struct Watched {
    slot: &'static Slot,
    _ones: File,
}

impl Watched {
    /// Watches `bytes` bytes that a device is mapped to, from the address `first` on.
    pub(super) fn new(first: usize, bytes: usize) -> io::Result<Self> {
        install();
        let mut ones = File::from(memfd_create("warpstore-gone", MemfdFlags::CLOEXEC)?);
        ones.write_all(&vec![0xff; bytes])?;
        let is_ours = |slot: &&Slot| {
            let taken =
                slot.first
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
            taken.is_ok()
        };
        let slot = AREAS.iter().find(is_ours);
        let slot =
            slot.ok_or_else(|| io::Error::other(format!("{MOST} BARs are mapped already")))?;
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.ones.store(ones.as_raw_fd(), Ordering::Relaxed);
        // Ordering: a handler that sees the address sees the rest.
        slot.first.store(first, Ordering::Release);
        Ok(Self { slot, _ones: ones })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.slot.first.store(FREE, Ordering::Release);
    }
}

/// Installs the handler, once in the life of the process.
fn install() {
    PREVIOUS.get_or_init(|| {
        let handler = on_bus_error as extern "C" fn(_, _, _);
        change(handler as usize, libc::SA_SIGINFO | libc::SA_ONSTACK)
    });
}

/// Gives the signal to `handler`, and says who had it before.
fn change(handler: usize, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: zeroes are a valid value: no flags, an empty mask, the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    let mut before = action;
    // SAFETY: both point to actions; the handler, if it is one, keeps to what handlers may do.
    let done = unsafe { libc::sigaction(libc::SIGBUS, &action, &mut before) };
    assert_eq!(done, 0, "SIGBUS can be handled");
    before
}

/// What happens on a SIGBUS. No allocation, no lock, no panic.
extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands over what it says, for as long as the handler runs.
    let said = unsafe { *info };
    // SAFETY: this field is there for the signal.
    let at = unsafe { said.si_addr() }.addr();
    // Codes above 0 are the kernel's own: an access, and not a process that sends the signal.
    if said.si_code > 0 && replace(at) {
        return;
    }
    let before = PREVIOUS
        .get()
        .map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if before == libc::SIG_DFL || before == libc::SIG_IGN {
        // The access happens again, and ends the process as it would have.
        change(libc::SIG_DFL, 0);
        return;
    }
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    // SAFETY: neither constant, so it is a handler; one that takes the signal alone does not look
    // at the other arguments.
    let before: Handler = unsafe { std::mem::transmute::<usize, Handler>(before) };
    before(signal, info, context);
}

/// Puts ones where a watched mapping was that holds the address; false if none does.
fn replace(at: usize) -> bool {
    AREAS.iter().any(|slot| {
        let first = slot.first.load(Ordering::Acquire);
        let bytes = slot.bytes.load(Ordering::Relaxed);
        if first <= TAKEN || at < first || at - first >= bytes {
            return false;
        }
        let ones = slot.ones.load(Ordering::Relaxed);
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_FIXED,
        );
        let place = with_exposed_provenance_mut(first);
        // SAFETY: the addresses are a mapping of ours that is alive; whoever reaches it does so by
        // volatile or atomic accesses, to which other bytes are as good.
        let found = unsafe { libc::mmap(place, bytes, protection, flags, ones, 0) };
        found != libc::MAP_FAILED
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use vm_memory::{FileOffset, MmapRegion};

    use super::*;

    /// Set in a child that is to die.
    const CHILD: &str = "WARPSTORE_BUS_ERROR";

    #[test]
    fn a_bus_error_elsewhere_still_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            let file = tempfile::tempfile().unwrap();
            file.set_len(4096).unwrap();
            let kept = file.try_clone().unwrap();
            let region = MmapRegion::<()>::from_file(FileOffset::new(file, 0), 4096).unwrap();
            let _watched = Watched::new(4096, 4096).unwrap();
            kept.set_len(0).unwrap();
            // SAFETY: the byte is mapped; that nothing is behind it is what this is about.
            let byte = unsafe { region.as_ptr().read_volatile() };
            unreachable!("a signal comes before {byte}");
        }
        let this = "vfio::sys::bus_error::tests::a_bus_error_elsewhere_still_ends_the_process";
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert_eq!(
            ended.status.signal(),
            Some(libc::SIGBUS),
            "{}",
            ended.status
        );
    }
}
