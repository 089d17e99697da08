//! An engine that compiles when a shape is new.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use super::{decode, measured, samples, sound, suite};
use crate::toy::Toy;

#[test]
fn the_first_request_of_each_shape_enters_no_figure() {
    const COMPILING: Duration = Duration::from_secs(1);
    let compiled = Mutex::new(HashSet::new());
    let toy = Toy::start(move |asked| {
        let mut stream = asked.stream();
        let shape = (asked.prompt().len(), asked.max_tokens());
        if compiled.lock().unwrap().insert(shape) {
            stream.first = COMPILING;
        }
        stream.acts()
    });
    let test = format!(
        "[[test]]\nkind = \"prefill\"\nmatrix.context = [64, 128]\n{}{}",
        decode("matrix.context = [256, 512]"),
        decode("name = \"cold\"\nprefix = \"cold\"\nmatrix.context = [1024]")
    );
    let ran = suite(&toy, "vllm", "", &test).run(&[]).exits(0);
    for cell in 0..5 {
        let found = measured(&ran, cell);
        sound(&found);
        let longest = samples(&found, "ttft").into_iter().fold(0.0, f64::max);
        assert!(longest < COMPILING.as_secs_f64() * 500.0, "{longest} ms in cell {cell}");
    }
    for cell in 2..5 {
        let gaps = samples(&measured(&ran, cell), "chunk-gap");
        assert!(gaps.iter().all(|gap| *gap < COMPILING.as_secs_f64() * 500.0));
    }
}
