//! Parquet files: each column an array.
//!
//! The reader of the format panics at some files that are damaged; that is an error of the file here.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use anyhow::{Context, Result, anyhow};
use arrow_schema::ArrowError;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::columns::{BATCH_ROWS, Batches, inputs};
use super::{Input, open_file};
use crate::options::SourceName;

pub(super) fn open(source: &SourceName) -> Result<Vec<Input>> {
    let shown = source.file.display().to_string();
    let damaged = || anyhow!("{shown}: {DAMAGED}");
    let builder = || {
        let file = open_file(&source.file)?;
        let builder = guarded(|| ParquetRecordBatchReaderBuilder::try_new(file));
        builder.ok_or_else(damaged)?.with_context(|| shown.clone())
    };
    let whole = builder()?;
    let rows = whole.metadata().file_metadata().num_rows();
    let rows = rows.try_into().map_err(|_| damaged())?;
    inputs(source, whole.schema(), rows, |index| {
        let builder = builder()?;
        let reader = guarded(|| {
            let column = ProjectionMask::roots(builder.parquet_schema(), [index]);
            let reader = builder.with_projection(column).with_batch_size(BATCH_ROWS);
            reader.build()
        });
        let reader = reader.ok_or_else(damaged)?.with_context(|| shown.clone())?;
        Ok(guarded_batches(Box::new(reader), shown.clone()))
    })
}

const DAMAGED: &str = "it is damaged: the Parquet reader cannot go on; make the file anew";

/// The batches, where a panic is an error and the end.
fn guarded_batches(mut batches: Batches, file: String) -> Batches {
    let mut ended = false;
    Box::new(std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let next = guarded(|| batches.next());
        ended = next.is_none();
        next.unwrap_or_else(|| {
            let error = format!("{file}: {DAMAGED}");
            Some(Err(ArrowError::ParquetError(error)))
        })
    }))
}

thread_local! {
    /// Whether panics of this thread are caught, and nobody needs to hear of them.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// What `read` gives; `None` if it panics. Nothing that it used may be used again then.
fn guarded<T>(read: impl FnOnce() -> T) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                told(panic);
            }
        }));
    });
    GUARDED.set(true);
    let read = panic::catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(false);
    read.ok()
}
