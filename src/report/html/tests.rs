//! The page as a browser reads it.

use std::collections::{BTreeMap, BTreeSet};

use scraper::{Html, Selector};

use super::*;
use crate::judge::Verdict;
use crate::measure::Base;
use crate::measure::metric::Stat;
use crate::record::run_record::Suspected;
use crate::report::fixture;

fn parsed(page: &str) -> Html {
    let html = Html::parse_document(page);
    assert!(html.errors.is_empty(), "{:?}", html.errors);
    html
}

fn all<'a>(html: &'a Html, selector: &str) -> Vec<scraper::ElementRef<'a>> {
    let selector = Selector::parse(selector).unwrap();
    html.select(&selector).collect::<Vec<_>>()
}

fn text(element: &scraper::ElementRef<'_>) -> String {
    element.text().collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_cell_shows_value_limit_room_first_token_and_verdict_and_leads_to_its_panel() {
    let page = render(&fixture::page_with_a_loss());
    let html = parsed(&page);
    let cell = &all(&html, "td.fail")[0];
    let shown = text(cell);
    for part in ["✗ fail", "6 871", "≥ 6 937", "−0.9 %", "1 044 ms TTFT"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let link = cell.select(&Selector::parse("a").unwrap()).next().unwrap();
    let panel = all(&html, &format!("article{}", link.attr("href").unwrap()))[0];
    let told = text(&panel);
    for part in [
        "output-throughput 6\u{a0}871 tok/s < 6\u{a0}936.9",
        "suites/page.toml:58",
        "6 802.3 – 6 939.7",
        "tokgate run suites/page.toml -E 'test=decode context=8K concurrency=128' --seed 42",
        "8 192 tokens as asked",
        "in 10 batches",
        "gaps between tokens",
    ] {
        let plain = |text: &str| text.replace('\u{a0}', " ");
        assert!(plain(&told).contains(&plain(part)), "{part} in {told}");
    }
    assert!(text(&all(&html, "header.top")[0]).contains("Failed"));
    assert!(text(&all(&html, ".worst li")[0]).contains("decode context=8K concurrency=128"));
}

#[test]
fn a_cell_that_another_figure_broke_says_which() {
    let mut record = fixture::page_with_a_loss();
    let shown = |record: &RunRecord| text(&all(&parsed(&render(record)), "td.fail")[0]);
    assert!(!shown(&record).contains("throughput"), "it is the figure in sight");
    let at = record.cells.iter().position(|cell| cell.judgement.verdict == Verdict::Fail).unwrap();
    let decided = record.cells[at].judgement.decided_by.unwrap();
    record.header.cells[at].bounds[decided].metric =
        crate::measure::Metric { base: Base::Ttft, stat: Some(Stat::P90), per_gpu: false };
    assert!(shown(&record).ends_with("ttft.p90 −0.9 %"), "{}", shown(&record));
}

#[test]
fn every_cell_has_one_panel_and_every_link_leads_somewhere() {
    for record in [fixture::page(), fixture::every_verdict()] {
        let page = render(&record);
        let html = parsed(&page);
        let mut ids = BTreeSet::new();
        for element in all(&html, "[id]") {
            let id = element.attr("id").unwrap();
            assert!(ids.insert(id), "two elements are called {id}");
        }
        for at in 0..record.cells.len() {
            assert!(
                ids.contains(format!("c{at}").as_str()) && ids.contains(format!("m{at}").as_str())
            );
        }
        for link in all(&html, "a[href^='#'], label[for], [aria-labelledby]") {
            let to = ["href", "for", "aria-labelledby"].iter().find_map(|name| link.attr(name));
            let to = to.unwrap().trim_start_matches('#');
            assert!(ids.contains(to), "nothing is called {to}");
        }
    }
}

#[test]
fn verdicts_are_told_in_words_and_what_is_not_run_is_marked() {
    let page = render(&fixture::every_verdict());
    let html = parsed(&page);
    let rows: Vec<String> = all(&html, ".matrix tbody tr").iter().map(text).collect();
    for word in [
        "✓ pass",
        "✗ fail",
        "✗ degraded",
        "? unsure",
        "! error",
        "○ measured",
        "~ xfail",
        "✓ xpass",
        "– over",
        "– too long",
        "· not run",
    ] {
        assert!(rows.iter().any(|row| row.contains(word)), "{word} in {rows:#?}");
    }
    let broken = text(&all(&html, ".broken")[0]);
    assert!(broken.contains("CUDA out of memory") && broken.contains("step: process"), "{broken}");
    assert!(
        text(&all(&html, "#not-run ~ ul")[0]).starts_with("2 cells: not run: launch layout=dp8")
    );
}

/// Elements of the page, each with the attributes that it may have.
fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("html", &["lang"][..]),
        ("meta", &["charset", "http-equiv", "content", "name"]),
        ("input", &["type", "name", "class", "id", "checked"]),
        ("label", &["for"]),
        ("a", &["class", "href", "id", "rel"]),
        ("th", &["scope", "class"]),
        ("td", &["class", "colspan", "data-at"]),
        ("tr", &["class"]),
        ("abbr", &["title"]),
        (
            "svg",
            &["class", "viewBox", "width", "height", "aria-hidden", "preserveAspectRatio", "xmlns"],
        ),
        ("polyline", &["class", "points", "fill", "opacity", "stroke", "stroke-width"]),
        ("polygon", &["class", "points"]),
        ("circle", &["cx", "cy", "r", "opacity", "fill", "stroke", "stroke-width"]),
        ("line", &["opacity", "stroke", "stroke-width", "x1", "y1", "x2", "y2"]),
        ("text", &["x", "y", "dy", "text-anchor", "font-family", "font-size", "opacity", "fill"]),
        ("nav", &["aria-label"]),
        ("article", &["class", "id", "tabindex", "aria-labelledby"]),
        ("section", &["class", "id", "aria-labelledby", "aria-label"]),
        ("div", &["class", "tabindex", "role", "aria-label"]),
        ("span", &["class", "aria-hidden"]),
        ("ul", &["class", "aria-label"]),
        ("h2", &["id"]),
        ("h3", &["id", "class"]),
        ("main", &["id"]),
        ("header", &["class"]),
        ("p", &["class"]),
        ("pre", &["class", "tabindex", "role", "aria-label"]),
        ("li", &["class"]),
        ("ol", &["class"]),
        ("dl", &["class"]),
        ("table", &["class"]),
        ("tbody", &["class"]),
        ("figure", &["class"]),
        ("fieldset", &["class"]),
    ])
}

