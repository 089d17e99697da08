//! `[policy]` and `[[quarantine]]`.

use jiff::civil::Date;

use super::Checker;
use super::filter::Scope;
use crate::suite::defaults;
use crate::suite::file::{
    At, DateText, DurationText, File, PolicyTable, QuarantineTable, TimeLimitText,
};
use crate::suite::model::{Policy, Quarantine, Test, TimeLimit};
use crate::suite::problem::Problem;

impl Checker<'_> {
    pub(super) fn policy(&mut self, table: Option<&At<PolicyTable>>) -> Policy {
        let empty = PolicyTable::default();
        let policy = table.map_or(&empty, |table| &table.value);
        let alpha = policy.alpha.as_ref().map_or(defaults::ALPHA, |at| {
            if at.value > 0.0 && at.value < 0.5 {
                return at.value;
            }
            self.say(
                Problem::at(
                    "number-range",
                    at.span.clone(),
                    format!("alpha = {} is not a level to judge at", at.value),
                )
                .help("write a number between 0 and 0.5, like 0.05"),
            );
            defaults::ALPHA
        });
        Policy {
            alpha,
            inconclusive: policy.inconclusive.as_ref().map(|at| at.value).unwrap_or_default(),
            hardware_fault: policy.hardware_fault.as_ref().map(|at| at.value).unwrap_or_default(),
            unjudged: policy.unjudged.as_ref().map(|at| at.value).unwrap_or_default(),
            max_error_rate: self.percent(policy.max_error_rate.as_ref(), 1.0).unwrap_or(0.0),
            max_client_lag: self.duration(policy.max_client_lag.as_ref(), defaults::MAX_CLIENT_LAG),
            restarts: policy.restarts.as_ref().map_or(defaults::RESTARTS, |at| at.value),
            time_limit: policy.time_limit.as_ref().and_then(|at| self.time_limit(at)),
        }
    }

    fn time_limit(&mut self, at: &At<TimeLimitText>) -> Option<TimeLimit> {
        if at.value.0 == "auto" {
            return Some(TimeLimit::Auto);
        }
        let typed = At { value: DurationText(at.value.0.clone()), span: at.span.clone() };
        let limit = self.duration(Some(&typed), std::time::Duration::ZERO);
        Some(limit).filter(|limit| !limit.is_zero()).map(TimeLimit::After)
    }

    pub(super) fn quarantines(
        &mut self,
        file: &File,
        tests: &[Test],
        variants: &[String],
    ) -> Vec<Quarantine> {
        (file.quarantine.iter())
            .filter_map(|table| self.quarantine(table, tests, variants))
            .collect()
    }

    fn quarantine(
        &mut self,
        table: &At<QuarantineTable>,
        tests: &[Test],
        variants: &[String],
    ) -> Option<Quarantine> {
        let quarantine = &table.value;
        for (key, there, example) in [
            ("where", quarantine.filter.is_some(), "{ test = \"decode\", context = \"512K\" }"),
            ("reason", quarantine.reason.is_some(), "\"page fault storm\""),
            ("expires", quarantine.expires.is_some(), "2027-06-30"),
        ] {
            if !there {
                self.missing(
                    key,
                    table.span.clone(),
                    &format!("`[[quarantine]]` has no `{key}`"),
                    &format!("write `{key} = {example}`"),
                );
            }
        }
        if let Some(reason) = quarantine.reason.as_ref().filter(|at| at.value.trim().is_empty()) {
            self.say(
                Problem::at("missing-key", reason.span.clone(), "a quarantine without a reason")
                    .help("say what is known of the failure, like \"page fault storm\""),
            );
        }
        let max_loss = self.percent(quarantine.max_loss.as_ref(), 1.0);
        let expires = quarantine.expires.as_ref().map(|at| self.date(at));
        let scope = Scope { tests, of: (0..tests.len()).collect(), variants, no_test: None };
        let filter = quarantine.filter.as_ref().map(|table| self.filter(table, scope));
        Some(Quarantine {
            filter: filter??,
            reason: quarantine.reason.as_ref()?.value.clone(),
            issue: quarantine.issue.as_ref().map(|at| at.value.clone()),
            expires: expires??,
            max_loss,
            place: self.place(&table.span),
            span: table.span.clone(),
        })
    }

    fn date(&mut self, at: &At<DateText>) -> Option<Date> {
        let text = at.value.text.trim();
        let date = text.parse::<Date>().ok().filter(|_| text.len() == 10);
        match (date, at.value.quoted) {
            (Some(date), false) => Some(date),
            (Some(date), true) => {
                self.say(
                    Problem::at("date", at.span.clone(), "a date stands without quotes")
                        .help(format!("write `expires = {date}`")),
                );
                None
            }
            (None, _) => {
                let day = text.get(..10).and_then(|day| day.parse::<Date>().ok());
                let example = day.map_or_else(|| "2027-06-30".to_owned(), |day| day.to_string());
                self.say(
                    Problem::at("date", at.span.clone(), format!("`{text}` is not a day")).help(
                        format!("write the last day on which it holds, like `expires = {example}`"),
                    ),
                );
                None
            }
        }
    }
}
