//! What each consumer of JUnit XML picks out of a file, after its source where that is public and its documentation
//! where it is not: docs/junit.md has it as a table.

use super::xml::Element;

/// How a consumer shows a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Green.
    Passed,
    /// Red.
    Failed,
    /// Grey.
    Skipped,
}

/// A case as a consumer shows it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// What names it.
    pub name: String,
    /// Its colour.
    pub status: Status,
    /// What is seen at once; empty where a consumer has no such thing.
    pub headline: String,
    /// What is seen after a click.
    pub details: String,
    /// `file:line`, where it shows that.
    pub place: Option<String>,
    /// What it was before, where it shows that.
    pub earlier: Vec<String>,
    /// The file that it links to.
    pub attachment: Option<String>,
}

/// A consumer.
pub struct Consumer {
    /// Its name.
    pub name: &'static str,
    /// Its reading of a file.
    pub read: fn(&Element) -> Vec<Shown>,
}

/// All that are read after their sources here.
pub const ALL: [Consumer; 6] = [
    Consumer { name: "GitLab", read: gitlab },
    Consumer { name: "Jenkins junit", read: jenkins },
    Consumer { name: "Azure DevOps", read: azure },
    Consumer { name: "CircleCI", read: circleci },
    Consumer { name: "Buildkite", read: buildkite },
    Consumer { name: "EnricoMi/publish-unit-test-result-action", read: enricomi },
];

/// Each case with its suite.
fn cases(root: &Element) -> impl Iterator<Item = (&Element, &Element)> {
    assert_eq!(root.name, "testsuites");
    root.all("testsuite").flat_map(|suite| suite.all("testcase").map(move |case| (suite, case)))
}

fn status(case: &Element) -> Status {
    if case.child("failure").or(case.child("error")).is_some() {
        Status::Failed
    } else if case.child("skipped").is_some() {
        Status::Skipped
    } else {
        Status::Passed
    }
}

fn shown(name: String, case: &Element) -> Shown {
    Shown {
        name,
        status: status(case),
        headline: String::new(),
        details: String::new(),
        place: None,
        earlier: Vec::new(),
        attachment: None,
    }
}

fn place(case: &Element) -> Option<String> {
    Some(format!("{}:{}", case.attribute("file")?, case.attribute("line")?))
}

/// Values of `type` by which Rails' `Hash.from_xml` converts an element, or refuses the whole file.
const CONVERTED: [&str; 17] = [
    "array",
    "base64Binary",
    "boolean",
    "date",
    "dateTime",
    "datetime",
    "decimal",
    "double",
    "duration",
    "file",
    "float",
    "hexBinary",
    "integer",
    "null",
    "string",
    "symbol",
    "yaml",
];

/// GitLab: name and classname; the text of failure, error or skipped, and no message; of two cases of one name in a
/// suite only the first; the first attachment of `system-out`.
fn gitlab(root: &Element) -> Vec<Shown> {
    let mut seen = std::collections::HashSet::new();
    let mut all = Vec::new();
    for (suite, case) in cases(root) {
        let key = (suite.said("name"), case.said("classname"), case.said("name"));
        if !seen.insert(key) {
            continue;
        }
        let told = ["failure", "error", "skipped"].iter().find_map(|tag| case.child(tag));
        let kind = told.and_then(|it| it.attribute("type")).unwrap_or_default();
        assert!(!CONVERTED.contains(&kind), "GitLab reads `{kind}` as a type");
        let output = case.text_of("system-out");
        let attachment = output
            .split_once("[[ATTACHMENT|")
            .and_then(|(_, rest)| Some(rest.split_once("]]")?.0.to_owned()));
        all.push(Shown {
            details: told.map(|it| it.text.clone()).unwrap_or_default(),
            place: case.attribute("file").map(str::to_owned),
            attachment,
            ..shown(format!("{} {}", case.said("classname"), case.said("name")), case)
        });
    }
    all
}

