//! The engine's log on its way through the supervisor.

use crate::harness::{Project, Ran};

fn engine(script: &str) -> Project {
    let project = Project::with(
        "version = 1\n[suite]\nname = \"log\"\n[secrets]\nkey = { generate = true }\n[engine]\n\
         kind = \"vllm\"\ncommand = [\"bash\", \"engine.sh\", \"{{ port }}\"]\nstop.grace = \"1s\"\n\
         ready.timeout = \"60s\"\n[[test]]\nkind = \"prefill\"\n",
    );
    project.file("engine.sh", &script.replace("$tokgate", env!("CARGO_BIN_EXE_tokgate")));
    project
}

fn tail(ran: &Ran) -> Vec<String> {
    let record = ran.record();
    let lines = record["launches"][0]["failure"]["log-tail"].as_array().unwrap();
    lines.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_last_words_of_an_engine_are_told_though_others_hold_its_pipe() {
    // They end in a character that no spelling of a generated secret begins with: what may become
    // one is held back for as long as somebody may go on printing.
    for _ in 0..3 {
        let script = "( trap '' TERM; sleep 20 ) & ( sleep 20 ) &\n\
                      for i in $(seq 2000); do echo line $i; done; printf 'half a line …'; exit 3";
        let ran = engine(script).run(&[]).exits(30);
        let tail = tail(&ran);
        assert_eq!(tail[tail.len() - 2..], ["line 2000", "half a line …"], "{tail:?}");
    }
}

#[test]
fn a_log_without_end_keeps_beginning_and_end_and_blocks_nobody() {
    let ran = engine(
        "echo first words; head -c 90000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo last words\n\
         exec $tokgate sim --port \"$1\"",
    )
    .run(&[])
    .exits(0);
    let log = std::fs::read(ran.out.join("engine-engine.log")).unwrap();
    assert!(log.len() < 64 << 20, "{}", log.len());
    assert!(log.starts_with(b"first words\nxxx"));
    let text = String::from_utf8_lossy(&log);
    assert_eq!(text.matches("bytes left out: the log grew too long").count(), 1);
    assert!(text.contains("\nlast words\n"));
}
