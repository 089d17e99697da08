//! A prefix cache that answers instead of the engine, or does not where it should.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{checks, decode, faulty, measured, sound, suite, told_everywhere};
use crate::harness::Ran;
use crate::toy::{Asked, Toy};

const BLOCK: usize = 16;

/// A cache of whole blocks with the counters that vLLM has. As vLLM does by default, the engine says nothing
/// of it in an answer.
#[derive(Default)]
struct Cache {
    known: HashSet<Vec<u64>>,
    queries: usize,
    hits: usize,
    /// Prompts that are never found again.
    forgets: bool,
}

impl Cache {
    /// Whether most of the prompt was known.
    fn look_up(&mut self, prompt: &[u64]) -> bool {
        let blocks: Vec<&[u64]> =
            (1..=prompt.len() / BLOCK).map(|n| &prompt[..n * BLOCK]).collect();
        let hits = blocks.iter().take_while(|block| self.known.contains(**block)).count() * BLOCK;
        if !self.forgets {
            self.known.extend(blocks.into_iter().map(<[u64]>::to_vec));
        }
        self.queries += prompt.len();
        self.hits += hits;
        hits * 2 > prompt.len()
    }

    fn page(&self) -> String {
        format!(
            "vllm:num_requests_running 0.0\nvllm:prefix_cache_queries_total {}\n\
             vllm:prefix_cache_hits_total {}\n",
            self.queries, self.hits
        )
    }
}

/// An engine that is ten times as fast on prompts that it knows.
fn engine(forgets: bool) -> Toy {
    let cache = Arc::new(Mutex::new(Cache { forgets, ..Cache::default() }));
    let answering = Arc::clone(&cache);
    Toy::with(
        move |asked: &Asked| {
            let known = answering.lock().unwrap().look_up(&asked.prompt());
            let mut stream = asked.stream();
            stream.first = Duration::from_millis(if known { 2 } else { 20 });
            stream.acts()
        },
        // All streams run as far as anybody can tell: nothing is said of them.
        move || Some(cache.lock().unwrap().page().replace("vllm:num_requests_running 0.0\n", "")),
        None,
    )
}

const PREFILL: &str =
    "[[test]]\nkind = \"prefill\"\nsamples = 2\nmatrix.context = [256, 512, 1024]\n";

fn cache_faults(ran: &Ran, cells: usize) -> Vec<bool> {
    let invalid = |cell| checks(&measured(ran, cell), "cache-state");
    (0..cells).map(|cell| invalid(cell).iter().any(|(fault, _)| fault == "invalid")).collect()
}

#[test]
fn no_measured_prompt_was_seen_before_in_whatever_cell_or_run() {
    for request in ["", "api = \"chat\""] {
        let toy = engine(false);
        let cold = decode("prefix = \"cold\"\nmatrix.context = [256, 512]");
        let project = suite(&toy, "vllm", request, &format!("{PREFILL}{cold}"));
        for _ in 0..2 {
            let ran = project.run(&[]).exits(0);
            (0..5).for_each(|cell| sound(&measured(&ran, cell)));
            let said = checks(&measured(&ran, 0), "cache-state");
            assert!(said.iter().any(|(_, words)| words.starts_with("0 % of the")), "{said:?}");
        }
    }
}

#[test]
fn a_run_that_repeats_the_prompts_of_another_measures_the_cache_and_says_so() {
    let toy = engine(false);
    let project = suite(&toy, "vllm", "", PREFILL);
    project.run(&["--seed", "7"]).exits(0);
    let ran = project.run(&["--seed", "7"]).exits(31);
    assert_eq!(cache_faults(&ran, 3), [true; 3]);
    let words = faulty(&measured(&ran, 2), "cache-state", "invalid");
    assert!(words.contains("by the engine's counters, which was to be cold"), "{words}");
    told_everywhere(&ran, &words);
}

#[test]
fn variants_on_one_server_do_not_serve_each_other() {
    let toy = engine(false);
    let variants = "[variant.old]\nvars.x = 1\n[variant.new]\nvars.x = 2\n[vars]\nx = 0\n";
    let cold = decode("prefix = \"cold\"");
    let project = suite(&toy, "vllm", "", &format!("{variants}{PREFILL}{cold}"));
    let ran = project.run(&["--seed", "7"]).exits(0);
    assert_eq!(cache_faults(&ran, 8), [false; 8]);
    let mut beginnings = HashSet::new();
    for asked in toy.asked() {
        assert!(beginnings.insert(asked.prompt()[..8].to_vec()), "sent before: {}", asked.n);
    }
}

#[test]
fn warmed_prompts_must_come_out_of_the_cache() {
    for prefix in ["\"unique\"", "\"shared\"", "{ groups = 2, length = 400 }"] {
        let test = decode(&format!("prefix = {prefix}\nmatrix.concurrency = [4]"));
        let ran = suite(&engine(false), "vllm", "", &test).run(&[]).exits(0);
        sound(&measured(&ran, 0));
        let ran = suite(&engine(true), "vllm", "", &test).run(&[]).exits(31);
        let words = faulty(&measured(&ran, 0), "cache-state", "invalid");
        assert!(words.starts_with("0 % of the prompt tokens"), "{words}");
    }
}

