//! CSV files with a line of names: each column an array.
//!
//! The file is read once to count its rows and, where nobody said them, to find the types: i64 where
//! all values are whole numbers, f64 where all are numbers. Then twice for each column: to check its values, and
//! to write them.
//!
//! Dates and times are refused: as numbers their unit would be whichever the values happen to need.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Format;
use arrow_schema::{DataType, Field, Schema};
use warpstore_terminal::Progress;
use warpstore_volume::ElementType;

use super::columns::{BATCH_ROWS, Batches, inputs, no_column};
use super::{Input, floats, open_file};
use crate::options::SourceName;

pub(super) fn open(source: &SourceName) -> Result<Vec<Input>> {
    let path = &source.file;
    let progress = Progress::begin(format!("count the rows of {}", path.display()), 0);
    let file = open_file(path)?;
    let (schema, rows) = format()
        .infer_schema(file, None)
        .with_context(|| path.display().to_string())?;
    progress.end(&format!("{rows} rows"));
    if rows == 0 && source.element.is_none() && !schema.fields().is_empty() {
        bail!(
            "{}: it has no rows, so its columns show no types; for an empty array say the type, as \
             NAME:TYPE=FILE#COLUMN",
            path.display()
        );
    }
    let schema = with_types(source, &schema)?;
    refuse_times(source, &schema)?;
    inputs(source, &schema, rows as u64, |index| {
        read(path, &schema, index)
    })
}

fn format() -> Format {
    Format::default().with_header(true)
}

/// Begins to read one column.
fn read(path: &Path, schema: &Schema, index: usize) -> Result<Batches> {
    let field = schema.field(index);
    let reader = ReaderBuilder::new(Arc::new(floats::as_text(schema)))
        .with_format(format())
        .with_projection(vec![index])
        .with_batch_size(BATCH_ROWS)
        .build(open_file(path)?)?;
    Ok(match field.data_type().is_floating() {
        true => floats::parsed(Box::new(reader), field),
        false => Box::new(reader),
    })
}

/// Refuses dates and times among the columns that the source names.
fn refuse_times(source: &SourceName, schema: &Schema) -> Result<()> {
    let wanted = |field: &Field| {
        source
            .column
            .as_ref()
            .is_none_or(|name| name == field.name())
    };
    let mut fields = schema.fields().iter();
    let time = fields.find(|field| wanted(field) && field.data_type().is_temporal());
    let Some(field) = time else {
        return Ok(());
    };
    let file = source.file.display();
    bail!(
        "{file}: column {} holds dates or times, and a CSV file does not say in which unit they shall be \
         numbers; write them as whole numbers, or as a Parquet file; or choose other columns with {}={file}#COLUMN",
        field.name(),
        source.name
    )
}

/// The schema with the type that the source says for its column.
fn with_types(source: &SourceName, schema: &Schema) -> Result<Schema> {
    let Some(element) = source.element else {
        return Ok(schema.clone());
    };
    let Some(column) = &source.column else {
        bail!(
            "{}: a type is for one column; name it as FILE#COLUMN",
            source.file.display()
        );
    };
    if schema.field_with_name(column).is_err() {
        return Err(no_column(source, schema));
    }
    let data_type = match element {
        ElementType::U8 => DataType::UInt8,
        ElementType::U16 => DataType::UInt16,
        ElementType::U32 => DataType::UInt32,
        ElementType::U64 => DataType::UInt64,
        ElementType::I8 => DataType::Int8,
        ElementType::I16 => DataType::Int16,
        ElementType::I32 => DataType::Int32,
        ElementType::I64 => DataType::Int64,
        ElementType::F32 => DataType::Float32,
        ElementType::F64 => DataType::Float64,
        ElementType::U128 | ElementType::I128 => bail!("a CSV column cannot be read as {element}"),
    };
    let fields = schema.fields().iter().map(|field| {
        let of_source = field.name() == column;
        let data_type = if of_source {
            data_type.clone()
        } else {
            field.data_type().clone()
        };
        Field::new(field.name(), data_type, true)
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}
