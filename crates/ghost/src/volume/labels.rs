//! What people see of a volume or snapshot in the storage's own panel. Nothing depends on it.

use super::Context;
use crate::error::{Error, Result};

/// The most characters of a tag or description (the API's documentation for tags; the same is taken
/// for descriptions, for which it names no limit).
const LIMIT: usize = 255;
/// The most tags that a class may give: a volume has some of this driver's own.
const MOST_TAGS: usize = 20;
/// Before what Kubernetes tells: the kind of object, a colon, its name.
const TAG_KUBERNETES: &str = "k8s:";
/// Before the namespace of the claim or snapshot.
const TAG_NAMESPACE: &str = "k8s:namespace:";
/// Before the name of its volume or content.
const TAG_OBJECT: &str = "k8s:object:";

/// A description and tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// A sentence; empty for none.
    pub description: String,
    /// Tags, each of what the storage accepts.
    pub tags: Vec<String>,
}

/// Reads the tags of a class: `one, another, owner:team-a`.
///
/// # Errors
/// `Invalid` naming the tag that cannot be one, or is this driver's own.
pub(super) fn parse_tags(text: &str) -> Result<Vec<String>> {
    let tags: Vec<String> =
        text.split(',').map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
    if tags.len() > MOST_TAGS {
        return Err(Error::invalid(format!(
            "tags: {} are given, at most {MOST_TAGS} are allowed",
            tags.len()
        )));
    }
    for tag in &tags {
        if tag.len() > LIMIT || !tag.chars().all(is_tag_character) {
            return Err(Error::invalid(format!(
                "tags: {tag:?} is no tag; expected at most {LIMIT} letters, digits, dashes, \
                 underscores and colons, and commas between tags"
            )));
        }
        if tag == "ghost" || tag.starts_with("ghost:") {
            return Err(Error::invalid(format!(
                "tags: {tag:?} is one of this driver's own; use another"
            )));
        }
    }
    Ok(tags)
}

/// Reads the description of a class.
///
/// # Errors
/// `Invalid` when it is longer than the storage takes, or has control characters.
pub(super) fn parse_description(text: &str) -> Result<String> {
    if text.chars().count() > LIMIT || text.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "description: {:?} is no description; expected at most {LIMIT} characters in one line",
            text.chars().take(40).collect::<String>()
        )));
    }
    Ok(text.to_owned())
}

/// What Kubernetes tells of the claim or snapshot that it makes this for. It can be anything, and
/// is cleaned until it will do.
pub(super) fn of_kubernetes(told: &Context, what: &str, keys: [&str; 3]) -> Labels {
    let value = |key: &str| told.get(key).filter(|value| !value.is_empty());
    let [name, namespace, object] = keys.map(value);
    let mut labels = Labels::default();
    if let (Some(name), Some(namespace)) = (name, namespace) {
        labels.tags.push(clean_tag(&format!("{TAG_NAMESPACE}{namespace}")));
        labels.tags.push(clean_tag(&format!("{TAG_KUBERNETES}{what}:{name}")));
        labels.description = clean_text(&format!("{what} {namespace}/{name}, made by ghost"));
    }
    if let Some(object) = object {
        labels.tags.push(clean_tag(&format!("{TAG_OBJECT}{object}")));
    }
    labels
}

/// What something was made for, by the tags that it has of Kubernetes: the claim or snapshot, as
/// `namespace/name`. Characters that no tag takes are dashes there.
pub(crate) fn told_by_kubernetes(tags: &[String]) -> Option<String> {
    let told = |prefix: &str| tags.iter().find_map(|tag| tag.strip_prefix(prefix));
    let namespace = told(TAG_NAMESPACE)?;
    let object = ["claim", "snapshot"].map(|what| format!("{TAG_KUBERNETES}{what}:"));
    let name = object.iter().find_map(|prefix| told(prefix))?;
    Some(format!("{namespace}/{name}"))
}

fn is_tag_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':')
}

fn clean_tag(text: &str) -> String {
    text.chars().map(|c| if is_tag_character(c) { c } else { '-' }).take(LIMIT).collect()
}

fn clean_text(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' })
        .take(LIMIT)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tags_are_read_and_a_wrong_one_is_named() {
        assert_eq!(
            parse_tags(" a, owner:team-a ,,b_1").expect("sound"),
            ["a", "owner:team-a", "b_1"]
        );
        assert!(parse_tags("").expect("none").is_empty());
        for bad in ["a b", "ä", "a=b", "ghost", "ghost:blank", &"x".repeat(256), &"x,".repeat(21)]
        {
            let error = parse_tags(bad).expect_err(bad);
            assert!(error.to_string().starts_with("tags: "), "{error}");
        }
        assert!(parse_description("the data of team ä").is_ok());
        for bad in ["two\nlines", &"x".repeat(256)] {
            assert!(parse_description(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_kubernetes_tells_is_shown() {
        let keys = ["n", "s", "o"];
        let told = [("n", "data-db-0"), ("s", "shop.eu"), ("o", "pvc-1")];
        let told = told.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let labels = of_kubernetes(&told, "claim", keys);
        assert_eq!(labels.description, "claim shop.eu/data-db-0, made by ghost");
        assert_eq!(
            labels.tags,
            ["k8s:namespace:shop-eu", "k8s:claim:data-db-0", "k8s:object:pvc-1"]
        );
        assert_eq!(told_by_kubernetes(&labels.tags).as_deref(), Some("shop-eu/data-db-0"));
        assert_eq!(told_by_kubernetes(&labels.tags[1..]), None);
        assert_eq!(of_kubernetes(&Context::new(), "claim", keys), Labels::default());
    }

    proptest! {
        #[test]
        fn whatever_kubernetes_tells_becomes_what_the_storage_takes(name: String, namespace: String) {
            let told = Context::from([("n".to_owned(), name), ("s".to_owned(), namespace)]);
            let labels = of_kubernetes(&told, "claim", ["n", "s", "o"]);
            for tag in &labels.tags {
                prop_assert!(tag.len() <= LIMIT && tag.chars().all(is_tag_character));
            }
            prop_assert!(labels.description.len() <= LIMIT);
            prop_assert!(parse_description(&labels.description).is_ok());
        }
    }
}