#[test]
fn groups_share_as_much_as_they_say_and_each_prompt_is_its_own() {
    for request in ["", "api = \"chat\""] {
        let toy = engine(false);
        let test = decode("prefix = { groups = 2, length = 400 }\nmatrix.concurrency = [6]");
        suite(&toy, "vllm", request, &test).run(&[]).exits(0);
        let prompts: HashSet<Vec<u64>> =
            toy.asked().iter().map(Asked::prompt).filter(|prompt| prompt.len() == 1024).collect();
        let groups: HashSet<&[u64]> = prompts.iter().map(|prompt| &prompt[..400]).collect();
        let beyond: HashSet<&[u64]> = prompts.iter().map(|prompt| &prompt[..408]).collect();
        // The text of a chat is searched for with one prompt more.
        let searched = usize::from(!request.is_empty());
        assert_eq!((groups.len(), beyond.len()), (2 + searched, 6 + searched), "{request}");
    }
}

#[test]
fn an_engine_without_counters_is_unknown_and_not_cold() {
    let toy = Toy::start(|asked| asked.stream().acts());
    let ran = suite(&toy, "vllm", "", PREFILL).run(&[]).exits(0);
    let said = checks(&measured(&ran, 0), "cache-state");
    assert!(
        said.iter().any(|(_, words)| words == "the engine has no counters of its prefix cache")
    );
}

#[test]
fn tokens_that_an_answer_says_were_cached_are_no_cold_prompt() {
    let toy = Toy::start(|asked| {
        let mut stream = asked.stream();
        stream.cached = Some(stream.prompt / 2);
        stream.acts()
    });
    let ran = suite(&toy, "vllm", "", PREFILL).run(&[]).exits(31);
    let words = faulty(&measured(&ran, 2), "cache-state", "invalid");
    assert_eq!(words, "512 of 1024 prompt tokens came out of the cache, which was to be cold");
}

/// Two cells of requests of 512 tokens, each sent twice with warm-ups of its own.
fn loads(prefix: &str) -> String {
    format!(
        "[[test]]\nkind = \"serve\"\ninput = 512\noutput = 8\nprefix = {prefix}\nrequests-per-stream = 4\n\
         repeat = 2\nmatrix.concurrency = [2, 3]\n"
    )
}

#[test]
fn no_load_of_a_service_finds_what_another_has_sent() {
    for request in ["", "api = \"chat\""] {
        let toy = engine(false);
        let variants = "[variant.old]\nvars.x = 1\n[variant.new]\nvars.x = 2\n[vars]\nx = 0\n";
        let project = suite(&toy, "vllm", request, &format!("{variants}{}", loads("\"unique\"")));
        for seed in ["7", "8"] {
            let ran = project.run(&["--seed", seed]);
            assert_eq!(cache_faults(&ran, 4), [false; 4]);
        }
        let asked = toy.asked();
        let sent: Vec<Vec<u64>> =
            asked.iter().filter(|asked| asked.max_tokens() == 8).map(Asked::prompt).collect();
        // In both runs both variants: cells of two and three streams, five requests of each stream, twice.
        assert_eq!(sent.len(), 2 * 2 * (2 + 3) * 5 * 2);
        let beginnings: HashSet<&[u64]> = sent.iter().map(|prompt| &prompt[..8]).collect();
        assert_eq!(beginnings.len(), sent.len(), "{request}");
    }
}

#[test]
fn beginnings_that_requests_share_are_warmed_and_no_other_cell_has_them() {
    for (prefix, common, each) in [("\"shared\"", 512, 1), ("{ groups = 2, length = 400 }", 400, 2)]
    {
        let toy = engine(false);
        let ran = suite(&toy, "vllm", "", &loads(prefix)).run(&[]);
        assert_eq!(cache_faults(&ran, 2), [false; 2]);
        // Each beginning came first in a request of one token, and never again in one.
        let mut warmed: Vec<Vec<u64>> = Vec::new();
        let mut whole = HashSet::new();
        for asked in toy.asked().iter().filter(|asked| asked.prompt().len() >= common) {
            let prompt = asked.prompt();
            let beginning = prompt[..common].to_vec();
            if asked.max_tokens() == 1 {
                assert!(!warmed.contains(&beginning), "{prefix}: warmed twice");
                warmed.push(beginning);
            } else {
                assert!(warmed.contains(&beginning), "{prefix}: {} was not warmed", asked.n);
                assert!(whole.insert(prompt) || prefix == "\"shared\"", "{prefix}: sent twice");
            }
        }
        assert_eq!(warmed.len(), 2 * each, "{prefix}");
    }
}
