//! The matrix by example: what plans come of suites.

mod property;
mod serve;
mod tool;
mod wild;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::sample::{self, Sample, selector};
use super::*;
use crate::judge::Side;
use crate::suite::model::{AxisValue, CommandForm, EngineSource, GridLimit, SimClock};

fn plan(sample: &Sample) -> Plan {
    expand(Arc::new(sample.suite()), &Selection::default()).unwrap()
}

fn selected(sample: &Sample, alternatives: &[&str], skip: &[&str]) -> Plan {
    try_selected(sample, alternatives, skip).unwrap()
}

fn try_selected(
    sample: &Sample,
    alternatives: &[&str],
    skip: &[&str],
) -> Result<Plan, Vec<Trouble>> {
    let read = |texts: &[&str]| texts.iter().map(|text| selector(text)).collect();
    let selection = Selection { alternatives: read(alternatives), skip: read(skip) };
    expand(Arc::new(sample.suite()), &selection)
}

fn ids(plan: &Plan) -> Vec<String> {
    plan.cells.iter().map(|cell| plan.cell_id(cell)).collect()
}

fn launches(plan: &Plan) -> Vec<&str> {
    plan.launches.iter().map(|launch| launch.name.as_str()).collect()
}

fn argv(plan: &Plan, launch: usize) -> Vec<String> {
    plan.preview(launch).unwrap().command.unwrap().argv
}

/// Code, line and message of each trouble.
fn troubles(sample: &Sample) -> Vec<String> {
    told(expand(Arc::new(sample.suite()), &Selection::default()).unwrap_err())
}

fn told(troubles: Vec<Trouble>) -> Vec<String> {
    troubles
        .into_iter()
        .map(|trouble| {
            let place = trouble.place.map_or_else(String::new, |place| format!(" {place}"));
            let help = trouble.help.map_or_else(String::new, |help| format!(" -> {help}"));
            format!("[{}]{place}: {}{help}", trouble.code, trouble.message)
        })
        .collect()
}

fn runtime() -> Runtime {
    Runtime {
        port: 4711,
        secrets: vec![("api_key".to_owned(), "sk-12345678".to_owned())],
        run_id: "r1".to_owned(),
        run_dir: PathBuf::from("/out/run"),
        out_dir: PathBuf::from("/out"),
        session: 0,
        round: 0,
        launch_ordinal: 0,
        executable: PathBuf::from("/bin/tokgate"),
        seed: 7,
    }
}

fn page() -> Sample {
    Sample::new("serve --port {{ port }}")
        .test(
            sample::decode("decode")
                .axis(sample::tokens("context", &[16384, 8192]))
                .axis(sample::counts("concurrency", &[4, 1])),
        )
        .test(sample::prefill("prefill").axis(sample::tokens("context", &[16384, 8192])))
        .test(sample::startup("startup"))
}

#[test]
fn a_launch_runs_startup_then_prefill_before_decode_by_context_and_concurrency() {
    let plan = plan(&page());
    let expected = [
        ("suite.startup", "startup"),
        ("suite.prefill", "context=8K"),
        ("suite.prefill", "context=16K"),
        ("suite.decode", "context=8K,concurrency=1"),
        ("suite.decode", "context=8K,concurrency=4"),
        ("suite.decode", "context=16K,concurrency=1"),
        ("suite.decode", "context=16K,concurrency=4"),
    ];
    let found: Vec<_> =
        plan.cells.iter().map(|cell| (plan.classname(cell), plan.cell_id(cell))).collect();
    assert_eq!(found, expected.map(|(class, id)| (class.to_owned(), id.to_owned())));
    assert_eq!(launches(&plan), ["engine"]);
    assert_eq!(plan.launches[0].cells, 0..7);
    let last = &plan.cells[6];
    assert_eq!((plan.context_tokens(last), plan.concurrency(last)), (16384, 4));
    assert_eq!(plan.axis(last, "context"), Some(&AxisValue::Tokens(16384)));
    assert_eq!(plan.axis(last, "layout"), None);
}

