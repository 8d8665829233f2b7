//! The process that stops the controller when nobody else does.
//!
//! A controller that is closed while it is enabled is reset by the kernel, and some SSDs hang
//! until power is cut if they are reset enabled. A process that is killed runs no destructor. So
//! a child holds the device open too, sleeps on a pipe, and when the other end closes, by
//! whatever death, it clears CC.EN and waits for CSTS.RDY = 0 ([VF-1]). Then it ends, and the
//! kernel resets the function and unpins the memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};

use super::sys;

/// What a guardian watches, as numbers that mean the same after a fork.
pub(super) struct Post {
    /// The device, and where in it the controller's registers begin.
    pub(super) device: libc::c_int,
    pub(super) bar: libc::off_t,
    /// The end of the pipe from which the end of the parent is read.
    pub(super) alive: libc::c_int,
    /// The parent's end of it.
    pub(super) ours: libc::c_int,
}

/// A running guardian. Dropping it stops the controller, if it is enabled, and waits for that.
pub(super) struct Guardian {
    child: libc::pid_t,
    /// Closed by the kernel, too, when this process ends.
    alive: Option<OwnedFd>,
}

impl Guardian {
    /// Watches over the controller whose registers lie in `device` from `bar` on.
    pub(super) fn watch(device: &File, bar: u64) -> io::Result<Self> {
        // Numbers below 3 are what the child uses.
        const LOWEST: i32 = 3;
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        let (theirs, ours) = (
            fcntl_dupfd_cloexec(theirs, LOWEST)?,
            fcntl_dupfd_cloexec(ours, LOWEST)?,
        );
        let device = fcntl_dupfd_cloexec(device.as_fd(), LOWEST)?;
        let post = Post {
            device: device.as_raw_fd(),
            bar: bar as libc::off_t,
            alive: theirs.as_raw_fd(),
            ours: ours.as_raw_fd(),
        };
        Ok(Self {
            child: sys::fork_guardian(&post)?,
            alive: Some(ours),
        })
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.alive = None;
        sys::wait(self.child);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use nvme_wire::regs::{Cc, Csts, offset};

    use super::sys::old_kernel;
    use super::*;

    const BAR: u64 = 4096;
    /// Names the file of registers in a child that is to be killed.
    const CHILD: &str = "WARPSTORE_GUARDED_FILE";
    /// Says to a child that it is to be on an old kernel.
    const OLD: &str = "WARPSTORE_GUARDED_ON_AN_OLD_KERNEL";
    /// For what takes no time unless it hangs.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A file that looks like an enabled controller which stops at once.
    fn enabled_controller() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2 * BAR).unwrap();
        let cc = Cc::new().with_en(true).with_iosqes(6).into_bits();
        let at = BAR + offset::CC;
        file.as_file().write_all_at(&cc.to_le_bytes(), at).unwrap();
        file
    }

    fn cc(file: &File) -> Cc {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, BAR + offset::CC).unwrap();
        Cc::from_bits(u32::from_le_bytes(bytes))
    }

    fn wait_until_disabled(file: &File) {
        let begin = Instant::now();
        while cc(file).en() {
            let waited = begin.elapsed();
            assert!(waited < PATIENCE, "CC.EN stays set");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_enabled_controller_is_disabled_and_nothing_else_changes() {
        let registers = enabled_controller();
        let file = registers.as_file();
        let guardian = Guardian::watch(file, BAR).unwrap();
        assert!(cc(file).en(), "the guardian waits");
        drop(guardian);
        assert_eq!(cc(file), Cc::new().with_iosqes(6));
    }

    #[test]
    fn the_controller_has_stopped_when_the_guardian_is_gone() {
        let registers = enabled_controller();
        let file = registers.as_file();
        let at = BAR + offset::CSTS;
        let ready = Csts::new().with_rdy(true).into_bits();
        file.write_all_at(&ready.to_le_bytes(), at).unwrap();
        let guardian = Guardian::watch(file, BAR).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_until_disabled(file);
                // A controller takes its time.
                std::thread::sleep(Duration::from_millis(100));
                file.write_all_at(&[0; 4], at).unwrap();
            });
            drop(guardian);
            let mut csts = [0xff; 4];
            file.read_exact_at(&mut csts, at).unwrap();
            assert_eq!(csts, [0; 4]);
        });
    }

    #[test]
    fn a_disabled_controller_and_one_that_is_gone_are_left_alone() {
        let registers = enabled_controller();
        let file = registers.as_file();
        for bits in [0, u32::MAX] {
            let at = BAR + offset::CC;
            file.write_all_at(&u32::to_le_bytes(bits), at).unwrap();
            drop(Guardian::watch(file, BAR).unwrap());
            assert_eq!(cc(file).into_bits(), bits);
        }
    }

    #[test]
    fn a_killed_process_leaves_its_controller_disabled() {
        if let Some(path) = std::env::var_os(CHILD) {
            let file = File::options().read(true).write(true).open(path).unwrap();
            let _guardian = Guardian::watch(&file, BAR).unwrap();
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
            unreachable!("killed");
        }
        let registers = enabled_controller();
        let this = "vfio::guardian::tests::a_killed_process_leaves_its_controller_disabled";
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this])
            .env(CHILD, registers.path())
            .output()
            .unwrap()
            .status;
        assert_eq!(status.signal(), Some(9), "{status}");
        // The guardian is nobody's child now; it is given time, and ends when it is done.
        wait_until_disabled(registers.as_file());
    }

    #[test]
    fn guardians_end_on_a_kernel_without_close_range() {
        if std::env::var_os(OLD).is_some() {
            old_kernel::pretend();
            let controllers = [enabled_controller(), enabled_controller()];
            let guardians = controllers
                .each_ref()
                .map(|registers| Guardian::watch(registers.as_file(), BAR).unwrap());
            // The first to go is the one whose pipe the other's process has by the fork.
            for (guardian, registers) in guardians.into_iter().zip(&controllers) {
                drop(guardian);
                assert!(!cc(registers.as_file()).en());
            }
            return;
        }
        let this = "vfio::guardian::tests::guardians_end_on_a_kernel_without_close_range";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this])
            .env(OLD, "1")
            // A guardian that does not end would keep them open.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if begin.elapsed() < PATIENCE => {}
                None => {
                    child.kill().unwrap();
                    panic!("a guardian does not end");
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(status.success(), "{status}");
    }
}
