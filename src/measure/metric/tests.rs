//! Names read back, and refusals.

use super::*;

#[test]
fn every_name_reads_back_as_itself() {
    for entry in CATALOGUE {
        let name =
            if entry.latency { format!("{}.p99", entry.name) } else { entry.name.to_owned() };
        assert_eq!(name.parse::<Metric>().unwrap().to_string(), name);
        assert_eq!(entry.base.entry(), entry);
    }
    assert_eq!(
        "output-throughput-per-gpu".parse::<Metric>().unwrap().to_string(),
        "output-throughput-per-gpu"
    );
}

#[test]
fn a_metric_of_a_command_test_needs_no_suite_to_be_read_back() {
    for (unit, spelled) in [("%", "exact_match{higher,%}"), ("", "exact_match{higher}")] {
        let metric = Metric::from(UserMetric::new("exact_match", unit, Higher));
        let text = serde_json::to_value(metric).unwrap();
        assert_eq!(text, spelled);
        assert_eq!(serde_json::from_value::<Metric>(text.clone()).unwrap(), metric);
        assert_eq!(serde_json::from_value::<Base>(text).unwrap(), metric.base);
        assert_eq!(metric.to_string(), "exact_match");
        assert_eq!(metric.base.entry().unit, unit);
    }
    assert!(serde_json::from_value::<Metric>("exact_match".into()).is_err());
    assert!(serde_json::from_value::<Metric>("exact_match{sideways}".into()).is_err());
}

#[test]
fn refusals_say_what_to_write() {
    let help = |text: &str| text.parse::<Metric>().unwrap_err().help;
    assert_eq!(help("ttft"), "write \"ttft.p50\"; suffixes are p50, p90, p95, p99, mean and max");
    assert_eq!(help("output-througput"), "did you mean \"output-throughput\"?");
    assert_eq!(help("kv-capacity-per-gpu"), "write \"kv-capacity\"");
}

#[test]
fn a_dot_may_be_part_of_a_name() {
    for name in ["power.mean", "gpu-memory.max"] {
        let metric: Metric = name.parse().unwrap();
        assert_eq!((metric.to_string().as_str(), metric.stat), (name, None));
        assert_eq!(serde_json::to_value(metric.base).unwrap(), name);
        let refused = format!("{name}.p50").parse::<Metric>().unwrap_err();
        assert_eq!(refused.message, format!("`{name}` takes no suffix"));
        assert_eq!(refused.help, format!("write \"{name}\""));
    }
    let help = |text: &str| text.parse::<Metric>().unwrap_err().help;
    for text in ["power", "power.p50", "power.mean-per-gpu", "power-mean"] {
        assert_eq!(help(text), "did you mean \"power.mean\"?", "{text}");
    }
    assert_eq!(help("gpu-memory"), "did you mean \"gpu-memory.max\"?");
    assert_eq!(help("joules-per-tok"), "did you mean \"joules-per-token\"?");
}