#[test]
fn cells_share_a_launch_when_its_templates_render_alike() {
    let sample = |line: &str| {
        Sample::new(line)
            .test(
                sample::decode("decode")
                    .axis(sample::counts("concurrency", &[1, 4, 16]))
                    .axis(sample::tables("layout", &[("tp8", 8), ("dp8", 1)])),
            )
            .test(
                sample::prefill("prefill")
                    .axis(sample::tables("layout", &[("dp8", 1), ("tp8", 8)])),
            )
    };
    assert_eq!(launches(&plan(&sample("serve"))), ["engine"]);
    let by_layout = plan(&sample("serve --tp {{ axis.layout.tp }} --port {{ port }}"));
    assert_eq!(launches(&by_layout), ["layout=tp8", "layout=dp8"]);
    assert_eq!(argv(&by_layout, 0), ["serve", "--tp", "8", "--port", "{port}"]);
    assert_eq!(by_layout.launches[1].cells, 4..8);
    // The prefill test comes first in its launch, although its axis has the other order.
    assert_eq!(by_layout.classname(&by_layout.cells[4]), "suite.prefill");
    let max = plan(&sample("serve --parallel {{ matrix.concurrency | max }}"));
    assert_eq!(launches(&max), ["engine"]);
    assert_eq!(argv(&max, 0), ["serve", "--parallel", "16"]);
    // Different values that render alike make one launch.
    let alike = Sample::new("serve {% if axis.n > 2 %}--big{% endif %}")
        .test(sample::decode("decode").axis(sample::counts("n", &[1, 2, 3])));
    assert_eq!(launches(&plan(&alike)), ["n=1+2", "n=3"]);
}

#[test]
fn variables_lead_to_the_axes_that_they_use() {
    let sample = Sample::new("serve {{ vars.args }}")
        .var("size", json!("{{ axis.layout.tp }}x"))
        .var("args", json!(["--size", "{{ vars.size }}"]))
        .var("unused", json!("{{ axis.nothing }}"))
        .test(sample::decode("decode").axis(sample::tables("layout", &[("a", 8), ("b", 1)])));
    let plan = plan(&sample);
    assert_eq!(launches(&plan), ["layout=a", "layout=b"]);
    assert_eq!(argv(&plan, 1), ["serve", "--size", "1x"]);
}

#[test]
fn env_files_and_variants_make_launches_too() {
    let base = || {
        Sample::new("serve {{ vars.variant | default('') }}")
            .test(sample::decode("decode").axis(sample::words("mode", &["a", "b"])))
    };
    assert_eq!(launches(&plan(&base().env("M", "{{ axis.mode }}"))), ["mode=a", "mode=b"]);
    assert_eq!(launches(&plan(&base().file("c.yaml", "m: {{ axis.mode }}"))), ["mode=a", "mode=b"]);
    assert_eq!(launches(&plan(&base().variants(&["old", "new"]))), ["old", "new"]);
    let both = plan(&base().env("M", "{{ axis.mode }}").variants(&["old", "new"]));
    assert_eq!(launches(&both), ["old.mode=a", "old.mode=b", "new.mode=a", "new.mode=b"]);
    assert_eq!(both.classname(&both.cells[3]), "suite.new.decode");
}

#[test]
fn a_rerun_of_one_cell_starts_the_same_engine() {
    let sample = Sample::new("serve --n {{ matrix.concurrency | join(',') }} --q {{ axis.q }}")
        .test(
            sample::decode("decode")
                .axis(sample::counts("concurrency", &[1, 4]))
                .axis(sample::words("q", &["f16", "q8"])),
        );
    let whole = plan(&sample);
    let one = selected(&sample, &["concurrency=4 q=q8"], &[]);
    assert_eq!(ids(&one), ["concurrency=4,q=q8"]);
    assert_eq!(launches(&one), ["q=q8"]);
    assert_eq!(argv(&one, 0), argv(&whole, 1));
    assert_ne!(one.hash, whole.hash);
    assert_eq!(one.engine_seed(0, &runtime()), whole.engine_seed(1, &runtime()));
}

