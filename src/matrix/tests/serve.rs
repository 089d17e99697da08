//! Serve cells by example: their lengths and rates, their order, and about how long they take.

use std::time::Duration;

use super::*;
use crate::load::{Arrival, Length};
use crate::suite::model::{Amount, LengthSetting};

#[test]
fn lengths_come_from_the_axis_and_vary_around_it() {
    let jitter = LengthSetting::Jitter { around: 2048, share: 0.2 };
    let normal = LengthSetting::Plain(Length::Normal { mean: 700.0, sd: 50.0 });
    let sample = Sample::new("serve")
        .test(
            sample::serve("axis")
                .serving(|setting| setting.input = jitter)
                .axis(sample::tokens("input", &[8192, 1000]))
                .axis(sample::tokens("output", &[128])),
        )
        .test(sample::serve("own").serving(|setting| {
            setting.input = normal;
            setting.output = jitter;
        }))
        .test(sample::decode("decode").axis(sample::tokens("context", &[512])));
    let plan = plan(&sample);
    let of = |id: &str| {
        let cell = plan.cells.iter().find(|cell| plan.cell_id(cell) == id).unwrap();
        (plan.input_length(cell), plan.output_length(cell), plan.context_tokens(cell))
    };
    let fixed = Length::Fixed;
    assert_eq!(of("input=8K,output=128"), (Length::Uniform(6554, 9830), fixed(128), 9830));
    assert_eq!(of("input=1000,output=128"), (Length::Uniform(800, 1200), fixed(128), 1200));
    // The longest prompt that is possible lies four deviations above the middle.
    let around = Length::Uniform(1638, 2458);
    assert_eq!(of("own"), (Length::Normal { mean: 700.0, sd: 50.0 }, around, 900));
    assert_eq!(of("context=512"), (fixed(512), fixed(256), 512));
}

#[test]
fn serve_comes_after_decode_by_length_streams_and_rate() {
    let open = |setting: &mut crate::suite::model::ServeSetting| {
        setting.arrival = Arrival::Poisson;
        setting.amount = Amount::Requests(100);
    };
    let sample = Sample::new("serve")
        .test(
            sample::serve("ladder")
                .serving(open)
                .axis(sample::rates("request_rate", &[10.0, 0.5, 2.0])),
        )
        .test(
            sample::serve("closed")
                .axis(sample::tokens("input", &[2048, 512]))
                .axis(sample::counts("concurrency", &[4, 1])),
        )
        .test(sample::tool("eval", "tool", "out.json"))
        .test(sample::decode("decode"));
    let plan = plan(&sample);
    assert_eq!(
        ids(&plan),
        [
            "decode",
            "input=512,concurrency=1",
            "input=512,concurrency=4",
            "request_rate=0.5",
            "request_rate=2",
            "request_rate=10",
            "input=2K,concurrency=1",
            "input=2K,concurrency=4",
            "eval",
        ]
    );
    let rates: Vec<_> = plan.cells.iter().map(|cell| plan.request_rate(cell)).collect();
    assert_eq!(rates[3..6], [Some(0.5), Some(2.0), Some(10.0)]);
    assert_eq!(rates[1], None);
    assert_eq!(plan.concurrency(&plan.cells[2]), 4);
}

#[test]
fn the_estimate_grows_with_what_is_sent() {
    let estimate = |change: &dyn Fn(&mut crate::suite::model::ServeSetting)| {
        let test = sample::serve("serve").serving(change);
        let sample = Sample::new("serve").test(test.axis(sample::counts("concurrency", &[8])));
        let plan = plan(&sample);
        plan.estimate(&plan.cells[0]).as_secs_f64()
    };
    let plain = estimate(&|_| {});
    // Ten requests and one to warm up, each of 256 tokens at 30 a second.
    assert!((plain - 1.0 - 11.0 * (256.0 / 30.0)).abs() < 2.0, "{plain}");
    let thrice = estimate(&|setting| setting.repeat = 3);
    assert!((thrice - 1.0 - 3.0 * (plain - 1.0)).abs() < 1e-6, "{thrice}");
    let counted = estimate(&|setting| setting.amount = Amount::Requests(80));
    assert_eq!(counted, plain);
    let long = Duration::from_secs(600);
    let timed = estimate(&|setting| setting.amount = Amount::Duration(long));
    assert!((600.0..620.0).contains(&timed), "{timed}");
    let warm = estimate(&|setting| setting.warmup_per_stream = 0);
    assert!(warm < plain);
}

#[test]
fn commands_can_be_sized_by_what_serve_tests_send() {
    let line = "serve --len {{ (matrix.input | max) + (matrix.output | max) }} --seqs {{ matrix.concurrency | max }}";
    let sample = Sample::new(line)
        .test(sample::serve("axes").axis(sample::counts("concurrency", &[4, 16])))
        .test(sample::serve("varied").serving(|setting| {
            setting.input = LengthSetting::Plain(Length::Uniform(100, 3000));
        }));
    assert_eq!(argv(&plan(&sample), 0), ["serve", "--len", "3256", "--seqs", "16"]);
}
