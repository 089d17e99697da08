//! Links of a page, and whether each leads somewhere. No network is asked.

#![allow(clippy::wildcard_enum_match_arm, reason = "a reader of Markdown has many events")]

use std::collections::BTreeMap;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::harness::shipped;

/// Where the links and images of a page lead, in order.
pub fn links(text: &str) -> Vec<String> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
        .filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.to_string())
            }
            _ => None,
        })
        .collect()
}

/// The anchors of a page: its headings, spelled as GitHub and mdBook do.
pub fn anchors(text: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    let mut heading: Option<String> = None;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap());
                let again = seen.entry(slug.clone()).or_default();
                anchors.push(if *again == 0 { slug } else { format!("{slug}-{again}") });
                *again += 1;
            }
            _ => {}
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// What is wrong with a link on a page.
pub fn problem(page: &str, link: &str) -> Option<String> {
    if let Some(rest) = link.strip_prefix("https://").or_else(|| link.strip_prefix("http://")) {
        let host = rest.split('/').next().unwrap_or_default();
        let well = host.contains('.')
            && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-:".contains(c))
            && !link.contains(char::is_whitespace);
        return (!well).then(|| "no address".to_owned());
    }
    if link.contains(':') {
        return Some("neither a file nor https".to_owned());
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, it)| (path, Some(it)));
    let folder = shipped(page).parent().unwrap().to_owned();
    let target = if path.is_empty() { shipped(page) } else { folder.join(path) };
    if !target.exists() {
        return Some("no such file".to_owned());
    }
    let book = shipped("docs").canonicalize().unwrap();
    if page.starts_with("docs/") && !target.canonicalize().unwrap().starts_with(&book) {
        return Some("leads out of the book, where mdBook has no page".to_owned());
    }
    let anchor = anchor?;
    let text = std::fs::read_to_string(&target).ok()?;
    let known = anchors(&text);
    (!known.iter().any(|it| it == anchor)).then(|| format!("no heading for it among {known:?}"))
}

#[test]
fn a_link_that_leads_nowhere_is_seen() {
    let page = "docs/install.md";
    assert_eq!(problem(page, "results.md"), None);
    assert_eq!(problem(page, "results.md#exit-codes"), None);
    assert_eq!(problem(page, "#uninstalling"), None);
    assert_eq!(problem(page, "https://rustup.rs"), None);
    for wrong in [
        "gone.md",
        "results.md#gone",
        "#gone",
        "../README.md",
        "https://rust up.rs",
        "https://x",
        "mailto:a",
    ] {
        assert!(problem(page, wrong).is_some(), "{wrong}");
    }
    let page = "[a](b.md) ![c](d.png) `[no](link)` [e][f]\n\n[f]: g.md#h\n";
    assert_eq!(links(page), ["b.md", "d.png", "g.md#h"]);
    let page = "# A `b` c: d\n\n## Again\n\n## Again\n";
    assert_eq!(anchors(page), ["a-b-c-d", "again", "again-1"]);
}
