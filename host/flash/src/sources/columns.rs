//! Columns of tables, as Arrow has them: batches of rows to little-endian bytes.

use std::io::{self, Read};

use anyhow::{Result, anyhow, bail};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use warpstore_terminal::Progress;
use warpstore_volume::{ArrayShape, ElementType, Error};

use super::Input;
use crate::options::SourceName;

/// Rows of a batch.
pub(super) const BATCH_ROWS: usize = 1 << 16;

/// Batches of one column.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// Makes inputs of the columns that a source names; `read` begins to read one, by its index. Each is
/// read through first, so that what is wrong with it shows before anything is written.
pub(super) fn inputs(
    source: &SourceName,
    schema: &Schema,
    rows: u64,
    mut read: impl FnMut(usize) -> Result<Batches>,
) -> Result<Vec<Input>> {
    let fields = schema.fields().iter().enumerate();
    let wanted = |field: &Field| {
        source
            .column
            .as_ref()
            .is_none_or(|name| name == field.name())
    };
    let chosen = fields.filter(|(_, field)| wanted(field));
    let inputs = chosen.map(|(index, field)| {
        let name = match &source.column {
            Some(_) => source.name.clone(),
            None => format!("{}.{}", source.name, field.name()),
        };
        let shape = ArrayShape {
            name,
            element: element_of(source, field)?,
            len: rows,
        };
        check(Column::new(read(index)?, field), &shape)?;
        let bytes = Box::new(Column::new(read(index)?, field));
        Ok(Input { shape, bytes })
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    match inputs.is_empty() {
        true => Err(no_column(source, schema)),
        false => Ok(inputs),
    }
}

/// Reads all of a column, which has to have the values that its array shall have.
fn check(mut column: Column, shape: &ArrayShape) -> Result<()> {
    let array = &shape.name;
    let progress = Progress::begin(format!("check column {}", column.name), 0);
    let found = io::copy(&mut column, &mut io::sink()).map_err(|source| Error::Source {
        array: array.clone(),
        source,
    })?;
    let expected = shape.len * shape.element.bytes();
    if found != expected {
        return Err(Error::SourceLength {
            array: array.clone(),
            expected,
            found: found.to_string(),
        }
        .into());
    }
    progress.end(&format!("{} values", shape.len));
    Ok(())
}

/// What is said if the column is not there.
pub(super) fn no_column(source: &SourceName, schema: &Schema) -> anyhow::Error {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    let file = source.file.display();
    match &source.column {
        Some(column) => anyhow!("{file} has no column {column}; it has {}", names.join(", ")),
        None => anyhow!("{file} has no columns"),
    }
}

/// The type of elements of a column, which has to be the one that was asked for.
fn element_of(source: &SourceName, field: &Field) -> Result<ElementType> {
    use DataType::{
        Date32, Date64, Decimal128, Duration, Float32, Float64, Int8, Int16, Int32, Int64, Time32,
        Time64, Timestamp, UInt8, UInt16, UInt32, UInt64,
    };
    let (file, name) = (source.file.display(), field.name());
    let element = match field.data_type() {
        UInt8 => ElementType::U8,
        UInt16 => ElementType::U16,
        UInt32 => ElementType::U32,
        UInt64 => ElementType::U64,
        Int8 => ElementType::I8,
        Int16 => ElementType::I16,
        Int32 | Date32 | Time32(_) => ElementType::I32,
        Int64 | Date64 | Time64(_) | Timestamp(..) | Duration(_) => ElementType::I64,
        Decimal128(..) => ElementType::I128,
        Float32 => ElementType::F32,
        Float64 => ElementType::F64,
        DataType::Null => bail!("{file}: column {name} has no value in any row"),
        other => bail!(
            "{file}: column {name} is of type {other}, which is no number of fixed size; choose columns with \
             {}={file}#COLUMN",
            source.name
        ),
    };
    match source.element {
        Some(asked) if asked != element => {
            bail!("{file}: column {name} is of type {element}, not {asked}")
        }
        _ => Ok(element),
    }
}

/// The bytes of a column, batch by batch.
struct Column {
    batches: Batches,
    name: String,
    /// The row that the next batch begins with, from 0.
    row: u64,
    /// Those of the batch that is being read.
    bytes: Vec<u8>,
    at: usize,
}

impl Column {
    fn new(batches: Batches, field: &Field) -> Self {
        Self {
            batches,
            name: field.name().clone(),
            row: 0,
            bytes: Vec::new(),
            at: 0,
        }
    }

    fn next_batch(&mut self) -> io::Result<bool> {
        let Some(batch) = self.batches.next() else {
            return Ok(false);
        };
        let batch = batch.map_err(io::Error::other)?;
        let column = batch.column(0);
        let rows = column.len();
        let empty = (0..rows).find(|&row| column.is_null(row));
        if let Some(row) = empty {
            // People count rows from 1.
            return Err(io::Error::other(format!(
                "column {} has no value in row {}; an array has one in each",
                self.name,
                self.row + row as u64 + 1
            )));
        }
        let data = column.to_data();
        let width = data.data_type().primitive_width().unwrap_or(0);
        let values = data
            .buffers()
            .first()
            .map_or(&[][..], |buffer| buffer.as_slice());
        let first = data.offset() * width;
        self.bytes.clear();
        self.bytes
            .extend_from_slice(&values[first..first + rows * width]);
        self.at = 0;
        self.row += rows as u64;
        Ok(true)
    }
}

impl Read for Column {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.bytes.len() {
            if !self.next_batch()? {
                return Ok(0);
            }
        }
        let read = (&self.bytes[self.at..]).read(into)?;
        self.at += read;
        Ok(read)
    }
}
