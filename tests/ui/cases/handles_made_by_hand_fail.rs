//! A line that nobody holds, and memory that nobody vouched for: their parts are private.

use warpstore_device::Line;
use warpstore_device::parts::simt::NativeBytes;
use warpstore_device::prelude::*;

pub fn line(memory: NativeBytes<Device>) -> Line<'static, u32> {
    Line {
        memory,
        start: 0,
        indices: 0..1,
        lanes: 1,
        held: core::marker::PhantomData,
    }
}

pub fn global() -> Global<u32> {
    Global {
        address: core::ptr::null(),
        len: 1,
    }
}

fn main() {}
