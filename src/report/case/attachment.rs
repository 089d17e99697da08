//! GitLab's attachments: a line in `system-out` that has a failing case link to a file of the job's artifacts.

use super::{Cases, Standing};

const BEGIN: &str = "[[ATTACHMENT|";
const END: &str = "]]";

/// Points every case that fails to `page`, a path from the root of the project. It is the first line, since
/// GitLab takes the first that it finds, and an engine may have printed another.
pub fn attach(cases: &mut Cases, page: &str) {
    // GitLab reads no such path.
    if page.is_empty() || page.contains(|c: char| matches!(c, '[' | ']' | '|') || c.is_control()) {
        return;
    }
    for case in cases.suites.iter_mut().flat_map(|suite| &mut suite.cases) {
        match case.standing {
            Standing::Failure(_) | Standing::Error(_) => {
                let gap = if case.output.is_empty() { "" } else { "\n" };
                case.output = format!("{BEGIN}{page}{END}{gap}{}", case.output);
            }
            Standing::Plain | Standing::Skipped(_) => {}
        }
    }
}

/// What is left of an output of which only the attachment is kept.
pub fn alone(output: &str) -> &str {
    let first = output.lines().next().unwrap_or_default();
    if first.starts_with(BEGIN) && first.ends_with(END) { first } else { "" }
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;
    use crate::report::fit::fit;
    use crate::report::fixture;

    #[test]
    fn failing_cases_alone_point_to_the_page() {
        let plain = cases(&fixture::every_verdict());
        let mut pointing = plain.clone();
        attach(&mut pointing, "tokgate-out/ci/report.html");
        let all = |cases: &Cases| -> Vec<_> {
            cases.suites.iter().flat_map(|suite| suite.cases.clone()).collect()
        };
        let mut points = 0;
        for (plain, pointing) in all(&plain).iter().zip(all(&pointing)) {
            let failing = matches!(plain.standing, Standing::Failure(_) | Standing::Error(_));
            let line = "[[ATTACHMENT|tokgate-out/ci/report.html]]";
            assert_eq!(pointing.output.lines().next() == Some(line), failing, "{}", plain.name);
            assert!(pointing.output.ends_with(&plain.output));
            points += usize::from(failing);
        }
        assert!(points > 3);
        // However much has to go, the page has the rest.
        fit(&mut pointing, 10);
        assert_eq!(all(&pointing).iter().filter(|it| it.output.starts_with(BEGIN)).count(), points);
        let mut odd = plain.clone();
        attach(&mut odd, "out[1]/report.html");
        assert_eq!(odd, plain);
    }
}
