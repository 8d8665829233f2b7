//! Columns of CSV and Parquet files.

use std::fs::File;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Int16Array, RecordBatch, StringArray, UInt64Array};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use zerocopy::IntoBytes;

use crate::Folder;

const ROWS: u64 = 150_000;

#[test]
fn csv_columns_have_the_types_that_they_show_or_that_are_asked_for() {
    let folder = Folder::new();
    let rows = (0..ROWS).map(|row| format!("{row},{}.5,word\n", row % 7));
    let text = "id,price,name\n".to_owned() + &rows.collect::<String>();
    folder.write("t.csv", text.as_bytes());
    folder.succeed("flash --to file:a.img id=t.csv#id small:u32=t.csv#id price:f32=t.csv#price");
    folder.succeed("extract file:a.img id=id small=small price=price");
    let ids: Vec<i64> = (0..ROWS as i64).collect();
    assert!(folder.read("id") == ids.as_bytes());
    let small: Vec<u32> = (0..ROWS as u32).collect();
    assert!(folder.read("small") == small.as_bytes());
    let prices: Vec<f32> = (0..ROWS).map(|row| (row % 7) as f32 + 0.5).collect();
    assert!(folder.read("price") == prices.as_bytes());
    for (source, words) in [
        (
            "t=t.csv",
            &["column name is of type Utf8", "t=t.csv#COLUMN"][..],
        ),
        ("t=t.csv#size", &["no column size", "id, price, name"]),
        ("t:u8=t.csv#id", &["array \"t\"", "256"]),
        ("t:u8=t.csv", &["a type is for one column"]),
    ] {
        folder.fail(&format!("flash --to file:a.img {source}"), 1, words);
    }
    folder.succeed("verify file:a.img");
}

#[test]
fn an_empty_cell_is_told_by_its_row() {
    let folder = Folder::new();
    folder.write("t.csv", b"a,b\n1,2\n3,\n5,6\n");
    folder.succeed("flash --to file:a.img --size 1M t=t.csv#a");
    folder.fail(
        "flash --to file:a.img t=t.csv",
        1,
        &["column b has no value in row 2"],
    );
    folder.succeed("verify file:a.img");
}

#[test]
fn dates_and_times_of_csv_are_refused() {
    for (time, other) in [
        ("2026-01-02", "2026-01-03"),
        ("2026-01-02T03:04:05", "2026-01-02T03:04:05.5"),
        ("2026-01-02 03:04:05", "2026-01-02 03:04:06"),
    ] {
        let folder = Folder::new();
        let text = format!("at,b\n{time},1\n{other},2\n");
        folder.write("t.csv", text.as_bytes());
        for source in ["t=t.csv#at", "t=t.csv"] {
            let words = [
                "t.csv: column at holds dates or times",
                "write them as whole numbers",
            ];
            folder.fail(&format!("flash --to file:a.img {source}"), 1, &words);
        }
        folder.fail("flash --to file:a.img t:i64=t.csv#at", 1, &[time]);
        folder.succeed("flash --to file:a.img t=t.csv#b");
    }
}

#[test]
fn numbers_beyond_their_type_are_refused() {
    let folder = Folder::new();
    folder.write("t.csv", b"a,b,c\n1.5,2.5,inf\n1e400,1e300,-Infinity\n");
    for (source, words) in [
        ("t=t.csv#a", ["column a, row 2: \"1e400\"", "beyond"]),
        ("t=t.csv", ["column a, row 2: \"1e400\"", "beyond"]),
        ("t:f32=t.csv#b", ["column b, row 2: \"1e300\"", "beyond"]),
    ] {
        folder.fail(&format!("flash --to file:a.img {source}"), 1, &words);
    }
    // What is called infinite is.
    folder.succeed("flash --to file:a.img b=t.csv#b c:f32=t.csv#c");
    folder.succeed("extract file:a.img b=b c=c");
    assert_eq!(folder.read("b"), [2.5, 1e300].as_bytes());
    assert_eq!(
        folder.read("c"),
        [f32::INFINITY, f32::NEG_INFINITY].as_bytes()
    );
    folder.fail(
        "flash --to file:a.img c:f64=t.csv#c d:f64=t.csv#e",
        1,
        &["no column e"],
    );
}

#[test]
fn a_table_without_rows_is_an_empty_array_of_the_type_that_is_said() {
    let folder = Folder::new();
    folder.write("t.csv", b"a,b\n");
    for source in ["t=t.csv", "a=t.csv#a"] {
        let line = format!("flash --to file:a.img {source}");
        folder.fail(
            &line,
            1,
            &["t.csv: it has no rows", "NAME:TYPE=FILE#COLUMN"],
        );
    }
    folder.succeed("flash --to file:a.img a:u16=t.csv#a");
    folder.succeed("extract file:a.img a=out");
    assert_eq!(folder.read("out"), b"");
    folder.write("u.csv", b"a,b\n1,\n2,\n");
    folder.fail(
        "flash --to file:a.img b=u.csv#b",
        1,
        &["u.csv: column b has no value in any row"],
    );
    folder.write("v.csv", b"");
    folder.fail("flash --to file:a.img v=v.csv", 1, &["has no columns"]);
}