/// A record with this text wherever one can stand.
fn everywhere(text: &str) -> RunRecord {
    let mut record = fixture::every_verdict();
    let own = || text.to_owned();
    let header = &mut record.header;
    (header.suite, header.path, header.tokgate) = (own(), own(), own());
    (header.run_id, header.plan_hash, header.started) = (own(), own(), own());
    (header.tags, header.flags, header.selection) = (vec![own()], vec![own()], vec![own()]);
    header.machine.gpus =
        vec![crate::hardware::Gpu { name: own(), memory: 1 << 36, ..Default::default() }];
    (header.machine.hostname, header.machine.os, header.machine.cpu) = (own(), own(), own());
    (header.machine.driver, header.machine.gpu_note) = (Some(own()), Some(own()));
    let declared = &mut header.declared;
    (declared.model, declared.revision, declared.hardware) = (None, Some(own()), Some(own()));
    (declared.quantization, declared.engine) = (Some(own()), own());
    for launch in &mut header.launches {
        (launch.name, launch.variant, launch.place.file) = (own(), Some(own()), own());
    }
    for (at, cell) in header.cells.iter_mut().enumerate() {
        (cell.test, cell.variant, cell.id) = (format!("{text}{}", at % 2), Some(own()), own());
        for (name, value) in &mut cell.axes {
            *value = crate::suite::model::AxisValue::Text(format!("{text}{at}"));
            if at % 3 == 0 {
                *name = own();
            }
        }
        cell.place.file = own();
        for bound in &mut cell.bounds {
            (bound.name, bound.place.file) = (Some(own()), own());
        }
        if let Some(quarantine) = &mut cell.quarantine {
            (quarantine.reason, quarantine.expires, quarantine.issue) = (own(), own(), Some(own()));
        }
    }
    for (launch, outcome) in record.launches.iter_mut().enumerate() {
        (outcome.command, outcome.warnings) = (vec![own(); 2], vec![own()]);
        outcome.log = Some(format!("../{text}{launch}"));
        if let Some(facts) = &mut outcome.facts {
            (facts.model, facts.version) = (own(), Some(own()));
        }
        if let Some(failure) = &mut outcome.failure {
            (failure.step, failure.message, failure.exit) = (own(), own(), Some(own()));
            failure.log_tail = vec![own(); 3];
        }
    }
    for outcome in &mut record.cells {
        let judged = &mut outcome.judgement;
        (judged.message, judged.warnings) = (Some(own()), vec![own()]);
        judged.bounds.iter_mut().for_each(|bound| bound.message = own());
        if let CellState::Measured(measured) = &mut outcome.state {
            measured.warnings = vec![own()];
            measured.checks.iter_mut().for_each(|check| check.message = own());
            measured.failures.values_mut().for_each(|failure| failure.1 = own());
            let mut seen = fixture::telemetry(Some(3));
            seen.notes = vec![own()];
            for gpu in &mut seen.gpus {
                (gpu.name, gpu.foreign, gpu.lost) = (own(), vec![own()], Some(own()));
            }
            for suspicion in crate::hardware::blame::suspicions(&seen, None, 0) {
                outcome.judgement.suspects.push(Suspected { round: Some(0), suspicion });
            }
            measured.telemetry = Some(Box::new(seen));
        }
    }
    record.cells[4].state =
        CellState::Broken { class: own(), message: format!("{text}\n{text}\n{text}") };
    record.cells[8].state =
        CellState::Unfit { class: crate::record::run_record::UnfitClass::TooLong, message: own() };
    record.cells[10].state = CellState::NotRun { reason: own() };
    record.warnings = vec![own()];
    record.resumptions = vec![crate::record::run_record::Resumption { started: own(), after: 1.0 }];
    record
}

