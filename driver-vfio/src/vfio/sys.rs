//! System calls that no safe wrapper covers: mmap of a BAR, ioctls, fork.
#![allow(
    unsafe_code,
    reason = "mmap, ioctl and fork are the kernel's, not Rust's"
)]
// UNSAFETY: mappings of a BAR are reached by address; what the kernel is asked to map for DMA, or
// to duplicate, is named by number; a forked child runs without a runtime; a signal handler puts
// pages where a BAR was.

mod bus_error;
#[cfg(test)]
pub(super) mod old_kernel;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, with_exposed_provenance_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use vfio_bindings::bindings::vfio::{VFIO_BASE, VFIO_TYPE};
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError};
use vm_memory::MmapRegion;
use warpstore_simt::{NativeCell, NativeCells, System};

use super::guardian::Post;
use crate::backing::DmaRegion;
use bus_error::Watched;

/// `VFIO_DEVICE_RESET`, which vfio-ioctls issues without looking at its result.
const DEVICE_RESET: libc::c_ulong = request(11);
/// `VFIO_IOMMU_GET_INFO`, which vfio-ioctls lacks.
const IOMMU_GET_INFO: libc::c_ulong = request(12);
/// Bytes for the answer of `VFIO_IOMMU_GET_INFO`: some 60 ranges.
const INFO_BYTES: usize = 1024;

/// The number of a VFIO request (`_IO(VFIO_TYPE, VFIO_BASE + index)` of linux/vfio.h).
const fn request(index: u32) -> libc::c_ulong {
    (VFIO_TYPE as libc::c_ulong) << 8 | (VFIO_BASE + index) as libc::c_ulong
}

/// A part of BAR 0 in this address space. Dropping it unmaps it.
pub(super) struct Area {
    first: NonNull<u8>,
    bytes: usize,
    /// None only while it is dropped.
    watched: Option<Watched>,
}

// SAFETY: every access goes to the device, one register at a time, whichever thread makes it.
unsafe impl Send for Area {}
// SAFETY: as for Send.
unsafe impl Sync for Area {}

/// Maps `bytes` bytes of a device's region.
pub(super) fn map(device: &File, start: u64, bytes: usize) -> io::Result<Area> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses an address that is free, so no memory of others changes.
    let first = unsafe {
        mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            flags,
            device,
            start,
        )
    }?;
    let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::InvalidInput)?;
    let mut area = Area {
        first,
        bytes,
        watched: None,
    };
    area.watched = Some(Watched::new(first.addr().get(), bytes)?);
    Ok(area)
}

impl Area {
    /// Size of the mapping.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the word at `offset`, which lies inside (asserted) and is aligned.
    fn word(&self, offset: usize) -> *mut u32 {
        assert!(
            offset.is_multiple_of(4) && offset < self.bytes && self.bytes - offset >= 4,
            "register {offset:#x} of {:#x} bytes",
            self.bytes
        );
        self.first.as_ptr().wrapping_add(offset).cast()
    }

    /// Reads a register.
    pub(super) fn read32(&self, offset: usize) -> u32 {
        // SAFETY: the word is aligned and inside a mapping that lives as long as `self`.
        u32::from_le(unsafe { self.word(offset).read_volatile() })
    }

    /// Writes a register.
    pub(super) fn write32(&self, offset: usize, value: u32) {
        // SAFETY: as in read32.
        unsafe { self.word(offset).write_volatile(value.to_le()) }
    }

