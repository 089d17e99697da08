//! The Prometheus text format, and OpenMetrics as far as it is alike: bytes in, samples out.
//!
//! Reading never fails: a line that is no sample (comments, `# EOF`, junk) is passed over. What a
//! sample means is decided in `metrics`.

/// One sample of the text format.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The name, as written.
    pub name: String,
    /// Labels in order of writing.
    pub labels: Vec<(String, String)>,
    /// The value; may be NaN or infinite.
    pub value: f64,
}

impl Sample {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Every line that is a sample, in order. What is no UTF-8 is replaced.
pub fn parse(text: &[u8]) -> Vec<Sample> {
    String::from_utf8_lossy(text).lines().filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let behind = rest.trim_start();
    let (labels, rest) = match behind.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        // Without labels a blank ends the name; anything else makes it another name.
        None if behind.len() < rest.len() => (Vec::new(), behind),
        None => return None,
    };
    // What may follow the value, a time stamp or an exemplar, is not asked for.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Labels behind the opening brace, and what follows the closing one.
fn labels(text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((found, behind));
        }
        let (name, behind) = rest.split_once('=')?;
        let mut chars = behind.trim_start().strip_prefix('"')?.char_indices();
        let quoted = chars.as_str();
        let mut value = String::new();
        let after = loop {
            match chars.next()? {
                (at, '"') => break &quoted[at + 1..],
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        found.push((name.trim().to_owned(), value));
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(text: &str) -> Vec<f64> {
        parse(text.as_bytes()).into_iter().map(|sample| sample.value).collect()
    }

    #[test]
    fn labels_may_hold_anything() {
        let samples = parse(br#"m{a="x\"y\\z\n}",b = "1,2", } 1e3 1700000000 # {x="y"} 1"#);
        assert_eq!(samples.len(), 1);
        assert_eq!(samples[0].label("a"), Some("x\"y\\z\n}"));
        assert_eq!(samples[0].label("b"), Some("1,2"));
        assert_eq!(samples[0].value, 1000.0);
        assert_eq!(values("m {a=\"b\"} 3"), [3.0]);
    }

    #[test]
    fn numbers_are_those_of_the_format() {
        assert_eq!(
            values("m 1.0\nm +Inf\nm -Inf\nm 2e+06\nm .5\nm -3"),
            [1.0, f64::INFINITY, f64::NEG_INFINITY, 2e6, 0.5, -3.0]
        );
        assert!(values("m NaN")[0].is_nan());
        assert_eq!(values("m 4\r\nm\t5"), [4.0, 5.0]);
    }

    #[test]
    fn what_is_no_sample_is_passed_over() {
        let junk = "# HELP x y\n# TYPE m nonsense\n# UNIT m seconds\n\nno value\nm{a=\"open 1\n1 2\nm{} nope\nm\nm.5 3\n\
                    m-5 3\n<html>\n# EOF\n";
        assert_eq!(parse(junk.as_bytes()), []);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = parse(&text);
        }

        #[test]
        fn what_is_written_is_read_back(
            name in "[a-z_:][a-z0-9_:]{0,10}",
            label in "[a-z]{1,5}",
            value in "\\PC{0,12}",
            number in -1e12f64..1e12,
        ) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
            let line = format!("{name}{{{label}=\"{escaped}\"}} {number}");
            let samples = parse(line.as_bytes());
            prop_assert_eq!(samples, vec![Sample { name, labels: vec![(label, value)], value: number }]);
        }
    }
}