#[test]
fn no_foreign_text_becomes_markup() {
    let hostile = format!(
        "\"'><script>alert(1)</script><img src=x onerror=alert(1)></style></pre>]]><!-- {{{{ 7*7 }}}} {}",
        fixture::nasty()
    );
    let record = everywhere(&hostile);
    let page = render(&record);
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "control characters");
    let html = parsed(&page);
    let allowed = allowed();
    let mut seen = 0;
    for element in all(&html, "*") {
        let name = element.value().name();
        let may = allowed.get(name).copied().unwrap_or_default();
        for (attribute, value) in element.value().attrs() {
            assert!(may.contains(&attribute), "<{name} {attribute}=\"{value}\">");
            if attribute == "href" {
                assert!(value.starts_with('#') || value.starts_with("./"), "{value}");
            }
        }
        let plain = [
            "head",
            "title",
            "style",
            "script",
            "body",
            "h1",
            "h4",
            "b",
            "br",
            "i",
            "small",
            "code",
            "dt",
            "dd",
            "details",
            "summary",
            "caption",
            "thead",
            "legend",
            "figcaption",
            "footer",
        ];
        assert!(allowed.contains_key(name) || plain.contains(&name), "<{name}>");
        seen += usize::from(text(&element).contains("<script>alert(1)</script>"));
    }
    assert!(seen > 30, "the text is told, as text: {seen}");
    let scripts = all(&html, "script");
    assert_eq!((scripts.len(), scripts[0].text().collect::<String>().as_str()), (1, SCRIPT));
    assert_eq!(all(&html, "style")[0].text().collect::<String>(), STYLE);
    // What foreign text may break out of, were it there, still could not run.
    let policy = all(&html, "meta[http-equiv]")[0].attr("content").unwrap().to_owned();
    for text in [SCRIPT, STYLE] {
        let hash = STANDARD.encode(Sha256::digest(text.as_bytes()));
        assert!(policy.contains(&format!("'sha256-{hash}'")), "{policy}");
    }
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
}

#[test]
fn a_link_leads_to_the_web_or_is_text() {
    let of = |address: &str| {
        let mut out = Markup::default();
        link(&mut out, address);
        out.finish()
    };
    assert!(of("https://example.org/7").starts_with("<a href=\"https://example.org/7\""));
    for address in ["javascript:alert(1)", "data:text/html,x", "JIRA-7", "https://a b", "//x"] {
        assert!(!of(address).contains("<a"), "{address}");
    }
}