    /// A register as a cell, for submitters.
    pub(super) fn cell(&self, offset: usize) -> NativeCell<u32, System> {
        // SAFETY: the word is aligned and mapped as long as the backing lives, which cells must
        // not outlive; a doorbell is stored to and never read.
        unsafe { NativeCell::new(self.word(offset)) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // Before the addresses are others'.
        self.watched = None;
        // SAFETY: the mapping is ours, and handles into it must not outlive the backing.
        let unmapped = unsafe { munmap(self.first.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// The words of a mapping that DMA goes to.
pub(super) fn cells(region: &MmapRegion) -> NativeCells<u64, System> {
    let words = region.size() as u64 / 8;
    // SAFETY: the mapping is page-aligned, readable and writable, and its owner keeps it as long
    // as the cells are used; nobody makes a reference to it.
    unsafe { NativeCells::new(region.as_ptr().cast(), words) }
}

/// Lets the controllers of `container` reach `region` at `iova`.
pub(super) fn map_dma(
    container: &VfioContainer,
    iova: u64,
    region: DmaRegion,
) -> Result<(), VfioError> {
    let address = with_exposed_provenance_mut(region.address() as usize);
    // SAFETY: a region is made of cells, so its memory is accessed atomically or volatile only,
    // and stays until it is unmapped, since being mapped is a use.
    unsafe { container.vfio_dma_map(iova, region.bytes() as usize, address) }
}

/// Another descriptor of the device, with which registers are read and written by `pread`.
pub(super) fn duplicate(device: &VfioDevice) -> io::Result<File> {
    // SAFETY: the descriptor is the device's, which is borrowed, so it is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(device.as_raw_fd()) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}

/// Closes a device whose place in sysfs is gone, or about to go; its container stays open.
pub(super) fn close(device: VfioDevice) {
    let raw = device.as_raw_fd();
    std::mem::forget(device);
    // SAFETY: the descriptor was the device's, which nobody drops any more.
    drop(unsafe { OwnedFd::from_raw_fd(raw) });
}

/// Resets the function.
pub(super) fn reset(device: &File) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    match unsafe { libc::ioctl(device.as_raw_fd(), DEVICE_RESET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the kernel says about the IOMMU: `struct vfio_iommu_type1_info` and its capabilities.
pub(super) fn iommu_info(container: &VfioContainer) -> io::Result<Vec<u8>> {
    // Words, so that the structure is aligned.
    let mut words = [0u64; INFO_BYTES / 8];
    words[0] = INFO_BYTES as u64;
    let pointer = words.as_mut_ptr();
    // SAFETY: the first field says how much the kernel may write there.
    match unsafe { libc::ioctl(container.as_raw_fd(), IOMMU_GET_INFO, pointer) } {
        0 => Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Forks a child that keeps `post`; returns its process id.
pub(super) fn fork_guardian(post: &Post) -> io::Result<libc::pid_t> {
    // SAFETY: the child calls nothing but `guard`, which keeps to what a child of a process with
    // threads may do.
    match unsafe { libc::fork() } {
        0 => guard(post),
        -1 => Err(io::Error::last_os_error()),
        child => Ok(child),
    }
}

/// Waits for the child to end.
pub(super) fn wait(child: libc::pid_t) {
    loop {
        // SAFETY: a null pointer means that the status is not wanted.
        let ended = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        if ended >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// The life of the guardian. No allocation, no lock, no panic: other threads of the parent may
/// have held what those need when it forked.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument covers all: plain system calls of a process of one thread"
)]
fn guard(post: &Post) -> ! {
    let &Post {
        device,
        alive,
        ours,
        bar,
    } = post;
    // SAFETY: system calls on numbers, in a process of one thread; descriptors that are closed
    // belong to nobody else here.
    unsafe {
        // What ends the parent's process group must not end the guardian.
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::dup2(device, 0);
        libc::dup2(alive, 1);
        // While it is open here too, no read below ends.
        libc::close(ours);
        close_from(2);
        let mut byte = 0u8;
        // Ends when the last descriptor of the other end is closed, by whatever death.
        while libc::read(1, (&raw mut byte).cast(), 1) < 0
            && *libc::__errno_location() == libc::EINTR
        {}
        stop(0, bar);
        libc::_exit(0)
    }
}

/// Closes every descriptor from `first` on, so that nobody waits for one of ours: another
/// guardian, for the end of a pipe that this one has by the fork.
///
/// # Safety
/// No descriptor from `first` on is used afterwards.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument covers all: system calls on numbers that nobody uses afterwards"
)]
unsafe fn close_from(first: libc::c_int) {
    // Descriptors are given out from the lowest number on, and no process here has more of them.
    const MOST: libc::rlim_t = 1 << 20;
    // SAFETY: see above; the limit is written into a local.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) == 0 {
            return;
        }
        // Linux before 5.9 knows no such call.
        let mut limit = libc::rlimit {
            rlim_cur: MOST,
            rlim_max: MOST,
        };
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        for descriptor in first..limit.rlim_cur.min(MOST) as libc::c_int {
            libc::close(descriptor);
        }
    }
}

/// Clears CC.EN if it is set, and waits until CSTS.RDY is clear, for as long as CAP.TO allows.
///
/// # Safety
/// `device` is an open descriptor whose bytes from `bar` on are the controller's registers.
unsafe fn stop(device: libc::c_int, bar: libc::off_t) {
    use nvme_wire::regs::{Cap, Cc, Csts, offset};
    const POLLS_PER_UNIT: u32 = 500;
    let read = |at: u64| {
        let mut value = u32::MAX;
        // SAFETY: four bytes of a local; if they cannot be read, all-ones stay.
        unsafe { libc::pread(device, (&raw mut value).cast(), 4, bar + at as libc::off_t) };
        u32::from_le(value)
    };
    let cc = read(offset::CC);
    if cc == u32::MAX || !Cc::from_bits(cc).en() {
        return;
    }
    let disabled = Cc::from_bits(cc).with_en(false).into_bits().to_le();
    let at = bar + offset::CC as libc::off_t;
    // SAFETY: four bytes of a local.
    unsafe { libc::pwrite(device, (&raw const disabled).cast(), 4, at) };
    let units = u32::from(Cap::from_bits(read(offset::CAP).into()).to()) + 1;
    let millisecond = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    for _ in 0..units * POLLS_PER_UNIT {
        let csts = read(offset::CSTS);
        if csts == u32::MAX || !Csts::from_bits(csts).rdy() {
            return;
        }
        // SAFETY: a null pointer means that the rest of the time is not wanted.
        unsafe { libc::nanosleep(&millisecond, std::ptr::null_mut()) };
    }
}
