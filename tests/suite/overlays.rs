//! What is laid over a suite: files that it extends, variants, profiles, `--set` and `--url`, and who
//! wins.

use super::*;

#[test]
fn a_profile_and_set_change_work_in_that_order() {
    let files = files(&[("suite.toml", WHOLE)]);
    let smoke = files.load(LoadOptions { profile: Some("smoke".into()), ..Default::default() });
    let duration = |loaded: &Loaded| {
        let TestSetting::Decode(decode) = &loaded.suite.tests[2].kind else { panic!() };
        decode.duration.as_secs()
    };
    assert_eq!(duration(&smoke), 5);
    assert_eq!(smoke.suite.select.len(), 2);
    let set = files.load(LoadOptions {
        profile: Some("smoke".into()),
        set: vec!["test.decode.duration=7s".into(), "vars.tp=4".into(), "policy.alpha=0.02".into()],
        url: None,
    });
    assert_eq!(duration(&set), 7);
    assert_eq!(set.suite.policy.alpha, 0.02);
    assert_eq!(set.suite.settings[0].vars[2], ("tp".to_owned(), 4.into()));
    let said = set.explain.key("test.decode.duration", &set.source).unwrap();
    let said = said.replace(&files.dir.path().display().to_string(), "");
    assert_eq!(
        said,
        "test.decode.duration = 7s  # --set\n  instead of \"5s\"  # /suite.toml:117\n  instead of \"10s\"  # /suite.toml:71\n"
    );
    let smoke_said = smoke.explain.key("test.decode.duration", &smoke.source).unwrap();
    assert!(smoke_said.lines().next().unwrap().ends_with("(profile smoke)"), "{smoke_said}");
    assert_eq!(
        set.explain.key("engine.clock", &set.source).unwrap(),
        "engine.clock is not set; default: \"real\"\n"
    );
    assert_eq!(
        set.explain.key("engine.prot", &set.source).unwrap_err().help.as_deref(),
        Some("did you mean `engine.port`?")
    );
    assert_ne!(smoke.suite.hash, set.suite.hash);
}

#[test]
fn a_suite_that_extends_another_repeats_nothing() {
    let child = r#"version = 1
extends = "base/whole.toml"
[suite]
name = "on-sim"
[hardware]
where = "elsewhere"
[engine]
kind = "sim"
profile = "sim/card.toml"
clock = "virtual"
[[test]]
name = "prefill"
samples = 2
[[expect]]
name = "floors"
slack = "1%"
"#;
    let files = files(&[
        ("base/whole.toml", WHOLE),
        ("sim/card.toml", "# a profile\n"),
        ("child.toml", child),
    ]);
    let loaded = files.load(LoadOptions::default());
    let suite = &loaded.suite;
    assert_eq!(suite.name, "on-sim");
    assert!(!suite.hardware.as_ref().unwrap().here);
    let EngineSource::Sim { profile, clock } = &suite.settings[0].engine.source else { panic!() };
    assert_eq!(profile.as_deref(), Some(files.dir.path().join("sim/card.toml").as_path()));
    assert_eq!(*clock, SimClock::Virtual);
    assert!(suite.settings[0].engine.env.is_empty(), "another kind replaces the engine wholly");
    let TestSetting::Prefill { samples, .. } = suite.tests[1].kind else { panic!() };
    assert_eq!((samples, suite.tests[1].axes[0].values.len()), (2, 3));
    assert_eq!(suite.expectations.len(), 3);
    assert_eq!(suite.expectations[0].slack, 0.01);
    assert!(suite.expectations[0].place.file.ends_with("whole.toml"));
    let before = suite.hash.clone();
    std::fs::write(files.dir.path().join("sim/card.toml"), "# another\n").unwrap();
    assert_ne!(files.load(LoadOptions::default()).suite.hash, before);
}

#[test]
fn variants_settle_the_engine_and_set_reaches_them() {
    let text = format!(
        "{SMALL}[vars]\nvenv = \"/opt/new\"\n[variant.old]\nengine.version = \"0.28.0\"\nvars.venv = \"/opt/old\"\n[variant.new]\nengine.version = \"0.29.0\"\n"
    );
    let files = files(&[("suite.toml", &text)]);
    let loaded = files.load(LoadOptions {
        set: vec!["variant.new.engine.version=0.30.1".into()],
        ..Default::default()
    });
    let settled: Vec<_> = loaded
        .suite
        .settings
        .iter()
        .map(|setting| {
            let venv = setting.vars[0].1.as_str().unwrap().to_owned();
            (setting.variant.clone().unwrap(), setting.engine.version.clone().unwrap(), venv)
        })
        .collect();
    let of = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(settled, [of("old", "0.28.0", "/opt/old"), of("new", "0.30.1", "/opt/new")]);
    let said = loaded.explain.key("vars.venv", &loaded.source).unwrap();
    assert!(
        said.contains("vars.venv [old] = \"/opt/old\"") && said.contains("(variant old)"),
        "{said}"
    );
    assert!(said.contains("vars.venv [new] = \"/opt/new\""), "{said}");
}

