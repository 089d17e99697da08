//! Public configurations, respelled: their engines start with exactly the arguments of the sources.

use serde_json::json;

use super::*;

/// The suite of a file as far as launches go: engine, model, vars, variants, axes of its tests.
fn launches_of(text: &str) -> Sample {
    let environment = [
        ("HF_HOME", "/hf cache"),
        ("VLLM_IMAGE", "vllm/vllm-openai:nightly"),
        ("HOME", "/home/me"),
        ("GATEWAY_URL", "http://gateway/v1"),
        ("POD_0", "pod-0"),
        ("POD_1", "pod-1"),
    ];
    // Tests can't set variables, so the values take the place of the names.
    let text = environment.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{{ env.{name} }}}}"), &format!("{{{{ '{value}' }}}}"))
    });
    let file: toml::Table = text.parse().unwrap();
    let engine = file["engine"].as_table().unwrap();
    let word = |value: &toml::Value| value.as_str().unwrap().to_owned();
    let mut sample = match engine.get("url") {
        Some(url) => Sample::new("").url(url.as_str().unwrap()),
        None => Sample::new(engine["command"].as_str().unwrap()),
    };
    sample = sample.model(file["model"]["name"].as_str().unwrap()).setting(|setting| {
        setting.engine.kind = serde_json::from_value(json!(engine["kind"].as_str())).unwrap();
        setting.engine.gpus = engine.get("gpus").map(|n| n.as_integer().unwrap() as u32);
        setting.engine.metrics_url = engine
            .get("metrics-url")
            .map(|urls| urls.as_array().unwrap().iter().map(word).collect());
    });
    let none = toml::Table::new();
    let table = |name: &str| file.get(name).and_then(toml::Value::as_table).unwrap_or(&none);
    for (name, value) in table("vars") {
        sample = sample.var(name, serde_json::to_value(value).unwrap());
    }
    let variants: Vec<&str> = table("variant").keys().map(String::as_str).collect();
    if !variants.is_empty() {
        sample = sample.variants(&variants).setting(|setting| {
            let own = &table("variant")[setting.variant.as_ref().unwrap()];
            if let Some(name) = own.get("model").map(|model| &model["name"]) {
                setting.model.name = Some(word(name));
            }
            for (name, value) in own.get("vars").and_then(toml::Value::as_table).unwrap_or(&none) {
                let var = setting.vars.iter_mut().find(|(var, _)| var == name).unwrap();
                var.1 = serde_json::to_value(value).unwrap();
            }
        });
    }
    for (index, test) in file["test"].as_array().unwrap().iter().enumerate() {
        let mut made = sample::decode(&format!("test-{index}"));
        let own = test.get("matrix").and_then(toml::Value::as_table).unwrap_or(&none);
        let of_all = table("matrix");
        let of_all = of_all.iter().filter(|(name, _)| !own.contains_key(name.as_str()));
        for (name, values) in of_all.chain(own) {
            // Only axes of tables and words matter to these commands, and `concurrency` to one.
            let Some(values) = values.as_array() else { continue };
            let axis_value = |value: &toml::Value| match value {
                toml::Value::Table(fields) => {
                    let mut fields: serde_json::Map<_, _> =
                        serde_json::to_value(fields).unwrap().as_object().unwrap().clone();
                    let id = fields.remove("id").unwrap().as_str().unwrap().to_owned();
                    AxisValue::Table { id, fields }
                }
                toml::Value::Integer(n) => AxisValue::Integer(*n),
                toml::Value::String(text) => AxisValue::Text(text.clone()),
                toml::Value::Float(_)
                | toml::Value::Boolean(_)
                | toml::Value::Datetime(_)
                | toml::Value::Array(_) => unreachable!("no such axis in these files"),
            };
            let mut axis = sample::words(name, &[]);
            axis.values = values.iter().map(axis_value).collect();
            made = made.axis(axis);
        }
        sample = sample.test(made);
    }
    sample
}

#[test]
fn public_suites_start_exactly_the_engines_of_their_sources() {
    let mut shown = String::new();
    for text in [
        include_str!("../../../tests/wild/01-perf-eval-gpt-oss-120b-h200.toml"),
        include_str!("../../../tests/wild/02-vllm-ci-serving-tests.toml"),
        include_str!("../../../tests/wild/03-inferencex-dsv4-h200-slurm.toml"),
        include_str!("../../../tests/wild/04-sglang-ci-1gpu.toml"),
        include_str!("../../../tests/wild/05-llama-cpp-server-bench.toml"),
        include_str!("../../../tests/wild/06-llm-d-gateway-rate-ladder.toml"),
    ] {
        let plan = plan(&launches_of(text));
        for (index, launch) in plan.launches.iter().enumerate() {
            let spec = plan.preview(index).unwrap();
            shown += &format!("{}: {} {:?}\n", launch.name, spec.url, spec.metrics_urls);
            for word in spec.command.map(|command| command.argv).unwrap_or_default() {
                shown += &format!("  {word}\n");
            }
        }
    }
    insta::assert_snapshot!(shown);
}