/// Jenkins' junit plugin: error before failure; the message, then the text as a stack trace; of a skip its message; a
/// thousand characters of a good case's output and a hundred thousand of a bad one's; failures of flaky and rerun cases.
fn jenkins(root: &Element) -> Vec<Shown> {
    let of = |(_, case): (&Element, &Element)| {
        let told = case.child("error").or(case.child("failure"));
        let most = if told.is_some() { 100_000 } else { 1_000 };
        let output = case.text_of("system-out");
        let length = output.chars().count();
        let output = if length <= most {
            output
        } else {
            let head: String = output.chars().take(most / 2).collect();
            let tail: String = output.chars().skip(length - most / 2).collect();
            format!("{head}\n...[truncated]...\n{tail}")
        };
        let skip = case.child("skipped").map(|it| it.attribute("message").unwrap_or(&it.text));
        let again = case.all("flakyFailure").chain(case.all("rerunFailure"));
        let again = again.map(|it| format!("{}\n{}", it.said("message"), it.text_of("stackTrace")));
        Shown {
            headline: told.map_or(skip.unwrap_or_default().to_owned(), |it| it.said("message")),
            details: format!("{}\n{output}", told.map(|it| it.text.as_str()).unwrap_or_default()),
            earlier: again.collect(),
            ..shown(format!("{}.{}", case.said("classname"), case.said("name")), case)
        }
    };
    cases(root).map(of).collect()
}

/// Azure's PublishTestResults: a case without a name is dropped; the message, then the text as a stack trace; of a skip
/// its message; output of failing cases alone.
fn azure(root: &Element) -> Vec<Shown> {
    let of = |(_, case): (&Element, &Element)| {
        let name = case.attribute("name").filter(|name| !name.is_empty())?;
        let told = case.child("failure").or(case.child("error"));
        let output = told.map(|_| case.text_of("system-out")).unwrap_or_default();
        let said = told.or(case.child("skipped"));
        Some(Shown {
            headline: said.map(|it| it.said("message")).unwrap_or_default(),
            details: format!("{}\n{output}", told.map(|it| it.text.as_str()).unwrap_or_default()),
            ..shown(format!("{} {name}", case.said("classname")), case)
        })
    };
    cases(root).filter_map(of).collect()
}

/// CircleCI: name, classname, file, time, message.
fn circleci(root: &Element) -> Vec<Shown> {
    let of = |(_, case): (&Element, &Element)| {
        let told = ["failure", "error", "skipped"].iter().find_map(|tag| case.child(tag));
        Shown {
            headline: told.map(|it| it.said("message")).unwrap_or_default(),
            place: case.attribute("file").map(str::to_owned),
            ..shown(format!("{} - {}", case.said("name"), case.said("classname")), case)
        }
    };
    cases(root).map(of).collect()
}

/// Buildkite's test engine: without classname and name nothing is taken; the reason, and the text expanded.
fn buildkite(root: &Element) -> Vec<Shown> {
    let of = |(_, case): (&Element, &Element)| {
        let (scope, name) = (case.attribute("classname"), case.attribute("name"));
        let told = ["failure", "error", "skipped"].iter().find_map(|tag| case.child(tag));
        Shown {
            headline: told.map(|it| it.said("message")).unwrap_or_default(),
            details: told.map(|it| it.text.clone()).unwrap_or_default(),
            place: place(case),
            ..shown(format!("{} {}", scope.unwrap(), name.unwrap()), case)
        }
    };
    cases(root).map(of).collect()
}

/// EnricoMi's action: error before failure before skip; message, content, file and line.
fn enricomi(root: &Element) -> Vec<Shown> {
    let of = |(_, case): (&Element, &Element)| {
        let told = ["error", "failure", "skipped"].iter().find_map(|tag| case.child(tag));
        Shown {
            headline: told.map(|it| it.said("message")).unwrap_or_default(),
            details: told.map(|it| it.text.clone()).unwrap_or_default(),
            place: place(case),
            ..shown(format!("{} ► {}", case.said("classname"), case.said("name")), case)
        }
    };
    cases(root).map(of).collect()
}