#[test]
fn a_wrong_value_is_told_before_a_volume_goes() {
    let folder = Folder::new();
    folder.write("s.bin", &[5; 1000]);
    folder.write("t.csv", b"a,b\n1,2\n3,\n500,6\n");
    // Without room for two.
    folder.succeed("flash --to file:w.img --size 320K s:u8=s.bin");
    let before = folder.read("w.img");
    for (source, word) in [
        ("b=t.csv#b", "column b has no value in row 2"),
        ("a:u8=t.csv#a", "500"),
    ] {
        let to = "flash --to file:w.img --yes-destroy file:w.img";
        folder.fail(&format!("{to} {source}"), 1, &[word]);
        assert!(folder.read("w.img") == before);
        folder.fail(&format!("flash --to file:new.img {source}"), 1, &[word]);
    }
    assert_eq!(folder.names(), ["s.bin", "t.csv", "w.img"]);
    folder.succeed("flash --to file:w.img --yes-destroy file:w.img a=t.csv#a");
}

fn write_parquet(folder: &Folder, name: &str, columns: Vec<(&str, ArrayRef)>, how: Compression) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder().set_compression(how).build();
    let file = File::create(folder.path(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn parquet_columns_come_back() {
    let folder = Folder::new();
    let keys: Vec<u64> = (0..ROWS).map(|row| row * 977).collect();
    let codes: Vec<i16> = (0..ROWS).map(|row| row as i16).collect();
    let weights: Vec<f32> = (0..ROWS).map(|row| row as f32 / 3.0).collect();
    for how in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
    ] {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("key", Arc::new(UInt64Array::from(keys.clone()))),
            ("code", Arc::new(Int16Array::from(codes.clone()))),
            ("weight", Arc::new(Float32Array::from(weights.clone()))),
        ];
        write_parquet(&folder, "t.parquet", columns, how);
        folder.succeed("flash --to file:a.img t=t.parquet w=t.parquet#weight");
        folder.succeed("extract file:a.img t.key=key t.code=code w=weight");
        assert!(folder.read("key") == keys.as_bytes());
        assert!(folder.read("code") == codes.as_bytes());
        assert!(folder.read("weight") == weights.as_bytes());
        for name in ["key", "code", "weight"] {
            std::fs::remove_file(folder.path(name)).unwrap();
        }
    }
    folder.fail(
        "flash --to file:a.img t:u32=t.parquet#key",
        1,
        &["column key is of type u64, not u32"],
    );
    folder.write("cut.parquet", &folder.read("t.parquet")[..5000]);
    folder.fail("flash --to file:a.img t=cut.parquet", 1, &["cut.parquet"]);
}

/// The reader of the format panics at some of these; [`Folder::run`] looks out for it.
#[test]
fn damaged_parquet_is_an_error_of_the_file() {
    let folder = Folder::new();
    let keys: Vec<u64> = (0..50).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![("key", Arc::new(UInt64Array::from(keys)))];
    write_parquet(&folder, "t.parquet", columns, Compression::UNCOMPRESSED);
    let whole = folder.read("t.parquet");
    let mut refused = 0;
    // What the file says of itself: behind the data, up to its own length and the last 4 bytes.
    let footer = &whole[whole.len() - 8..whole.len() - 4];
    let footer = u32::from_le_bytes(footer.try_into().unwrap()) as usize;
    let first = whole.len() - 8 - footer;
    for at in first..whole.len().min(first + 150) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        folder.write("t.parquet", &damaged);
        let output = folder.run("flash --dry-run --to file:a.img t=t.parquet");
        if output.status.code() != Some(0) {
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "byte {at}: {told}");
            refused += 1;
        }
    }
    assert!(refused > 20);
}

#[test]
fn text_and_missing_values_are_refused() {
    let folder = Folder::new();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("word", Arc::new(StringArray::from(vec!["a", "b"]))),
        ("code", Arc::new(Int16Array::from(vec![Some(1), None]))),
    ];
    write_parquet(&folder, "t.parquet", columns, Compression::UNCOMPRESSED);
    folder.fail(
        "flash --to file:a.img t=t.parquet#word",
        1,
        &["column word is of type Utf8"],
    );
    folder.fail(
        "flash --to file:a.img t=t.parquet#code",
        1,
        &["column code has no value in row 2"],
    );
}
