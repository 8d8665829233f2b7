//! Volumes as text.

use comfy_table::{CellAlignment, Table, presets};
use warpstore_device::Layout;
use warpstore_volume::{Description, State};

/// The arrays of a volume, a line each.
pub fn arrays(description: &Description) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["array", "type", "elements", "bytes", "CRC32C"]);
    for array in &description.arrays {
        let crc = match description.state {
            State::Sealed if array.crc != 0 => format!("{:08x}", array.crc),
            _ => "-".to_owned(),
        };
        table.add_row([
            array.name.clone(),
            array.element.to_string(),
            array.len.to_string(),
            array.bytes().to_string(),
            crc,
        ]);
    }
    for column in [2, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

/// What a volume is, in a few lines.
pub fn volume(description: &Description, members: &[String]) -> String {
    let state = match description.state {
        State::Sealed => "sealed",
        State::Unsealed => "not sealed: opened for writing since, so no checksum holds",
    };
    let layout = match description.layout {
        Layout::Stripe => format!("striped by {} bytes", description.stripe),
        Layout::Replicate => "replicated".to_owned(),
    };
    format!(
        "volume {}, generation {}, {state}\n{layout}, from byte {} of {}\n",
        description.uuid,
        description.generation,
        description.region.start,
        members.join(", "),
    )
}