#[test]
fn what_a_variant_replaced_is_told_of_that_variant() {
    let text = format!(
        "{SMALL}[vars]\nx = \"base\"\n[variant.old]\nvars.x = \"old\"\n[variant.new]\nengine.version = \"2\"\n\
         [profile.smoke]\nvars.x = \"smoke\"\n"
    );
    let files = files(&[("suite.toml", &text)]);
    let said = |profile: Option<&str>, set: &[&str]| {
        let loaded = files.load(LoadOptions {
            profile: profile.map(str::to_owned),
            set: set.iter().map(|&text| text.to_owned()).collect(),
            url: None,
        });
        let said = loaded.explain.key("vars.x", &loaded.source).unwrap();
        said.replace(&files.dir.path().display().to_string(), "")
    };
    assert_eq!(
        said(Some("smoke"), &[]),
        "vars.x [old] = \"smoke\"  # /suite.toml:20 (profile smoke)\n  instead of \"old\"  # /suite.toml:16\n  \
         instead of \"base\"  # /suite.toml:14\nvars.x [new] = \"smoke\"  # /suite.toml:20 (profile smoke)\n  \
         instead of \"base\"  # /suite.toml:14\n"
    );
    assert_eq!(
        said(None, &["variant.old.vars.x=set"]),
        "vars.x [old] = set  # --set (variant old)\n  instead of \"old\"  # /suite.toml:16\n  \
         instead of \"base\"  # /suite.toml:14\nvars.x [new] = \"base\"  # /suite.toml:14\n"
    );
}

#[test]
fn a_table_of_defaults_and_a_misspelled_key_are_explained() {
    let loaded = loaded(SMALL);
    let explain = |key: &str| loaded.explain.key(key, &loaded.source);
    assert_eq!(
        explain("engine.ready").unwrap(),
        "engine.ready.timeout is not set; default: \"10m\"\nengine.ready.models is not set; default: true\n\
         engine.ready.completion is not set; default: true\n"
    );
    let help = |key: &str| explain(key).unwrap_err().help.unwrap();
    assert_eq!(help("test.decode.durtion"), "did you mean `test.decode.duration`?");
}

#[test]
fn a_url_on_the_command_line_stands_in_for_the_command() {
    let files = files(&[("suite.toml", WHOLE)]);
    let loaded =
        files.load(LoadOptions { url: Some("http://box:8000/v1/".into()), ..Default::default() });
    let EngineSource::Url(url) = &loaded.suite.settings[0].engine.source else { panic!() };
    assert_eq!(url, "http://box:8000");
    assert_eq!(loaded.warnings, [], "what the suite says of its own start is not blamed");
    let said = files.refused(LoadOptions { url: Some("https://box".into()), ..Default::default() });
    assert!(said.contains("[--url:1:1]"), "{said}");
}

const COMPARED: &str = r#"version = 1
[suite]
name = "card"
[engine]
kind = "sim"
[variant.old]
vars.x = 1
[variant.new]
vars.x = 2
[[test]]
kind = "decode"
[compare]
baseline = "old"
candidate = "new"
min-mean-ratio = 0.99
[baseline]
file = "b.jsonl"
[[expect]]
metric = "output-throughput"
min-ratio = 0.97
[profile.long]
compare.pairs = 12
test.decode.duration = "60s"
"#;

#[test]
fn a_profile_and_set_change_how_many_pairs_there_are_and_no_bound() {
    let files = files(&[("suite.toml", COMPARED)]);
    let compare = |profile: Option<&str>, set: &[&str]| {
        let set = set.iter().map(|text| (*text).to_owned()).collect();
        let loaded = files.load(LoadOptions { profile: profile.map(Into::into), set, url: None });
        loaded.suite.compare.unwrap()
    };
    let plain = compare(None, &[]);
    assert_eq!((plain.baseline, plain.candidate, plain.pairs), (0, 1, defaults::PAIRS));
    assert_eq!(plain.min_mean_ratio.as_ref().unwrap().0, 0.99);
    let long = compare(Some("long"), &[]);
    assert_eq!((long.pairs, long.min_mean_ratio), (12, plain.min_mean_ratio));
    assert_eq!(compare(Some("long"), &["compare.pairs=6"]).pairs, 6);
}

#[test]
fn a_ratio_names_a_file_a_revision_or_a_variant() {
    let reference = |against: &str| {
        let text = COMPARED.replace("min-ratio = 0.97", &format!("min-ratio = 0.97\n{against}"));
        let suite = suite(&text.replace("[profile.long]", "[profile.long.vars]\n[profile.other]"));
        let Limits::Ratio { against, .. } = &suite.expectations[0].bounds[0].1 else { panic!() };
        match &against.reference {
            Reference::File(file) => file.file_name().unwrap().to_string_lossy().into_owned(),
            Reference::Git { revision, file } => {
                format!("{revision}:{}", file.file_name().unwrap().to_string_lossy())
            }
            Reference::Variant(index) => format!("variant {index}"),
        }
    };
    assert_eq!(reference(""), "variant 0", "the baseline of [compare]");
    assert_eq!(reference("against = { variant = \"new\" }"), "variant 1");
    assert_eq!(reference("against = { file = \"c.jsonl\" }"), "c.jsonl");
    assert_eq!(reference("against = { git = \"v0.29\" }"), "v0.29:b.jsonl");
    let both = "against = { git = \"origin/main\", file = \"c.jsonl\" }";
    assert_eq!(reference(both), "origin/main:c.jsonl");
}

#[test]
fn launches_have_no_effect_on_variants_that_are_compared() {
    let with =
        |text: &str| loaded(&text.replace("kind = \"decode\"", "kind = \"decode\"\nlaunches = 3"));
    let codes = |loaded: &Loaded| loaded.warnings.iter().map(|it| it.code).collect::<Vec<_>>();
    let two = with(COMPARED);
    assert_eq!(codes(&two), ["no-effect"]);
    assert_eq!(two.suite.tests[0].launches, 3);
    // A third one is launched so often.
    let third = COMPARED.replace("[[test]]", "[variant.third]\nvars.x = 3\n[[test]]");
    assert_eq!(codes(&with(&third)), [""; 0]);
}
