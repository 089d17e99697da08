//! Templates by example.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn context() -> Context {
    let environment: Lookup = Arc::new(|name| (name == "HOME").then(|| "/home/me".to_owned()));
    Context::new()
        .with_json("model", &json!({ "name": "org/my model" }))
        .with_json(
            "vars",
            &json!({
                "extra": ["--reasoning-parser", "in kling"],
                "none": [],
                "flag": true,
                "size": "1024K",
                "share": 0.9,
                "quote": "it's \"so\"",
                "nothing": null,
                "table": { "tp": 8, "dp": 1 },
            }),
        )
        .with_json("matrix", &json!({ "concurrency": [1, 8, 128, 16] }))
        .with("port", Value::from(8000))
        .with_environment_of(environment)
}

fn line(template: &str) -> Vec<String> {
    render_line(template, &context()).unwrap()
}

#[test]
fn a_value_is_one_argument_whatever_the_author_quoted() {
    assert_eq!(line("serve {{ model.name }}"), ["serve", "org/my model"]);
    assert_eq!(line("serve '{{ model.name }}'"), ["serve", "org/my model"]);
    assert_eq!(line("serve \"{{ vars.quote }}\""), ["serve", "it's \"so\""]);
    assert_eq!(line("serve '{{ vars.quote }}'"), ["serve", "it's \"so\""]);
    assert_eq!(line("serve --name={{ model.name }}-x"), ["serve", "--name=org/my model-x"]);
    assert_eq!(
        line(r#"serve --config '{"model":"{{ model.name }}","mode":0}'"#),
        ["serve", "--config", r#"{"model":"org/my model","mode":0}"#]
    );
}

#[test]
fn a_list_is_a_whole_word_and_becomes_that_many() {
    assert_eq!(
        line("serve {{ vars.extra }} end"),
        ["serve", "--reasoning-parser", "in kling", "end"]
    );
    assert_eq!(line("serve {{ vars.none }} end"), ["serve", "end"]);
    let error = render_line("serve --x={{ vars.extra }}", &context()).unwrap_err();
    assert_eq!(error.message, "a list must be a whole word of the command");
    assert_eq!(error.span, Some(13..23));
    let words = ["serve".to_owned(), "{{ vars.extra }}".to_owned(), "a b".to_owned()];
    assert_eq!(
        render_words(&words, &context()).unwrap(),
        ["serve", "--reasoning-parser", "in kling", "a b"]
    );
}

#[test]
fn branches_blocks_and_filters_work_in_commands() {
    assert_eq!(
        line("s {% if vars.flag %}--a {{ port }}{% endif %} {{ '--b' if not vars.flag }}"),
        ["s", "--a", "8000"]
    );
    assert_eq!(
        line("s {{ vars.size | tokens }} {{ matrix.concurrency | max }} {{ vars.flag }}"),
        ["s", "1048576", "128", "true"]
    );
    assert_eq!(line("s {% set x %}a {{ model.name }}{% endset %}{{ x }}"), ["s", "a org/my model"]);
    assert_eq!(
        line("s {{ vars.share }} {{ env.HOME }}/m # a comment\n b"),
        ["s", "0.9", "/home/me/m", "b"]
    );
}

#[test]
fn text_is_raw() {
    let template = "name: \"{{ vars.quote }}\" {{ vars.flag }} <{{ model.name }}>\n";
    let rendered = render_text(template, &context()).unwrap();
    assert_eq!(rendered, "name: \"it's \"so\"\" true <org/my model>\n");
}

#[test]
fn what_has_no_text_is_an_error() {
    for (template, message) in [
        ("{{ vars.nothing }}", "the value is none, which has no text"),
        ("{{ vars.table }}", "a table has no text"),
        ("{{ vars.extra }}", "a list has no text here"),
        ("{{ vars.sice }}", "`vars.sice` is not known"),
        ("{{ modle.name }}", "`modle.name` is not known"),
        ("{{ env.NOT_SET }}", "the environment variable NOT_SET is not set"),
        ("{{ 'x' ~ vars.what }}", "`vars.what` is not known"),
        ("{{ vars.what + 1 }}", "`vars.what` is not known"),
        ("{{ vars.what | tokens }}", "`vars.what` is not known"),
        ("{{ '8k' | tokens }}", "`8k` has two readings as a token count"),
        ("{{ port | nofilter }}", "filter nofilter is unknown"),
    ] {
        let error = render_text(template, &context()).unwrap_err();
        assert_eq!(error.message, message, "{template}");
        assert!(error.span.is_some(), "{template}");
    }
    let help = |template: &str| render_text(template, &context()).unwrap_err().help.unwrap();
    assert_eq!(help("{{ vars.sice }}"), "did you mean `vars.size`?");
    assert_eq!(help("{{ modle.name }}"), "did you mean `model`?");
    assert_eq!(help("{{ model.revision }}"), "known are `model.name`");
    assert_eq!(help("{{ vars.table }}"), "name one of its values: dp, tp");
}

#[test]
fn a_default_stands_in_for_what_is_not_set() {
    let rendered = render_text("{{ env.NOT_SET | default('x') }}", &context());
    assert_eq!(rendered.unwrap(), "x");
}

#[test]
fn absent_names_say_why() {
    let context = context().without("cell", "an engine is shared by cells");
    let error = render_text("{{ cell.dir }}", &context).unwrap_err();
    assert_eq!(error.message, "`cell.dir` is not known here");
    assert_eq!(error.help.as_deref(), Some("an engine is shared by cells"));
}

#[test]
fn a_broken_template_says_where() {
    let error = render_line("serve {{ model.name", &context()).unwrap_err();
    assert!(error.message.starts_with("the template can't be read"), "{error}");
    let error = render_line("serve 'a b", &context()).unwrap_err();
    assert_eq!((error.message.as_str(), error.span), ("a quote is not closed", Some(6..7)));
    assert!(render_line("  ", &context()).unwrap_err().message.contains("empty"));
}

#[test]
fn a_shell_gets_quoted_values_and_none_inside_quotes() {
    let shell = |template: &str| render_shell(template, &context());
    assert_eq!(
        shell("A=1 serve {{ model.name }} {{ vars.extra }} > log").unwrap(),
        "A=1 serve 'org/my model' --reasoning-parser 'in kling' > log"
    );
    assert_eq!(shell("echo {{ vars.quote }}").unwrap(), r#"echo 'it'\''s "so"'"#);
    for (template, place) in [
        ("echo '{{ port }}'", "inside quotes"),
        ("echo \"a $({{ port }})\"", "inside quotes"),
        ("echo `x {{ port }}`", "inside backquotes"),
        ("echo \\{{ port }}", "behind a backslash"),
        ("echo a # {{ port }}", "in a comment"),
        ("echo a;# {{ port }}", "in a comment"),
        ("cat <<EOF\n{{ port }}\nEOF", "in a here-document"),
    ] {
        let error = shell(template).unwrap_err();
        assert!(error.message.contains(place), "{template}: {error}");
    }
    assert!(shell("echo x{{ vars.extra }}").is_err());
}

#[test]
fn names_are_dotted_and_without_what_the_template_sets() {
    let found = names(
        "{{ axis.layout.tp }} {% for i in range(vars.n) %}{{ i }}{% endfor %}{% set x = port %}{{ x }}",
    );
    let expected = ["axis.layout.tp", "port", "vars.n"];
    assert_eq!(found.unwrap().iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn pasted_habits_are_recognised() {
    let said = |template: &str| {
        let found = pasted_habits(template);
        assert_eq!(found.len(), 1, "{template}: {found:?}");
        let error = &found[0];
        let span = error.span.clone().unwrap();
        format!("{} [{}] -> {}", error.message, &template[span], error.help.as_deref().unwrap())
    };
    let all = [
        "A_B=1 C='x y' vllm serve {{ model.name }}",
        "export HF_HOME=/data\nvllm serve x",
        "vllm serve x &",
        "vllm serve x 2>&1",
        "vllm serve x >log",
        "vllm serve x | tee",
        "cd /x && vllm serve",
        "\"$HOME/bin/vllm\" serve",
        "${VENV}/bin/vllm serve",
        "vllm serve $(pick)",
        "vllm serve ~/model",
        "docker run --rm -d --gpus all image serve",
        "docker run -it image serve",
        "docker ps --format '{{.Names}}'",
    ]
    .map(said);
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn what_only_looks_like_a_habit_is_left_alone() {
    for template in [
        "env A=1 vllm serve --x A=1",
        "vllm serve --c '{\"a\":\"$x\"}' --url http://h/?a=1&b=2 \\$HOME",
        "pip install vllm>=0.29",
        "vllm {% if vars.x > 2 and vars.y %}--a{% endif %} {{ a | b('>') }}",
        "docker run --rm --name x --gpus all {{ env.IMAGE }} -t 8 -d cpu",
        "bash -c 'exec vllm serve $0 > log 2>&1'",
        "vllm serve # | a comment & more $X",
        "docker ps --format '{% raw %}{{.Names}}{% endraw %}'",
    ] {
        assert_eq!(pasted_habits(template), [], "{template}");
    }
    assert_eq!(pasted_habits_in_shell("A=1 vllm serve $X > log 2>&1 | tee log"), []);
    assert_eq!(pasted_habits_in_shell("vllm serve &").len(), 1);
    let words = ["docker", "run", "-d", "image"].map(str::to_owned);
    assert_eq!(pasted_habits_in_words(&words).len(), 1);
}

proptest! {
    /// Whatever a value holds and however the author quoted it, the argument count stays.
    #[test]
    fn no_value_adds_an_argument(value in any::<String>(), quote in 0usize..3) {
        prop_assume!(!value.contains('\0'));
        let context = Context::new().with("x", Value::from(value.as_str()));
        let template = ["a {{ x }} b", "a '{{ x }}' b", "a \"{{ x }}\" b"][quote];
        prop_assert_eq!(render_line(template, &context).unwrap(), ["a", &value, "b"]);
    }

    /// A real shell reads back exactly the value that was quoted for it.
    #[test]
    fn a_shell_line_splits_back_into_its_values(value in any::<String>()) {
        prop_assume!(!value.contains('\0'));
        let context = Context::new().with("x", Value::from(value.as_str()));
        let shell = render_shell("a {{ x }} b", &context).unwrap();
        prop_assert_eq!(shell_words::split(&shell).unwrap(), ["a", &value, "b"]);
    }
}