#[test]
fn selection_narrows_what_the_profile_selects() {
    let sample = page().select("test=decode").select("test=prefill context=8K");
    assert_eq!(plan(&sample).cells.len(), 5);
    let some = selected(&sample, &["context=..8K", "concurrency=4"], &["context=8K concurrency=1"]);
    assert_eq!(ids(&some), ["context=8K", "context=8K,concurrency=4", "context=16K,concurrency=4"]);
    // Nothing left is the caller's business.
    let none = selected(&sample, &["context=1M.."], &[]);
    assert_eq!((none.cells.len(), none.launches.len()), (0, 0));
}

#[test]
fn the_command_line_may_not_name_what_is_not_there() {
    let refused = |text: &str| told(try_selected(&page(), &[text], &[]).unwrap_err());
    let all = [
        "context=9K",
        "contxt=8K",
        "test=decod",
        "variant=old",
        "test=prefill concurrency=4",
        "test=startup context=8K",
    ]
    .map(|text| format!("{text}\n  {}", refused(text).join("\n  ")));
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn all_matching_bounds_hold_and_over_exempts() {
    let sample = page()
        .floor("decode", "output-throughput", 100.0, 0.05, "")
        .ceiling("decode", "ttft.p50", 300.0, "context=8K")
        .except("concurrency=4")
        .grid(
            "decode",
            ("context", Some("concurrency")),
            &[
                ("8K", Some("1"), GridLimit::Value(50.0)),
                ("8K", Some("4"), GridLimit::None),
                ("16K", Some("1"), GridLimit::Value(40.0)),
                ("16K", Some("4"), GridLimit::Over),
            ],
        )
        .grid("decode", ("context", None), &[("16K", None, GridLimit::Value(7.0))])
        .quarantine("context=16K concurrency=1");
    let plan = plan(&sample);
    let shown: Vec<String> = plan
        .cells
        .iter()
        .map(|cell| {
            let bounds: Vec<String> = plan
                .bounds(cell)
                .iter()
                .map(|bound| {
                    let limit =
                        bound.bound.map_or("over".to_owned(), |b| format!("{:.1}", b.limit));
                    format!("{}:{limit}@{}", bound.metric, bound.place.line)
                })
                .collect();
            let quarantined = if plan.quarantine(cell).is_some() { " quarantined" } else { "" };
            format!("{} {}{quarantined}", plan.cell_id(cell), bounds.join(" "))
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
    let bound = plan.bounds(&plan.cells[3])[0].bound.unwrap();
    assert_eq!((bound.side, bound.target, bound.limit), (Side::Min, 100.0, 95.0));
}

#[test]
fn grids_may_go_by_variant() {
    let sample = page().variants(&["old", "new"]).grid(
        "decode",
        ("variant", Some("context")),
        &[("old", Some("8K"), GridLimit::Value(1.0)), ("new", Some("16K"), GridLimit::Value(2.0))],
    );
    let plan = plan(&sample);
    let bound: Vec<String> = plan
        .cells
        .iter()
        .filter(|cell| !plan.bounds(cell).is_empty())
        .map(|cell| format!("{} {}", plan.classname(cell), plan.cell_id(cell)))
        .collect();
    assert_eq!(
        bound,
        [
            "suite.old.decode context=8K,concurrency=1",
            "suite.old.decode context=8K,concurrency=4",
            "suite.new.decode context=16K,concurrency=1",
            "suite.new.decode context=16K,concurrency=4",
        ]
    );
}

#[test]
fn whatever_matches_no_cell_is_told() {
    let decode = || {
        sample::decode("decode")
            .axis(sample::tokens("context", &[8192, 16384]))
            .axis(sample::counts("concurrency", &[1, 4]))
    };
    let suite = Sample::new("serve {{ port }}")
        .test(decode().exclude("context=32K").exclude("concurrency=..4 context=16K"))
        .test(sample::prefill("gone").axis(sample::words("q", &["a"])).exclude("q=a"))
        .floor("decode", "output-throughput", 1.0, 0.0, "context=16K")
        .floor("decode", "output-throughput", 1.0, 0.0, "contxt=8K")
        .floor("decode", "output-throughput", 1.0, 0.0, "context=8K")
        .except("context=8K")
        .floor("decode", "per-request-throughput", 1.0, 0.0, "")
        .except("concurrency=64..")
        .grid(
            "decode",
            ("context", Some("concurrency")),
            &[
                ("8K", Some("1"), GridLimit::Value(1.0)),
                ("8K", Some("2"), GridLimit::Value(1.0)),
                ("9K", Some("1"), GridLimit::Value(1.0)),
                ("9K", Some("4"), GridLimit::Value(1.0)),
                ("16K", Some("1"), GridLimit::Value(1.0)),
                ("16K", Some("4"), GridLimit::None),
            ],
        )
        .grid("decode", ("layout", None), &[("a", None, GridLimit::Value(1.0))])
        .quarantine("test=decoed")
        .quarantine("context=8K layout=tp8")
        .select("concurrency=8..");
    insta::assert_snapshot!(troubles(&suite).join("\n"));
}

#[test]
fn the_same_bound_twice_is_told() {
    let twice = page()
        .floor("decode", "output-throughput", 1.0, 0.0, "context=8K concurrency=1")
        .floor("decode", "output-throughput", 2.0, 0.0, "concurrency=1 context=8192")
        .floor("decode", "output-throughput", 2.0, 0.0, "context=8K")
        .ceiling("decode", "ttft.p50", 2.0, "context=8K")
        .ceiling("decode", "ttft.p99", 2.0, "context=8K");
    assert_eq!(
        troubles(&twice),
        [
            "[same-bound] s.toml:101: min of `output-throughput` is given twice -> the first stands at \
         s.toml:100: keep one of them"
        ]
    );
    let entry = |row, limit| (row, None, GridLimit::Value(limit));
    let grids = page().grid("decode", ("context", None), &[entry("8K", 1.0)]).grid(
        "decode",
        ("context", None),
        &[entry("16K", 1.0), entry("8K", 2.0)],
    );
    assert_eq!(
        troubles(&grids),
        [
            "[same-bound] s.toml:201: min of `output-throughput` at row 8K is given twice -> the first \
         stands at s.toml:200: keep one of them"
        ]
    );
}

#[test]
fn every_template_error_is_told_once() {
    let suite = Sample::new(
        "serve {{ port }} {{ axis.layout }} {{ model.nam }} {{ cell.dir }} {{ launch.id }} &",
    )
    .model("m")
    .env("A", "{{ axis.q }}")
    .env("B", "{{ vars.first }}")
    .var("first", json!("{{ vars.second }}"))
    .var("second", json!("x"))
    .setup("fetch {{ axis.layout }}")
    .stop("stop {{ env.TOKGATE_TEST_NOT_SET }}")
    .file("../x", "{{ vars.secnd }}")
    .test(
        sample::decode("decode")
            .axis(sample::tables("layout", &[("a", 8)]))
            .axis(sample::words("q", &["x"]))
            .header("x-tenant", "{{ vars.second }}{{ secret.key }}")
            .body("user", json!({ "deep": ["{{ axis.q }}", "{{ axis.p }}"] })),
    )
    .test(sample::prefill("prefill").axis(sample::tables("layout", &[("a", 8)])));
    let mut all = troubles(&suite);
    // Vars are rendered before all else: with them right, the others come to light.
    let mended = Sample::new("serve {{ port }} {{ axis.layout }} {{ cell.dir }}")
        .model("m")
        .env("A", "{{ axis.q }}")
        .stop("stop {{ env.TOKGATE_TEST_NOT_SET }}")
        .file("../x", "{{ launch.id }}")
        .test(sample::decode("decode").axis(sample::tables("layout", &[("a", 8)])));
    all.push(String::new());
    all.extend(troubles(&mended));
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_launch_is_specified_with_the_values_of_the_run() {
    let sample = Sample::new(
        "serve {{ model.name }} --port {{ port }} --key {{ secret.api_key }} --c {{ launch.dir }}/e.yaml",
    )
    .model("m x")
    .secret("api_key")
    .env("RUN", "{{ run.id }} {{ launch.id }} {{ run.dir }} {{ tokgate.path }}")
    .file("e.yaml", "port: {{ port }}\nurl: http://{{ host }}:{{ port }}\n")
    .setup("fetch {{ model.name }} {{ suite.dir }}")
    .stop("docker rm -f tokgate-{{ run.id }}")
    .test(
        sample::decode("decode")
            .axis(sample::counts("concurrency", &[1, 2]))
            .header("X-Tenant", "perf-{{ axis.concurrency }}")
            .body("extra", json!({ "n": 1, "dir": ["{{ cell.dir }}"] })),
    );
    let plan = plan(&sample);
    let spec = plan.launch_spec(0, &runtime()).unwrap();
    let argv = spec.command.unwrap().argv;
    assert_eq!(argv[1..6], ["m x", "--port", "4711", "--key", "sk-12345678"]);
    assert_eq!(argv[7], "/out/engine-engine/e.yaml");
    assert_eq!(spec.env, [("RUN".to_owned(), "r1 r1-0-0 /out/run /bin/tokgate".to_owned())]);
    assert_eq!(spec.files[0].1, "port: 4711\nurl: http://127.0.0.1:4711\n");
    assert_eq!(spec.log, PathBuf::from("/out/engine-engine.log"));
    assert_eq!((spec.url.as_str(), spec.port), ("http://127.0.0.1:4711", 4711));
    assert_eq!(spec.metrics_urls, ["http://127.0.0.1:4711/metrics"]);
    assert_eq!(spec.stop.command.unwrap().argv[3], "tokgate-r1");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let key = pair("authorization", "Bearer sk-12345678");
    assert_eq!(spec.headers, [pair("x-tenant", "perf-1"), key.clone()]);
    let request = plan.request(&plan.cells[1], &runtime()).unwrap();
    assert_eq!(request.headers, [pair("x-tenant", "perf-2"), key]);
    let dir = "/out/cells/engine-engine/decode.concurrency=2";
    assert_eq!(
        serde_json::Value::Object(request.body),
        json!({ "extra": { "n": 1, "dir": [dir] } })
    );
    assert_eq!(plan.setup(&runtime()).unwrap()[0].argv, ["fetch", "m x", "suites"]);
    let again = Runtime { launch_ordinal: 1, ..runtime() };
    let second = plan.launch_spec(0, &again).unwrap();
    assert_eq!(second.log, PathBuf::from("/out/engine-engine-2.log"));
    assert!(second.env[0].1.starts_with("r1 r1-0-1 "));
    assert_eq!(plan.launches.len(), 1, "an id of a launch parts no cells");
    assert_eq!(plan.preview(0).unwrap().command.unwrap().argv[5], "<redacted:api_key>");
    let unset = Runtime { secrets: Vec::new(), ..runtime() };
    let resumed = plan.launch_spec(0, &Runtime { session: 2, ..again }).unwrap();
    assert!(resumed.log.ends_with("engine-engine-resumed2-2.log"), "{}", resumed.log.display());
    let error = plan.launch_spec(0, &unset).unwrap_err();
    assert_eq!(error.message, "engine.command: `secret.api_key` is not known");
}

#[test]
fn running_engines_and_the_simulated_one_need_no_command() {
    let base = || Sample::new("x").model("m").test(sample::decode("decode"));
    let url = plan(&base().url("http://gpu-box:9000/v1/")).launch_spec(0, &runtime()).unwrap();
    assert_eq!(
        (url.url.as_str(), url.host.as_str(), url.port),
        ("http://gpu-box:9000", "gpu-box", 9000)
    );
    assert_eq!(url.metrics_urls, ["http://gpu-box:9000/metrics"]);
    assert!(url.command.is_none());
    assert_eq!(troubles(&base().url("gpu-box:9000")).len(), 1);

    let real = plan(&base().sim(SimClock::Real));
    let seed = real.engine_seed(0, &runtime()).to_string();
    assert_eq!(
        real.launch_spec(0, &runtime()).unwrap().command.unwrap().argv,
        [
            "/bin/tokgate",
            "sim",
            "--profile",
            "sim/p.toml",
            "--host",
            "127.0.0.1",
            "--port",
            "4711",
            "--model",
            "m",
            "--seed",
            &seed,
        ]
    );
    let again = Runtime { launch_ordinal: 1, ..runtime() };
    assert_ne!(real.engine_seed(0, &again).to_string(), seed);
    let resumed = Runtime { session: 1, ..runtime() };
    assert_ne!(real.engine_seed(0, &resumed).to_string(), seed);
    let in_process = plan(&base().sim(SimClock::Virtual));
    assert!(in_process.launch_spec(0, &runtime()).unwrap().command.is_none());
}

#[test]
fn ports_can_be_reckoned_with_and_shells_get_one_word() {
    let reckoned = Sample::new("serve {{ port + 1 }}").test(sample::decode("decode"));
    let plan_reckoned = plan(&reckoned);
    assert_eq!(plan_reckoned.launch_spec(0, &runtime()).unwrap().command.unwrap().argv[1], "4712");
    let shell = Sample::new("A=1 serve {{ model.name }} > log").model("a b").shell();
    let argv = argv(&plan(&shell.test(sample::decode("decode"))), 0);
    assert_eq!(argv, ["/bin/sh", "-c", "A=1 serve 'a b' > log"]);
    let words = Sample::new("").model("a b").test(sample::decode("decode")).setting(|setting| {
        if let EngineSource::Command(command) = &mut setting.engine.source {
            command.form = CommandForm::Words(vec!["serve".into(), "{{ model.name }}".into()]);
        }
    });
    assert_eq!(self::argv(&plan(&words), 0), ["serve", "a b"]);
}

#[test]
fn a_matrix_beyond_reason_is_refused() {
    let long: Vec<i64> = (0..1000).collect();
    let test = sample::decode("decode")
        .axis(sample::counts("concurrency", &long))
        .axis(sample::counts("a", &long))
        .axis(sample::counts("b", &long));
    let told = troubles(&Sample::new("serve").test(test));
    assert!(told[0].starts_with("[too-many-cells]: the matrix has 1000000000 cells"), "{told:?}");
}

#[test]
fn fifty_thousand_cells_are_expanded_and_found_again() {
    let ns: Vec<i64> = (1..=40).collect();
    let contexts: Vec<u64> = (1..=40).map(|n| n * 1024).collect();
    let rows: Vec<String> = (1..=40).map(|n| format!("{n}K")).collect();
    let columns: Vec<String> = (1..=40).map(|n| n.to_string()).collect();
    let entries: Vec<(&str, Option<&str>, GridLimit)> = rows
        .iter()
        .flat_map(|row| columns.iter().map(move |c| (row.as_str(), Some(c.as_str()))))
        .map(|(row, column)| (row, column, GridLimit::Value(1.0)))
        .collect();
    let sample = Sample::new("serve --a {{ axis.a }} --port {{ port }}")
        .test(
            sample::decode("decode")
                .axis(sample::tokens("context", &contexts))
                .axis(sample::counts("concurrency", &ns))
                .axis(sample::counts("a", &ns[..32])),
        )
        .grid("decode", ("context", Some("concurrency")), &entries);
    let plan = plan(&sample);
    assert_eq!((plan.cells.len(), plan.launches.len()), (40 * 40 * 32, 32));
    assert!(plan.cells.iter().all(|cell| plan.bounds(cell).len() == 1));
    let ids: HashSet<String> = ids(&plan).into_iter().collect();
    assert_eq!(ids.len(), plan.cells.len());
}