#[test]
fn the_hardware_of_a_cell_is_drawn_with_a_line_for_each_gpu_and_said_in_words() {
    let record = fixture::throttled();
    let page = render(&record);
    let html = parsed(&page);
    let panel = all(&html, &format!("article#c{}", fixture::hot_cell(&record)))[0];
    let told = text(&panel);
    for part in [
        "! suspect GPU 3 throttled by heat in 62 % of the time",
        "power 625 W",
        "SM clock 1 290 to 1 980 MHz",
        "temperature 60 to 91 °C",
        "utilisation 97 to 99 %",
        "GPU memory 131 GiB",
        "host CPU 11 to 13 %",
        "host memory 212 GiB",
        "Drawn over the time, from 0 at the bottom, a line for each GPU in its colour below.",
        "MHz least 1 290",
        "at its power cap, 30 % throttled by heat, 62 %",
    ] {
        let plain = |words: &str| words.replace(" ,", ",").replace(" %", "%");
        assert!(plain(&told).contains(&plain(part)), "{part} in {told}");
    }
    let lines = |class: &str| panel.select(&Selector::parse(class).unwrap()).count();
    assert_eq!(
        (lines(".spark .g3"), lines(".spark .g0")),
        (5, 7),
        "five of each GPU, two of the host"
    );
    assert_eq!(lines(".gpus tbody tr"), 8);
    let fine = text(&all(&html, &format!("article#c{}", fixture::hot_cell(&record) - 1))[0]);
    assert!(fine.contains("The hardware meanwhile") && !fine.contains("suspect"), "{fine}");
    assert!(!render(&fixture::page_with_a_loss()).contains("The hardware meanwhile"));
}

/// Each cell of ten thousand with telemetry of eight GPUs: what needs an eye is drawn, and the rest told.
#[test]
fn a_large_page_draws_the_hardware_of_what_needs_an_eye() {
    let mut record = fixture::throttled();
    let (planned, outcome) = (record.header.cells[10].clone(), record.cells[10].clone());
    for step in 0..9_926u64 {
        let mut planned = planned.clone();
        planned.axes[0].1 = crate::suite::model::AxisValue::Tokens(2048 + 1024 * (step / 100));
        planned.axes[1].1 = crate::suite::model::AxisValue::Integer(1000 + (step % 100) as i64);
        planned.id = format!("context={},concurrency={}", planned.axes[0].1, planned.axes[1].1);
        record.header.cells.push(planned);
        record.cells.push(outcome.clone());
    }
    let page = render(&record);
    assert!(page.len() < 10_000_000, "{}", page.len());
    let tables = page.matches("class=\"figures gpus\"").count();
    assert_eq!(tables, 1, "the cell that fails");
    assert!(page.matches("The hardware meanwhile").count() > tables);
}

#[test]
fn a_page_of_ten_thousand_cells_stays_small_and_tells_all_that_failed() {
    let mut record = fixture::page_with_a_loss();
    let (planned, outcome) = (record.header.cells[10].clone(), record.cells[10].clone());
    assert_eq!(outcome.judgement.verdict, Verdict::Pass);
    for step in 0..9_926u64 {
        let mut planned = planned.clone();
        planned.axes[0].1 = crate::suite::model::AxisValue::Tokens(2048 + 1024 * (step / 100));
        planned.axes[1].1 = crate::suite::model::AxisValue::Integer(1000 + (step % 100) as i64);
        planned.id = format!("context={},concurrency={}", planned.axes[0].1, planned.axes[1].1);
        record.header.cells.push(planned);
        record.cells.push(outcome.clone());
    }
    let page = render(&record);
    assert!(page.len() < 10_000_000, "{}", page.len());
    assert_eq!(page.matches("<article class=\"cell ").count(), 10_000);
    let failed = page.split("<article class=\"cell fail eye\"").nth(1).unwrap();
    assert!(failed.split("</article>").next().unwrap().contains("What was observed"));
    assert!(page.contains("too many cells for a page"));
    // A plan beyond any page loses panels and maps, never the verdict.
    for _ in 0..4 {
        let (cells, outcomes) = (record.header.cells.clone(), record.cells.clone());
        record.header.cells.extend(cells);
        record.cells.extend(outcomes);
    }
    let page = render(&record);
    assert!(page.len() < 20_000_000, "{}", page.len());
    assert!(page.contains("more cells: record.json has them"));
}

