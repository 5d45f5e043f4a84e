//! Values that papers print, and how they read beside a measured value.
//!
//! Decides how a citation is written, as JSON and as text. Knows no scenario.

use super::values::shown;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The values that papers print, under the settings of a run; empty where no paper measured it.
#[derive(Clone, Debug, Default)]
pub struct Paper {
    /// The paper and the conditions of its measurement.
    source: &'static str,
    cited: Vec<Cited>,
    /// Lists for readers of the JSON; the text has their values one by one.
    lists: Vec<(&'static str, Value)>,
}

/// One value that a paper prints.
#[derive(Clone, Debug, Serialize)]
pub struct Cited {
    /// Its name in the JSON object.
    pub name: &'static str,
    /// The key of ours that it stands beside; none where we measure nothing like it.
    pub key: Option<&'static str>,
    /// The value, or words where the paper has a picture only.
    pub value: Value,
    /// Its unit; empty for a count and for words.
    pub unit: &'static str,
    /// The table, figure or section.
    pub source: &'static str,
    /// How the paper's conditions differ from ours, or why nothing is measured beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

impl Paper {
    /// Nothing yet, of a paper and its conditions.
    pub const fn of(source: &'static str) -> Self {
        Self { source, cited: Vec::new(), lists: Vec::new() }
    }

    /// One more value, with its unit and the table, figure or section that has it.
    #[must_use]
    pub fn cite(
        mut self,
        name: &'static str,
        value: impl Into<Value>,
        unit: &'static str,
        source: &'static str,
    ) -> Self {
        let value = value.into();
        self.cited.push(Cited { name, key: None, value, unit, source, note: None });
        self
    }

    /// The value cited last stands beside this key of ours.
    #[must_use]
    pub fn beside(mut self, key: &'static str) -> Self {
        if let Some(last) = self.cited.last_mut() {
            last.key = Some(key);
        }
        self
    }

    /// Adds a note to the value cited last: a difference that the reader has to know.
    #[must_use]
    pub fn note(mut self, note: &'static str) -> Self {
        if let Some(last) = self.cited.last_mut() {
            last.note = Some(note);
        }
        self
    }

    /// A list that stands in the JSON only.
    #[must_use]
    pub fn list(mut self, name: &'static str, values: Value) -> Self {
        self.lists.push((name, values));
        self
    }

    /// The paper and its conditions; none where no paper measured this.
    pub fn source(&self) -> Option<&'static str> {
        (!self.source.is_empty()).then_some(self.source)
    }

    /// The values that stand beside a key of ours.
    pub fn beside_key(&self, key: &str) -> impl Iterator<Item = &Cited> {
        self.cited.iter().filter(move |cited| cited.key == Some(key))
    }

    /// The values that need a line of their own, because their key was not measured.
    pub fn alone(&self, is_measured: impl Fn(&str) -> bool) -> impl Iterator<Item = &Cited> {
        self.cited.iter().filter(move |cited| !cited.key.is_some_and(&is_measured))
    }
}

impl Serialize for Paper {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(source) = self.source() {
            map.serialize_entry("source", source)?;
        }
        for cited in &self.cited {
            map.serialize_entry(cited.name, &cited.value)?;
        }
        for (name, values) in &self.lists {
            map.serialize_entry(name, values)?;
        }
        if !self.cited.is_empty() {
            map.serialize_entry("cited", &self.cited)?;
        }
        map.end()
    }
}

impl Cited {
    /// The value with its unit and where it stands: `558 ms (Table 3.1)`.
    pub fn short(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        format!("{}{unit} ({})", words(&self.value), self.source)
    }

    /// The same with the note.
    pub fn text(&self) -> String {
        let note = self.note.map_or_else(String::new, |note| format!(": {note}"));
        format!("{}{note}", self.short())
    }
}

/// A value in words: a list by its items, an object by its names and values.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name} {}", words(value)));
            members.collect::<Vec<_>>().join(", ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => shown(value),
    }
}

#[cfg(test)]
mod tests {
    use super::Paper;
    use serde_json::json;

    fn paper() -> Paper {
        Paper::of("Somebody 2017")
            .cite("still", 558, "ms", "Table 3.1")
            .beside("still_ms")
            .note("detection included")
            .cite("others", json!({"tcp": 46.5, "udp": [1, 2]}), "Mbit/s", "Figure 3")
            .list("still_ms_all", json!([222, 558]))
    }

    #[test]
    fn the_json_has_each_name_and_the_whole_citation() {
        let object = serde_json::to_value(paper()).unwrap();
        assert_eq!((&object["source"], &object["still"]), (&json!("Somebody 2017"), &json!(558)));
        assert_eq!(object["still_ms_all"], json!([222, 558]));
        let cited = json!({"name": "still", "key": "still_ms", "value": 558, "unit": "ms",
                           "source": "Table 3.1", "note": "detection included"});
        assert_eq!(object["cited"][0], cited);
        assert_eq!(serde_json::to_value(Paper::default()).unwrap(), json!({}));
    }

    #[test]
    fn a_citation_reads_beside_its_key_or_alone() {
        let paper = paper();
        let beside: Vec<String> = paper.beside_key("still_ms").map(|one| one.text()).collect();
        assert_eq!(beside, ["558 ms (Table 3.1): detection included"]);
        assert_eq!(paper.beside_key("other").count(), 0);
        let alone: Vec<String> = paper.alone(|key| key == "still_ms").map(|c| c.text()).collect();
        assert_eq!(alone, ["tcp 46.5, udp 1, 2 Mbit/s (Figure 3)"]);
        assert_eq!(paper.alone(|_| false).count(), 2, "a key that was not measured has no line");
    }
}
