//! Data lands where the PRPs say and nowhere else.

use crate::rig::{PAGE, Pair, Rig, SERVERS, configuration, failed, io_sqe, map_at};

const SENTINEL: u8 = 0xee;
const OFFSETS: [u64; 9] = [0, 4, 16, 512, 2048, 2052, 3584, 4080, 4092];
const BLOCKS: [u32; 9] = [1, 2, 7, 8, 9, 16, 17, 24, 80];

fn pattern(lba: u64, byte: u64) -> u8 {
    (lba.wrapping_mul(31).wrapping_add(byte.wrapping_mul(7)) >> 1) as u8
}

/// How the pages beyond the second are listed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum List {
    /// From the start of a page.
    Whole,
    /// In the last two slots of a page: every list begins with a chain, as the first slot holds
    /// data and the second a pointer.
    Chained,
}

/// PRP1 and PRP2 for `bytes` at `offset` of the first page, and the address of each byte's page.
fn describe(rig: &mut Rig, offset: u64, bytes: u64, list: List) -> (u64, u64, Vec<u64>) {
    let count = (offset + bytes).div_ceil(PAGE);
    // Every other page, in falling order, so that contiguous memory hides no mistake.
    let area = rig.memory.pages(2 * count * PAGE);
    rig.memory.fill(area, 2 * count * PAGE, SENTINEL);
    let pages: Vec<u64> = (0..count)
        .rev()
        .map(|index| area + 2 * index * PAGE)
        .collect();
    let prp2 = match count {
        1 => 0xdead_0000_0000_0003, // unused, so it may hold anything
        2 => pages[1],
        _ => write_list(rig, &pages[1..], list),
    };
    (pages[0] + offset, prp2, pages)
}

fn write_list(rig: &mut Rig, entries: &[u64], list: List) -> u64 {
    let start = rig.memory.pages(PAGE) + if list == List::Chained { PAGE - 16 } else { 0 };
    let mut slot = start;
    for (index, &entry) in entries.iter().enumerate() {
        let last_slot = slot % PAGE == PAGE - 8;
        if last_slot && index + 1 < entries.len() {
            let next = rig.memory.pages(PAGE);
            rig.memory.set_entry(slot, next);
            slot = next;
        }
        rig.memory.set_entry(slot, entry);
        slot += 8;
    }
    start
}

/// The bytes that the PRPs describe.
fn gather(rig: &Rig, offset: u64, bytes: u64, pages: &[u64]) -> Vec<u8> {
    (offset..offset + bytes)
        .map(|at| rig.memory.byte(pages[(at / PAGE) as usize] + at % PAGE))
        .collect()
}

/// Writes and reads LBAs one by one through an aligned page: the plainest transfer there is.
fn write_plainly(rig: &mut Rig, pair: &mut Pair, page: u64, lba: u64, data: &[u8]) {
    for (byte, &value) in (0..).zip(data) {
        rig.memory.set_byte(page + byte, value);
    }
    assert_eq!(pair.run(rig, io_sqe(1, 1, lba, 1, page, 0)), 0);
}

fn read_plainly(rig: &mut Rig, pair: &mut Pair, page: u64, lba: u64) -> Vec<u8> {
    assert_eq!(pair.run(rig, io_sqe(2, 1, lba, 1, page, 0)), 0);
    rig.memory.bytes(page, 512)
}

#[test]
fn reads_fill_exactly_what_the_prps_describe() {
    for server in SERVERS {
        let mut rig = Rig::up(configuration(), server);
        let mut pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(PAGE);
        for lba in 0..100 {
            let data: Vec<u8> = (0..512).map(|byte| pattern(lba, byte)).collect();
            write_plainly(&mut rig, &mut pair, page, lba, &data);
        }
        for (offset, blocks) in OFFSETS.into_iter().flat_map(|o| BLOCKS.map(|b| (o, b))) {
            for list in [List::Whole, List::Chained] {
                let bytes = blocks as u64 * 512;
                let (prp1, prp2, pages) = describe(&mut rig, offset, bytes, list);
                assert_eq!(pair.run(&mut rig, io_sqe(2, 1, 3, blocks, prp1, prp2)), 0);
                let case = format!("{server:?}, {blocks} blocks at {offset}, {list:?}");
                let expected: Vec<u8> = (0..bytes)
                    .map(|at| pattern(3 + at / 512, at % 512))
                    .collect();
                assert!(
                    gather(&rig, offset, bytes, &pages) == expected,
                    "{case}: data"
                );
                let area = *pages.last().unwrap();
                let touched = rig.memory.bytes(area, 2 * pages.len() as u64 * PAGE);
                let kept = touched.iter().filter(|&&byte| byte == SENTINEL).count();
                let equal = expected.iter().filter(|&&byte| byte == SENTINEL).count();
                assert_eq!(
                    kept,
                    touched.len() - bytes as usize + equal,
                    "{case}: sentinels"
                );
                rig.memory.release(area);
            }
        }
    }
}

