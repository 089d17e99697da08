//! Tools of command tests by example: what they are told, and where they write.

use std::path::PathBuf;

use super::*;

const LINE: &str = "lm_eval --url {{ url }}/v1 --at {{ host }}:{{ port }} -m {{ model.name }} \
    --streams {{ axis.concurrency }} {{ axis.mode.flags }} --key {{ secret.api_key }} -o '{{ cell.dir }}/out.json'";

fn example(result: &str) -> Sample {
    let mut mode = sample::tables("mode", &[("fast", 1)]);
    if let AxisValue::Table { fields, .. } = &mut mode.values[0] {
        fields.insert("flags".to_owned(), json!(["--a b", "--c"]));
    }
    Sample::new("serve --port {{ port }}")
        .model("org/model")
        .secret("api_key")
        .env("CACHE", "{{ launch.dir }}/c")
        .test(
            sample::tool("eval", LINE, result)
                .axis(sample::counts("concurrency", &[16]))
                .axis(mode),
        )
}

#[test]
fn a_tool_is_told_where_the_engine_answers_and_where_to_write() {
    let plan = plan(&example("out.json"));
    let spec = plan.command_spec(&plan.cells[0], &runtime(), 0).unwrap().unwrap();
    let dir = "/out/cells/engine-engine/eval.concurrency=16,mode=fast";
    let out = format!("{dir}/out.json");
    let expected = [
        "lm_eval",
        "--url",
        "http://127.0.0.1:4711/v1",
        "--at",
        "127.0.0.1:4711",
        "-m",
        "org/model",
        "--streams",
        "16",
        "--a b",
        "--c",
        "--key",
        "sk-12345678",
        "-o",
        &out,
    ];
    assert_eq!(spec.argv, expected);
    assert_eq!((spec.dir, spec.result), (PathBuf::from(dir), PathBuf::from(&out)));
    assert_eq!(spec.env, [("CACHE".to_owned(), "/out/engine-engine/c".to_owned())]);
    assert_eq!(spec.timeout.as_secs(), 3600);
}

#[test]
fn each_repeat_and_each_start_of_the_engine_has_a_directory_of_its_own() {
    let plan = plan(&example("{{ axis.mode.id }}/out.json"));
    let result = |ordinal, repeat| {
        let runtime = Runtime { launch_ordinal: ordinal, ..runtime() };
        plan.command_spec(&plan.cells[0], &runtime, repeat).unwrap().unwrap().result
    };
    let cell = "eval.concurrency=16,mode=fast";
    let below = |dir: &str| PathBuf::from(format!("/out/cells/{dir}/fast/out.json"));
    assert_eq!(result(0, 0), below(&format!("engine-engine/{cell}")));
    assert_eq!(result(0, 2), below(&format!("engine-engine/{cell}-3")));
    assert_eq!(result(1, 0), below(&format!("engine-engine-2/{cell}")));
}

#[test]
fn a_result_may_be_written_with_its_directory_and_a_running_engine_has_its_own_address() {
    let sample = example("{{ cell.dir }}/out.json").url("http://gpu-7:9000/v1/");
    let plan = plan(&sample);
    let spec = plan.command_spec(&plan.cells[0], &runtime(), 0).unwrap().unwrap();
    assert_eq!(spec.argv[2..5], ["http://gpu-7:9000/v1", "--at", "gpu-7:9000"]);
    assert!(spec.result.ends_with("eval.concurrency=16,mode=fast/out.json"));
    assert_eq!(spec.result.parent(), Some(spec.dir.as_path()));
}

#[test]
fn the_other_kinds_run_no_tool() {
    let plan = plan(&page());
    assert!(plan.cells.iter().all(|cell| plan.command_spec(cell, &runtime(), 0) == Ok(None)));
}

#[test]
fn what_a_tool_can_not_be_told_is_said_before_the_run() {
    let sample = Sample::new("serve").test(
        sample::tool("eval", "tool {{ axis.nothing }} > out.json", "{{ cell.id }}.json")
            .axis(sample::counts("concurrency", &[1, 2])),
    );
    let said = troubles(&sample);
    let starts = |start: &str| said.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(starts("[template] s.toml:3: command: `axis.nothing` is not known"), 1, "{said:#?}");
    assert_eq!(starts("[template] s.toml:20: result: `cell.id` is not known"), 1, "{said:#?}");
    assert_eq!(starts("[pasted-habit] s.toml:3: command: the redirection `>`"), 1, "{said:#?}");
}

#[test]
fn a_tool_may_reckon_with_the_port() {
    let plan = plan(&Sample::new("serve").test(sample::tool("eval", "tool {{ port + 1 }}", "o")));
    let spec = plan.command_spec(&plan.cells[0], &runtime(), 0).unwrap().unwrap();
    assert_eq!(spec.argv, ["tool", "4712"]);
}
