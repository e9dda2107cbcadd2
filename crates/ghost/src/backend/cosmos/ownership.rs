//! Whose something at the cloud is: how what this driver makes is marked, and how the marks are read
//! back.
//!
//! Two marks say that a cluster made something, and only both together do: its tags, and the id of
//! the cluster at the head of its name. A person may give either to anything.

use super::name::{self, ClusterId};

/// The tag of everything that this driver makes.
const TAG_GHOST: &str = "ghost";
/// Before the id of the cluster that something was made by.
const TAG_CLUSTER: &str = "ghost:cluster:";

/// Who made something, as far as one cluster is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The cluster: the name and the tags say so.
    Cluster,
    /// Not known: the name is one of the cluster's, the tags are not.
    OnlyNamedSo,
    /// Not known: the tags are the cluster's, the name is none of its.
    OnlyTaggedSo,
    /// Somebody else.
    Other,
}

/// The tags that say who makes something.
pub(super) fn tags(cluster: Option<&ClusterId>) -> impl Iterator<Item = String> {
    let cluster = cluster.map(|cluster| format!("{TAG_CLUSTER}{}", cluster.as_str()));
    std::iter::once(TAG_GHOST.to_owned()).chain(cluster)
}

/// The ids of the clusters that the tags name: one at most on what this driver made.
pub(super) fn clusters<'a>(tags: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    tags.filter_map(|tag| tag.strip_prefix(TAG_CLUSTER))
}

/// Who made what has this name and these tags, as far as this cluster is concerned.
pub(super) fn maker(cluster: &ClusterId, name: &str, tags: &[String]) -> Maker {
    let has = |wanted: &String| tags.contains(wanted);
    let named = clusters(tags.iter().map(String::as_str));
    let tagged = self::tags(Some(cluster)).all(|tag| has(&tag)) && named.count() == 1;
    match (name::is_of(cluster, name), tagged) {
        (true, true) => Maker::Cluster,
        (true, false) => Maker::OnlyNamedSo,
        (false, true) => Maker::OnlyTaggedSo,
        (false, false) => Maker::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_and_the_tags_together_say_that_a_cluster_made_it() {
        let prod = ClusterId::new("prod").expect("an id");
        let own = name::cloud_name(Some(&prod), "pvc-1");
        let odd = name::cloud_name(Some(&prod), "Ä / b");
        let tagged: Vec<String> = tags(Some(&prod)).collect();
        assert_eq!(tagged, ["ghost", "ghost:cluster:prod"]);
        let more = [&tagged[..], &["team:a".to_owned()]].concat();
        let both = [&tagged[..], &["ghost:cluster:test".to_owned()]].concat();
        let of_nobody: Vec<String> = tags(None).collect();
        let of_test: Vec<String> = tags(ClusterId::new("test").ok().as_ref()).collect();
        for (name, tags, expected) in [
            (own.as_str(), &tagged, Maker::Cluster),
            (odd.as_str(), &more, Maker::Cluster),
            (own.as_str(), &both, Maker::OnlyNamedSo),
            (own.as_str(), &Vec::new(), Maker::OnlyNamedSo),
            (own.as_str(), &of_nobody, Maker::OnlyNamedSo),
            (own.as_str(), &of_test, Maker::OnlyNamedSo),
            (own.as_str(), &tagged[1..].to_vec(), Maker::OnlyNamedSo),
            ("production-pvc-1", &tagged, Maker::OnlyTaggedSo),
            ("pvc-1", &tagged, Maker::OnlyTaggedSo),
            ("prod-", &tagged, Maker::OnlyTaggedSo),
            ("prod", &tagged, Maker::OnlyTaggedSo),
            ("prod-PVC", &tagged, Maker::OnlyTaggedSo),
            ("test-pvc-1", &of_test, Maker::Other),
            ("pvc-1", &of_nobody, Maker::Other),
        ] {
            assert_eq!(maker(&prod, name, tags), expected, "{name} {tags:?}");
        }
    }
}