#[test]
fn writes_take_exactly_what_the_prps_describe() {
    for server in SERVERS {
        let mut rig = Rig::up(configuration(), server);
        let mut pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(PAGE);
        for (offset, blocks) in OFFSETS.into_iter().flat_map(|o| BLOCKS.map(|b| (o, b))) {
            let bytes = blocks as u64 * 512;
            for lba in [9, 10 + blocks as u64] {
                write_plainly(&mut rig, &mut pair, page, lba, &[SENTINEL; 512]);
            }
            let (prp1, prp2, pages) = describe(&mut rig, offset, bytes, List::Chained);
            for at in 0..bytes {
                let place = offset + at;
                let address = pages[(place / PAGE) as usize] + place % PAGE;
                rig.memory.set_byte(address, pattern(offset + at / 512, at));
            }
            assert_eq!(pair.run(&mut rig, io_sqe(1, 1, 10, blocks, prp1, prp2)), 0);
            let case = format!("{server:?}, {blocks} blocks at {offset}");
            for block in 0..blocks as u64 {
                let expected: Vec<u8> = (block * 512..block * 512 + 512)
                    .map(|at| pattern(offset + block, at))
                    .collect();
                let found = read_plainly(&mut rig, &mut pair, page, 10 + block);
                assert!(found == expected, "{case}: block {block}");
            }
            for lba in [9, 10 + blocks as u64] {
                let found = read_plainly(&mut rig, &mut pair, page, lba);
                assert!(found == [SENTINEL; 512], "{case}: neighbour {lba}");
            }
            rig.memory.release(*pages.last().unwrap());
        }
    }
}

#[test]
fn invalid_prps_are_refused_and_wild_ones_never_followed() {
    for server in SERVERS {
        let mut rig = Rig::up(configuration(), server);
        let mut pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(4 * PAGE);
        let list = rig.memory.pages(PAGE);
        let outside = rig.memory.address() + rig.memory.len();
        let offset_invalid = failed(0, 0x13);
        let transfer_error = failed(0, 0x04);
        let mut run =
            |rig: &mut Rig, blocks, prp1, prp2| pair.run(rig, io_sqe(2, 1, 0, blocks, prp1, prp2));
        assert_eq!(
            run(&mut rig, 1, page + 2, 0),
            offset_invalid,
            "PRP1 not dword aligned"
        );
        assert_eq!(
            run(&mut rig, 16, page, page + PAGE + 4),
            offset_invalid,
            "PRP2 with offset"
        );
        assert_eq!(
            run(&mut rig, 24, page, list + 4),
            offset_invalid,
            "list not qword aligned"
        );
        assert_eq!(run(&mut rig, 1, outside, 0), transfer_error, "PRP1 outside");
        assert_eq!(run(&mut rig, 1, 8, 0), transfer_error, "PRP1 near 0");
        assert_eq!(
            run(&mut rig, 1, u64::MAX - 511, 0),
            transfer_error,
            "PRP1 at the end"
        );
        assert_eq!(
            run(&mut rig, 16, page, outside),
            transfer_error,
            "PRP2 outside"
        );
        assert_eq!(
            run(&mut rig, 24, page, outside),
            transfer_error,
            "list outside"
        );
        rig.memory.set_entry(list, page + PAGE);
        rig.memory.set_entry(list + 8, outside);
        assert_eq!(
            run(&mut rig, 24, page, list),
            transfer_error,
            "entry outside"
        );
        rig.memory.set_entry(list + 8, page + 2 * PAGE + 512);
        assert_eq!(
            run(&mut rig, 24, page, list),
            offset_invalid,
            "entry with offset"
        );
        rig.memory.set_entry(list + 8, page + 2 * PAGE);
        assert_eq!(run(&mut rig, 24, page, list), 0, "a valid list");
        let all = rig.memory.address();
        rig.controller.unmap_dma(all, rig.memory.len()).unwrap();
        crate::rig::map(&rig.controller, all, page - all + PAGE);
        assert_eq!(run(&mut rig, 8, page, 0), 0, "still mapped");
        assert_eq!(
            run(&mut rig, 16, page, page + PAGE),
            transfer_error,
            "unmapped"
        );
    }
}

