//! What helm prints, taken apart by its own marks: no YAML needs to be understood for that.

/// One object that a template rendered.
pub(super) struct Document<'a> {
    /// The template's file.
    pub(super) template: &'a str,
    /// The object's kind.
    pub(super) kind: &'a str,
    /// All of it, with the line that begins it.
    pub(super) text: &'a str,
}

/// The objects in the order in which they are printed.
pub(super) fn documents(rendered: &str) -> Vec<Document<'_>> {
    let starts: Vec<usize> =
        rendered.match_indices("---\n# Source: ").map(|(start, _)| start).collect();
    let ends = starts.iter().skip(1).copied().chain([rendered.len()]);
    let texts = starts.iter().zip(ends).map(|(start, end)| &rendered[*start..end]);
    texts
        .map(|text| {
            let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
            let source = value("# Source: ").unwrap_or_default();
            let template = source.rsplit_once("templates/").map_or(source, |(_, name)| name);
            Document { template, kind: value("kind: ").unwrap_or_default(), text }
        })
        .collect()
}

/// What stands below this key of the only object, as a document of its own.
pub(super) fn below(rendered: &str, key: &str) -> Option<String> {
    let (_, rest) = rendered.split_once(&format!("\n{key}\n"))?;
    let lines = rest.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
    Some(lines.collect::<Vec<_>>().join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERED: &str = "---\n# Source: ghost/templates/tests/a.yaml\nkind: Pod\nspec:\n  a: 1\n\
                            ---\n# Source: ghost/templates/b.yaml\nkind: Secret\nspec:\n  b: 2\n";

    #[test]
    fn what_is_rendered_is_taken_apart_without_losing_a_byte() {
        let documents = documents(RENDERED);
        let seen: Vec<_> = documents.iter().map(|one| (one.template, one.kind)).collect();
        assert_eq!(seen, [("tests/a.yaml", "Pod"), ("b.yaml", "Secret")]);
        assert_eq!(documents.iter().map(|one| one.text).collect::<String>(), RENDERED);
    }

    #[test]
    fn what_stands_below_a_key_becomes_a_document() {
        assert_eq!(
            below("kind: A\nspec:\n  a:\n    b: 1\n", "spec:").as_deref(),
            Some("a:\n  b: 1\n")
        );
        assert_eq!(below("kind: A\n", "spec:"), None);
    }
}