#[test]
fn text_stands_out_from_what_is_behind_it_in_light_and_dark() {
    let (light, rest) = STYLE.split_once("@media screen and (prefers-color-scheme: dark)").unwrap();
    let dark = rest.split_once("*, ::before").unwrap().0;
    let color = |scheme: &str, name: &str| -> [f64; 3] {
        let at = scheme.split_once(&format!("--{name}: #")).unwrap_or_else(|| panic!("{name}")).1;
        let digits: String = at.chars().take_while(char::is_ascii_hexdigit).collect();
        let digits: Vec<char> = match digits.len() {
            3 => digits.chars().flat_map(|c| [c, c]).collect(),
            _ => digits.chars().collect(),
        };
        let channel = |at: usize| {
            let text: String = digits[2 * at..2 * at + 2].iter().collect();
            f64::from(u8::from_str_radix(&text, 16).unwrap()) / 255.0
        };
        [channel(0), channel(1), channel(2)]
    };
    let light_of = |color: [f64; 3]| {
        let linear =
            color.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
    };
    let contrast = |a: [f64; 3], b: [f64; 3]| {
        let (a, b) = (light_of(a), light_of(b));
        a.max(b) / a.min(b)
    };
    for (scheme, name) in [(light, "light"), (dark, "dark")] {
        let of = |name: &str| color(scheme, name);
        let most = scheme.split_once("--heat-most: ").unwrap().1;
        let most: f64 = most.split_once('%').unwrap().0.parse::<f64>().unwrap() / 100.0;
        let (heat, card) = (of("heat"), of("card"));
        let hot = [0, 1, 2].map(|i| heat[i] * most + card[i] * (1.0 - most));
        let mut pairs = vec![("pass", hot), ("soft", hot), ("ink", hot)];
        for text in ["ink", "soft", "link", "pass", "fail", "unsure", "error"] {
            pairs.extend([(text, of("paper")), (text, card)]);
        }
        for (text, tint) in
            [("fail", "fail-tint"), ("error", "error-tint"), ("unsure", "unsure-tint")]
        {
            pairs.extend([(text, of(tint)), ("ink", of(tint))]);
        }
        pairs.extend([("ink", of("faint")), ("quiet", of("faint"))]);
        for (text, behind) in pairs {
            let found = contrast(of(text), behind);
            assert!(found >= 4.5, "{name}: {text} has a contrast of {found:.2} on {behind:?}");
        }
        for line in 1..=8 {
            let found = contrast(of(&format!("s{line}")), of("paper"));
            assert!(found >= 3.0, "{name}: line {line} has a contrast of {found:.2}");
        }
    }
}

#[test]
fn variants_are_compared_on_the_page() {
    let page = render(&fixture::compare());
    assert!(page.contains("<h2 id=\"compare-name\">new against old <small>mean ratio of all cells, 4 pairs</small></h2>"));
    // First of what needs an eye, and a link to the section.
    let worst = page.split_once("<ol class=\"worst\">").unwrap().1;
    assert!(
        worst.trim_start().starts_with("<li class=\"fail\"><a href=\"#compare\">"),
        "{}",
        &worst[..200]
    );
    assert!(page.contains("output-throughput as a share of old"));
    assert!(page.contains("<span class=\"sees\">sees "));
    // Each pair of a cell, with both values, the ratio and its logarithm.
    let panel = page.split_once("id=\"c8\"").unwrap().1.split_once("</article>").unwrap().0;
    assert_eq!(panel.matches("<tr><th scope=\"row\" class=\"n\">").count(), 4);
    assert!(panel.contains("<td>new</td>") && panel.contains("<td>old</td>"));
    assert_eq!(panel.matches("<svg width=\"400\" height=\"200\"").count(), 2, "values and ratios");
    assert!(panel.contains(" of old<small> sees "), "{panel}");
    // A chart of a ratio is no chart of tokens.
    assert!(!page.contains("0.95 tok/s"));
    let calm = render(&fixture::compare_without_loss());
    assert!(!calm.contains("id=\"eye\""));
}

#[test]
fn a_page_says_which_launches_lack() {
    let page = render(&fixture::compare_cut_short());
    assert!(page.contains("<span class=\"l\">1 of 4 launches</span>"));
    assert!(
        page.contains("<li>launch 2 of 4: FAILED: exited with status 1, log engine-new.1.log</li>")
    );
    assert!(page.contains("<li>the mean ratio: not run: launch new failed in its launch 2 of 4"));
    assert!(page.contains("<summary>3 starts of its engine</summary>"));
}