/// Commands and lists name IOVAs, which are addresses only where they were mapped so.
#[test]
fn data_goes_where_the_iovas_were_mapped_to() {
    for server in SERVERS {
        let mut rig = Rig::up(configuration(), server);
        let pages = rig.memory.pages(4 * PAGE);
        rig.memory.fill(pages, 4 * PAGE, SENTINEL);
        let (iova, elsewhere) = (7 << 40, pages + PAGE);
        map_at(&rig.controller, iova, elsewhere, 2 * PAGE).unwrap();
        let refused = |iova, address| {
            let error = map_at(&rig.controller, iova, address, PAGE).unwrap_err();
            error.to_string()
        };
        assert!(refused(iova + PAGE, pages).contains("overlap"));
        assert!(refused(iova - 4, pages - 4).contains("overlap"));
        assert!(refused(8 << 40, pages + 4).contains("different places"));
        let mut pair = rig.create_pair(1, 8);
        let blocks = (0..2 * PAGE).map(|byte| pattern(byte / 512, byte % 512));
        rig.controller.load(0, &blocks.collect::<Vec<u8>>());
        let status = pair.run(&mut rig, io_sqe(2, 1, 0, 16, iova, iova + PAGE));
        assert_eq!(status, 0, "{server:?}");
        for byte in 0..2 * PAGE {
            let found = rig.memory.byte(elsewhere + byte);
            assert_eq!(found, pattern(byte / 512, byte % 512), "byte {byte}");
        }
        assert_eq!(rig.memory.byte(pages + PAGE - 1), SENTINEL);
        assert_eq!(rig.memory.byte(elsewhere + 2 * PAGE), SENTINEL);
        let beyond = pair.run(&mut rig, io_sqe(2, 1, 0, 16, iova + PAGE, iova + 2 * PAGE));
        assert_eq!(beyond, failed(0, 4), "{server:?}");
    }
}

#[test]
fn a_batch_of_single_blocks_moves_each_to_its_own_place() {
    for server in SERVERS {
        let mut rig = Rig::up(configuration(), server);
        let mut pair = rig.create_pair(1, 64);
        let buffers = rig.memory.pages(64 * 512);
        for lba in 0..45 {
            (0..512).for_each(|at| {
                rig.memory
                    .set_byte(buffers + lba * 512 + at, pattern(lba, at))
            });
        }
        for (opcode, order) in [(1, 1), (2, 7)] {
            for index in 0..45u64 {
                let lba = index * order % 45;
                pair.push(
                    &rig,
                    lba as u16,
                    io_sqe(opcode, 1, lba, 1, buffers + lba * 512, 0),
                );
            }
            pair.ring(&rig);
            (0..64).for_each(|_| rig.step());
            let done: Vec<_> = std::iter::from_fn(|| pair.reap(&rig)).collect();
            assert_eq!(done.len(), 45, "{server:?}");
            assert!(
                done.iter().all(|completion| completion.status == 0),
                "{server:?}"
            );
            if opcode == 1 {
                rig.memory.fill(buffers, 64 * 512, SENTINEL);
            }
        }
        for lba in 0..45 {
            let expected: Vec<u8> = (0..512).map(|at| pattern(lba, at)).collect();
            assert!(
                rig.memory.bytes(buffers + lba * 512, 512) == expected,
                "{server:?}: {lba}"
            );
        }
        assert!(
            rig.memory
                .bytes(buffers + 45 * 512, 19 * 512)
                .iter()
                .all(|&b| b == SENTINEL)
        );
    }
}
