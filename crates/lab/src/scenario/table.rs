//! Tables: a row for each cell of a grid of conditions, with its measurements.
//!
//! A row is an object: texts name the cell, numbers are measured. Over several seeds the rows at
//! the same place are the same cell, and a cell is judged by the medians of its seeds.

use super::statistics::{max, median, min, rounded};
use super::values::Values;
use serde_json::{Map, Value};

/// The key under which `measured` holds the table.
pub(super) const TABLE: &str = "table";
/// The end of a key that is the smallest value of a column: `share_min` of the column `share`.
const LEAST: &str = "_min";

/// A row: the name of the cell, and its measurements.
pub(super) type Row = Map<String, Value>;

/// A row of these columns.
pub(super) fn row<const N: usize>(columns: [(&str, Value); N]) -> Row {
    columns.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A measured value in a row: rounded, null if there is none.
pub(super) fn figure(value: Option<f64>) -> Value {
    Value::from(value.map(rounded))
}

/// The smallest value of a column; `None` if no row has it, or one of those that have it has no
/// value.
pub(super) fn least(rows: &[Value], column: &str) -> Option<f64> {
    let cells = rows.iter().filter_map(|row| row.get(column));
    cells.map(Value::as_f64).collect::<Option<Vec<_>>>().as_deref().and_then(min)
}

/// The greatest value of a column, with the same exceptions.
pub(super) fn greatest(rows: &[Value], column: &str) -> Option<f64> {
    let cells = rows.iter().filter_map(|row| row.get(column));
    cells.map(Value::as_f64).collect::<Option<Vec<_>>>().as_deref().and_then(max)
}

/// The mean of a column, with the same exceptions.
#[expect(clippy::cast_precision_loss, reason = "rows of a table")]
pub(super) fn mean(rows: &[Value], column: &str) -> Option<f64> {
    let cells = rows.iter().filter_map(|row| row.get(column));
    let cells = cells.map(Value::as_f64).collect::<Option<Vec<_>>>()?;
    (!cells.is_empty()).then(|| cells.iter().sum::<f64>() / cells.len() as f64)
}

/// The table of the medians of several with the same rows; `None` otherwise.
pub(super) fn middle(tables: &[&Value]) -> Option<Value> {
    let tables: Vec<&Vec<Value>> =
        tables.iter().map(|one| one.as_array()).collect::<Option<_>>()?;
    let first = tables.first()?;
    if tables.iter().any(|one| one.len() != first.len()) {
        return None;
    }
    let row = |at: usize| {
        let rows: Vec<&Row> =
            tables.iter().map(|one| one[at].as_object()).collect::<Option<_>>()?;
        let column = |key: &String| {
            let cells: Vec<&Value> = rows.iter().filter_map(|row| row.get(key)).collect();
            (key.clone(), middle_of_cells(&cells, rows.len()))
        };
        Some(Value::Object(rows.first()?.keys().map(column).collect()))
    };
    (0..first.len()).map(row).collect()
}

/// In the medians of tables, the smallest value of a column is that of the medians, not the median
/// of the smallest of each seed.
pub(super) fn judge_by_cells(measured: &mut Values) {
    let Some(Value::Array(rows)) = measured.get(TABLE).cloned() else { return };
    for (key, value) in measured.iter_mut() {
        let column = key.strip_suffix(LEAST);
        let known = |column: &&str| rows.iter().any(|row| row.get(*column).is_some());
        if let Some(column) = column.filter(known) {
            *value = Value::from(least(&rows, column));
        }
    }
}

/// A row in one line: first the words, then the figures.
pub(super) fn line(row: &Row) -> String {
    let (mut words, mut figures) = (Vec::new(), Vec::new());
    for (key, value) in row {
        match (value.as_str(), value.as_f64()) {
            (Some(word), _) => words.push(format!("{key} {word}")),
            (None, Some(number)) => figures.push(format!("{key} {number}")),
            (None, None) => figures.push(format!("{key} -")),
        }
    }
    format!("{}: {}", words.join(", "), figures.join(", "))
}

/// The common text, or the median of the numbers; null unless every row has it.
fn middle_of_cells(cells: &[&Value], rows: usize) -> Value {
    if let Some((first, others)) = cells.split_first()
        && cells.len() == rows
        && others.iter().all(|other| other == first)
    {
        return (*first).clone();
    }
    let numbers: Option<Vec<f64>> = cells.iter().map(|cell| cell.as_f64()).collect();
    figure(numbers.filter(|all| all.len() == rows).as_deref().and_then(median))
}

#[cfg(test)]
mod tests {
    use super::{greatest, judge_by_cells, least, line, middle};
    use crate::scenario::values::Values;
    use serde_json::{Value, json};

    fn table(shares: [Option<f64>; 2]) -> Value {
        let [first, second] = shares;
        json!([{"cell": "a", "share": first}, {"cell": "b", "share": second}])
    }

    #[test]
    fn a_cell_is_judged_by_the_median_of_its_seeds() {
        let seeds = [[0.9, 0.5], [0.1, 0.6], [0.8, 0.7]].map(|shares| table(shares.map(Some)));
        let middle = middle(&seeds.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(middle, table([Some(0.8), Some(0.6)]));
        // The median of each seed's smallest, 0.5, 0.1 and 0.7, is another one.
        let mut measured = Values::from([
            ("table".to_owned(), middle),
            ("share_min".to_owned(), json!(0.5)),
            ("rtt_min".to_owned(), json!(7)),
        ]);
        judge_by_cells(&mut measured);
        assert_eq!((&measured["share_min"], &measured["rtt_min"]), (&json!(0.6), &json!(7)));
    }

    #[test]
    fn what_is_missing_once_is_missing() {
        let whole = table([Some(0.9), Some(0.5)]);
        let part = table([Some(0.9), None]);
        let both = middle(&[&whole, &part]).unwrap();
        assert_eq!(both, part);
        assert_eq!(least(both.as_array().unwrap(), "share"), None);
        assert_eq!(least(whole.as_array().unwrap(), "share"), Some(0.5));
        assert_eq!(greatest(whole.as_array().unwrap(), "share"), Some(0.9));
        assert_eq!(
            (least(&[], "share"), greatest(part.as_array().unwrap(), "share")),
            (None, None)
        );
        let mixed = [json!({"cell": "c", "rate": 0.1}), whole[0].clone()];
        assert_eq!(least(&mixed, "share"), Some(0.9), "of those that have the column");
        assert_eq!(middle(&[&whole, &json!([])]), None, "they are not of one grid");
        assert_eq!(middle(&[&json!(1), &json!(2)]), None);
    }

    #[test]
    fn a_line_names_the_cell_first() {
        let row = json!({"a_share": 0.9, "cell": "b", "of": null});
        assert_eq!(line(row.as_object().unwrap()), "cell b: a_share 0.9, of -");
    }
}
