//! A kernel before Linux 5.9, for tests: `close_range` is no system call there.

/// Lets `close_range` fail with ENOSYS, for this thread and what it forks, for good.
pub(in crate::vfio) fn pretend() {
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let step = |code: u32, jf, k| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let mut steps = [
        // The number of the call is the first word of what a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_close_range as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, REFUSE),
        step(libc::BPF_RET | libc::BPF_K, 0, ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers only.
    let given_up = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(given_up, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the program and its steps are locals, which the kernel copies.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}
