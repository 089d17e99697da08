//! A file as a tree of elements, read strictly.

use std::collections::BTreeMap;

use quick_xml::XmlVersion::Explicit1_0;
use quick_xml::events::{BytesStart, Event};

/// An element.
#[derive(Debug, Default)]
pub struct Element {
    /// Its name.
    pub name: String,
    attributes: BTreeMap<String, String>,
    children: Vec<Element>,
    /// The text that stands in it itself, with all its sections.
    pub text: String,
}

impl Element {
    /// An attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// An attribute, or nothing.
    pub fn said(&self, name: &str) -> String {
        self.attribute(name).unwrap_or_default().to_owned()
    }

    /// Children of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The first child of that name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of the first child of that name.
    pub fn text_of(&self, name: &str) -> String {
        self.child(name).map(|child| child.text.clone()).unwrap_or_default()
    }
}

/// Reads a file; panics where it is no whole XML.
pub fn parse(text: &str) -> Element {
    let mut reader = quick_xml::Reader::from_str(text);
    let mut open = vec![Element::default()];
    loop {
        let event = reader.read_event().unwrap_or_else(|error| panic!("{error}"));
        let top = open.last_mut().unwrap();
        match event {
            Event::Start(start) => open.push(element(&start)),
            Event::Empty(start) => top.children.push(element(&start)),
            Event::End(_) => {
                let whole = open.pop().unwrap();
                open.last_mut().unwrap().children.push(whole);
            }
            Event::Text(text) => top.text.push_str(&text.xml10_content().unwrap()),
            Event::CData(text) => top.text.push_str(&text.xml10_content().unwrap()),
            Event::GeneralRef(name) => match name.resolve_char_ref().unwrap() {
                Some(c) => top.text.push(c),
                None => {
                    let entity = format!("&{};", name.decode().unwrap());
                    top.text.push_str(&quick_xml::escape::unescape(&entity).unwrap());
                }
            },
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
    assert_eq!(open.len(), 1, "an element is not closed");
    let mut document = open.pop().unwrap();
    assert_eq!(document.children.len(), 1, "a document has one element");
    document.children.pop().unwrap()
}

fn element(start: &BytesStart<'_>) -> Element {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let attributes = start.attributes().map(|attribute| {
        let attribute = attribute.unwrap();
        let value = attribute.normalized_value(Explicit1_0).unwrap().into_owned();
        (text(attribute.key.as_ref()), value)
    });
    Element {
        name: text(start.name().as_ref()),
        attributes: attributes.collect(),
        ..Element::default()
    }
}
