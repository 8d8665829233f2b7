//! Parquet files: each column an array.

use std::fs::File;

use anyhow::{Context, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::Input;
use super::columns::{BATCH_ROWS, Batches, inputs};
use crate::options::SourceName;

pub(super) fn open(source: &SourceName) -> Result<Vec<Input>> {
    let builder = || {
        let shown = source.file.display();
        let file = File::open(&source.file).with_context(|| format!("cannot read {shown}"))?;
        ParquetRecordBatchReaderBuilder::try_new(file).with_context(|| shown.to_string())
    };
    let whole = builder()?;
    let rows = whole.metadata().file_metadata().num_rows();
    inputs(source, whole.schema(), rows.try_into()?, |index| {
        let builder = builder()?;
        let column = ProjectionMask::roots(builder.parquet_schema(), [index]);
        let reader = builder.with_projection(column).with_batch_size(BATCH_ROWS);
        Ok(Box::new(reader.build()?) as Batches)
    })
}
