//! Floating-point columns of CSV: parsed here, since Arrow makes an infinity of what is too large, without a word.

use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::columns::Batches;

/// The schema with text in place of floating-point columns.
pub(super) fn as_text(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let data_type = match field.data_type().is_floating() {
            true => DataType::Utf8,
            false => field.data_type().clone(),
        };
        Field::new(field.name(), data_type, true)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Makes batches of such a column those of its own type.
pub(super) fn parsed(batches: Batches, field: &Field) -> Batches {
    let field = field.clone();
    let mut row = 0;
    Box::new(batches.map(move |batch| {
        let batch = batch?;
        let text = batch.column(0).as_string();
        let values: ArrayRef = match field.data_type() {
            DataType::Float32 => Arc::new(values::<Float32Type>(text, row, field.name())?),
            _ => Arc::new(values::<Float64Type>(text, row, field.name())?),
        };
        row += batch.num_rows();
        RecordBatch::try_from_iter([(field.name(), values)])
    }))
}

/// The values of texts that begin with row `first`, from 0.
fn values<T>(
    text: &StringArray,
    first: usize,
    column: &str,
) -> Result<PrimitiveArray<T>, ArrowError>
where
    T: ArrowPrimitiveType<Native: FromStr + Into<f64>>,
{
    let rows = text.iter().enumerate();
    let values = rows.map(|(row, text)| {
        let value = text.map(|text| {
            value::<T::Native>(text).map_err(|reason| {
                // People count rows from 1.
                let row = first + row + 1;
                ArrowError::ParseError(format!("column {column}, row {row}: {text:?} {reason}"))
            })
        });
        value.transpose()
    });
    values.collect()
}

fn value<T: FromStr + Into<f64> + Copy>(text: &str) -> Result<T, &'static str> {
    let value: T = text.parse().map_err(|_| "is no number")?;
    // An infinity has a name, and no digits.
    match value.into().is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
        true => {
            Err("is beyond the largest number of the type; say a wider one, as f64, or correct it")
        }
        false => Ok(value),
    }
}
