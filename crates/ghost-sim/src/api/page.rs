//! Lists in pages: which part is shown, and the links to the others.

use hyper::Uri;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::problem::Problem;
use crate::state::Refusal;

const DEFAULT_PER_PAGE: u64 = 20;
const LARGEST_PER_PAGE: u64 = 200;

/// Which page of which size was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    number: u64,
    size: u64,
}

/// A page as it is written. The entries are never held as JSON values of their own, since a page of
/// volumes is what is asked for most and is the largest answer.
#[derive(Debug)]
pub(super) struct Listed<S> {
    key: &'static str,
    items: Vec<S>,
    links: Value,
    meta: Value,
}

impl<S: Serialize> Serialize for Listed<S> {
    fn serialize<To: Serializer>(&self, to: To) -> Result<To::Ok, To::Error> {
        let mut map = to.serialize_map(Some(3))?;
        map.serialize_entry(self.key, &self.items)?;
        map.serialize_entry("links", &self.links)?;
        map.serialize_entry("meta", &self.meta)?;
        map.end()
    }
}

/// The value of one key of a query, decoded.
pub(super) fn query_value(uri: &Uri, key: &str) -> Option<String> {
    let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    pairs.filter(|(name, _)| name == key).last().map(|(_, value)| value.into_owned())
}

impl Page {
    /// Reads `page` and `per_page`. More than 200 a page is cut to 200.
    pub(super) fn parse(uri: &Uri) -> Result<Self, Problem> {
        let number = |key: &str, default| match query_value(uri, key) {
            None => Ok(default),
            Some(text) => text.parse().ok().filter(|value| *value >= 1).ok_or_else(|| {
                Refusal::Unprocessable(format!("{key} must be a number from 1 on, not {text:?}"))
            }),
        };
        Ok(Self {
            number: number("page", 1)?,
            size: number("per_page", DEFAULT_PER_PAGE)?.min(LARGEST_PER_PAGE),
        })
    }

    /// One page of the list under this key, with its links and the total. Only what is on the page
    /// is shown.
    pub(super) fn of<T, S>(
        self,
        key: &'static str,
        all: Vec<T>,
        shown: impl Fn(T) -> S,
        base: &str,
        uri: &Uri,
    ) -> Listed<S> {
        let total = all.len() as u64;
        let last = total.div_ceil(self.size).max(1);
        let skipped = usize::try_from((self.number - 1).saturating_mul(self.size));
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        let items =
            all.into_iter().skip(skipped.unwrap_or(usize::MAX)).take(size).map(shown).collect();
        let mut pages = Map::new();
        let mut link = |name: &str, number| {
            pages.insert(name.to_owned(), Value::String(self.link(number, base, uri)));
        };
        if self.number > 1 {
            link("first", 1);
            link("prev", (self.number - 1).min(last));
        }
        if self.number < last {
            link("next", self.number + 1);
            link("last", last);
        }
        let links = if pages.is_empty() { json!({}) } else { json!({ "pages": pages }) };
        Listed { key, items, links, meta: json!({ "total": total }) }
    }

    fn link(self, number: u64, base: &str, uri: &Uri) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            if name != "page" && name != "per_page" {
                query.append_pair(&name, &value);
            }
        }
        query.append_pair("page", &number.to_string());
        query.append_pair("per_page", &self.size.to_string());
        format!("{base}{}?{}", uri.path(), query.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(uri: &'static str, total: u64) -> Value {
        let uri = Uri::from_static(uri);
        let all = (0..total).collect();
        let page = Page::parse(&uri).expect("a page");
        json!(page.of("things", all, |number| number, "http://host", &uri))
    }

    #[test]
    fn the_middle_page_links_to_all_others_and_keeps_the_filter() {
        let shown = page("/v2/volumes?name=a%26b&per_page=20&page=2", 45);
        assert_eq!(shown["things"].as_array().expect("a list").len(), 20);
        assert_eq!(shown["things"][0], 20);
        assert_eq!(shown["meta"]["total"], 45);
        let link = |number| format!("http://host/v2/volumes?name=a%26b&page={number}&per_page=20");
        let links = json!({"first": link(1), "prev": link(1), "next": link(3), "last": link(3)});
        assert_eq!(shown["links"]["pages"], links);
    }

    #[test]
    fn ends_have_no_links_beyond_them() {
        assert_eq!(page("/x", 20)["links"], json!({}));
        assert_eq!(page("/x", 0)["links"], json!({}));
        let last = page("/x?page=3", 45);
        assert_eq!(last["things"].as_array().expect("a list").len(), 5);
        assert!(last["links"]["pages"].get("next").is_none());
        let beyond = page("/x?page=9", 45);
        assert_eq!(beyond["things"], json!([]));
        assert_eq!(beyond["links"]["pages"]["prev"], "http://host/x?page=3&per_page=20");
        assert_eq!(page("/x?per_page=500", 450)["things"].as_array().expect("a list").len(), 200);
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for bad in ["/x?page=0", "/x?page=-1", "/x?per_page=0", "/x?per_page=ten", "/x?page="] {
            assert!(Page::parse(&Uri::from_static(bad)).is_err(), "{bad}");
        }
    }
}
