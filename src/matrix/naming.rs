//! Names of launches: the axis values that tell them apart, safe in file names.

use std::collections::BTreeSet;

/// A launch as far as its name goes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traits {
    /// Its variant.
    pub(crate) variant: Option<String>,
    /// Values by axis, of the axes that its templates use, in canonical spelling.
    pub(crate) values: Vec<(String, Vec<String>)>,
}

impl Traits {
    /// Adds a value of an axis.
    pub(crate) fn add(&mut self, axis: &str, value: String) {
        match self.values.iter_mut().find(|(name, _)| name == axis) {
            Some((_, values)) => {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            None => self.values.push((axis.to_owned(), vec![value])),
        }
    }

    fn of(&self, axis: &str) -> &[String] {
        self.values.iter().find(|(name, _)| name == axis).map_or(&[], |(_, values)| values)
    }
}

/// The place of an axis in ids: the known ones first, then by name.
fn rank(axis: &str) -> (usize, &str) {
    const KNOWN: [&str; 5] = ["context", "input", "output", "concurrency", "request_rate"];
    (KNOWN.iter().position(|known| *known == axis).unwrap_or(KNOWN.len()), axis)
}

/// A name for each launch: the variant where there are several, and those axis values that not all
/// launches share, such as `old.layout=tp8,quant=fp8`; `engine` where nothing tells them apart. No
/// two are alike, not even but for case.
pub(crate) fn names(launches: &[Traits]) -> Vec<String> {
    let variants: BTreeSet<Option<&str>> =
        launches.iter().map(|launch| launch.variant.as_deref()).collect();
    let axes: BTreeSet<(usize, &str)> = launches
        .iter()
        .flat_map(|launch| launch.values.iter().map(|(axis, _)| rank(axis)))
        .collect();
    let telling: Vec<&str> = axes
        .into_iter()
        .map(|(_, axis)| axis)
        .filter(|axis| launches.windows(2).any(|pair| pair[0].of(axis) != pair[1].of(axis)))
        .collect();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    launches
        .iter()
        .map(|launch| {
            let parts: Vec<String> = telling
                .iter()
                .filter(|axis| !launch.of(axis).is_empty())
                .map(|axis| format!("{axis}={}", abridged(launch.of(axis))))
                .collect();
            let variant = launch.variant.clone().filter(|_| variants.len() > 1);
            let words: Vec<String> =
                variant.into_iter().chain([parts.join(",")]).filter(|w| !w.is_empty()).collect();
            let name = if words.is_empty() { "engine".to_owned() } else { safe(&words.join(".")) };
            let mut unique = name.clone();
            let mut number = 2;
            while !taken.insert(unique.to_lowercase()) {
                unique = format!("{name}-{number}");
                number += 1;
            }
            unique
        })
        .collect()
}

/// Several values of one axis that lead to the same engine.
fn abridged(values: &[String]) -> String {
    match values {
        [] => String::new(),
        [first, _, _, _, ..] => format!("{first}+{}", values.len() - 1),
        few => few.join("+"),
    }
}

/// A text as a file name: what could trouble a file system becomes `_`, and it is not too long.
pub(crate) fn safe(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._=,+-".contains(c) { c } else { '_' };
    let name: String = text.chars().map(plain).take(120).collect();
    if name.starts_with('.') || name.is_empty() { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variant: Option<&str>, values: &[(&str, &[&str])]) -> Traits {
        let mut traits = Traits { variant: variant.map(str::to_owned), values: Vec::new() };
        for (axis, values) in values {
            values.iter().for_each(|value| traits.add(axis, (*value).to_owned()));
        }
        traits
    }

    #[test]
    fn a_launch_is_named_by_what_tells_it_apart() {
        assert_eq!(names(&[launch(None, &[("layout", &["tp8"])])]), ["engine"]);
        assert_eq!(
            names(&[
                launch(None, &[("layout", &["tp8"]), ("q", &["f16"])]),
                launch(None, &[("layout", &["dp8"]), ("q", &["f16"])]),
            ]),
            ["layout=tp8", "layout=dp8"]
        );
        assert_eq!(names(&[launch(Some("old"), &[]), launch(Some("new"), &[])]), ["old", "new"]);
        assert_eq!(
            names(&[
                launch(Some("old"), &[("a", &["1", "2"]), ("context", &["8K"])]),
                launch(Some("new"), &[("a", &["3"]), ("context", &["16K"])]),
            ]),
            ["old.context=8K,a=1+2", "new.context=16K,a=3"]
        );
    }

    #[test]
    fn names_are_safe_and_no_two_alike() {
        let one = launch(None, &[("m", &["org/a b"])]);
        let two = launch(None, &[("m", &["org_a_b"])]);
        let three = launch(None, &[("m", &["ORG/a_b"])]);
        assert_eq!(names(&[one, two, three]), ["m=org_a_b", "m=org_a_b-2", "m=ORG_a_b-3"]);
        assert_eq!(safe("../x"), "_.._x");
        assert!(safe(&"x".repeat(500)).len() <= 121);
    }
}
