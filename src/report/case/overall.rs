//! The mean ratio as a JUnit case, in a suite of its own: no launch holds both variants.

use crate::judge::Verdict;
use crate::record::RunRecord;
use crate::report::count::inconclusive_fails;
use crate::report::message;
use crate::report::overall::{self, Overall};
use crate::report::sanitise::{cut, line};

use super::{
    Case, MOST_FAILED, MOST_PLAIN, Note, Standing, Suite, clean_place, plain, verdict_name,
};

/// The suite of the mean ratio; none where nothing is compared.
pub(super) fn suite(record: &RunRecord) -> Option<Suite> {
    let overall = overall::of(record)?;
    let header = &record.header;
    let name = overall.classname(record);
    Some(Suite {
        name: name.clone(),
        started: line(&header.started),
        hostname: line(&header.machine.hostname),
        properties: vec![
            ("tokgate.version".to_owned(), line(&header.tokgate)),
            ("run.id".to_owned(), line(&header.run_id)),
            ("plan.hash".to_owned(), line(&header.plan_hash)),
            ("policy.alpha".to_owned(), header.policy.alpha.to_string()),
        ],
        cases: vec![case(record, &overall, name)],
    })
}

fn case(record: &RunRecord, overall: &Overall<'_>, classname: String) -> Case {
    let (compare, outcome, judgement) = (overall.compare, overall.outcome, overall.judgement());
    let said = overall.said();
    let class = judgement.class.as_deref();
    let place = clean_place(&compare.place);
    let mut pairs: Vec<String> = Vec::new();
    for (at, (order, ratio)) in (1..).zip(overall.pairs()) {
        pairs.push(format!("pair {at}, {} first: {ratio:.4}", line(compare.first(order))));
    }
    let warnings: Vec<String> =
        judgement.warnings.iter().map(|text| format!("warning: {}", line(text))).collect();
    let note = |kind: &str| {
        let mut rest = warnings.clone();
        rest.extend(pairs.iter().cloned());
        rest.push(format!("at {place}"));
        rest.push(format!("rerun: {}", message::rerun_all(record)));
        Note::new(kind, said.clone(), &rest, MOST_FAILED)
    };
    let (standing, first) = match judgement.verdict {
        Verdict::Fail => (Standing::Failure(note(class.unwrap_or("limit"))), None),
        Verdict::Error => (Standing::Error(note(class.unwrap_or("error"))), None),
        Verdict::Inconclusive
            if inconclusive_fails(record.header.policy.inconclusive, judgement) =>
        {
            (Standing::Failure(note("inconclusive")), None)
        }
        Verdict::Inconclusive => (Standing::Plain, Some(format!("inconclusive: {said}"))),
        Verdict::Pass | Verdict::Measured | Verdict::Xpass | Verdict::Skip | Verdict::Xfail => {
            (Standing::Plain, Some(said.clone()))
        }
    };
    let mut properties = vec![
        ("verdict".to_owned(), verdict_name(judgement.verdict).to_owned()),
        ("compare.baseline".to_owned(), line(&compare.baseline)),
        ("compare.candidate".to_owned(), line(&compare.candidate)),
        ("compare.pairs".to_owned(), compare.pairs.to_string()),
        ("compare.cells".to_owned(), outcome.cells.to_string()),
    ];
    properties.extend(compare.min_mean_ratio.map(|least| ("limit".to_owned(), plain(least))));
    if let Some(estimate) = outcome.estimate {
        let bounds =
            [(".lower", estimate.lower), ("", Some(estimate.value)), (".upper", estimate.upper)];
        for (suffix, value) in bounds {
            properties.extend(value.map(|value| (format!("ratio.mean{suffix}"), plain(value))));
        }
    }
    properties.extend(outcome.sees.map(|sees| ("sees.mean".to_owned(), plain(sees))));
    let mut output: Vec<String> = first.into_iter().collect();
    if matches!(standing, Standing::Plain) {
        output.extend(warnings);
    }
    output.extend(pairs);
    Case {
        classname,
        name: overall::NAME.to_owned(),
        // It takes no time of its own.
        millis: 0,
        place,
        standing,
        earlier: Vec::new(),
        properties,
        output: cut(&output.join("\n"), MOST_PLAIN / 2),
    }
}
