//! `docs/cases.md` is complete: every case of the catalogue once, every test that it names there and
//! run, every test of a case named, every place in the code there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use xtask::command::root;

/// Tags of what this driver has: a case with one of them has a test.
const HERE: [&str; 3] = ["cloud", "loop", "all"];
const PAGE: &str = "docs/cases.md";

/// The path of a file, and a function in it.
type Place = (String, String);

/// A row of the page.
struct Row {
    id: String,
    /// The links to the places in the code and the functions there, and the tests; nothing of these if
    /// the case is for later.
    covered: Option<(Vec<Place>, BTreeSet<String>)>,
}

/// The tags of each case.
fn catalogue() -> BTreeMap<String, Vec<&'static str>> {
    let lines = include_str!("catalogue.tsv").lines().skip(1);
    let cases = lines.map(|line| line.split_once('\t').unwrap());
    cases.map(|(id, tags)| (id.to_owned(), tags.split(' ').collect())).collect()
}

/// What stands between two words, where both are there.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    text.split_once(start)?.1.split_once(end).map(|(inner, _)| inner)
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let id = cells[0].to_owned();
    let [_, what, place, tests] = cells[..] else {
        assert!(cells.len() == 3 && !cells[1].is_empty() && !cells[2].is_empty(), "{line}");
        return Row { id, covered: None };
    };
    assert!(!what.is_empty(), "{line}");
    let places = place.split(", ").map(|place| {
        let function = between(place, "`", "`").unwrap_or_else(|| panic!("no function: {line}"));
        let path = between(place, "](../", ")").unwrap_or_else(|| panic!("no link: {line}"));
        (path.to_owned(), function.to_owned())
    });
    let places = places.collect();
    let tests = tests.split("<br>").map(|test| test.trim_matches('`').to_owned()).collect();
    Row { id, covered: Some((places, tests)) }
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    page.lines().filter(|line| line.starts_with("| B")).map(row).collect()
}

/// Every source file below these folders.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("crates"), root().join("xtask")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// The name of the function that a line of code begins, if it is one.
fn function(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// The ids in front of a test's name: of `b08_b12_the_link` they are B08 and B12.
fn ids(name: &str) -> Vec<String> {
    let is_id = |word: &&str| {
        word.len() == 3 && word.starts_with('b') && word[1..].chars().all(|c| c.is_ascii_digit())
    };
    name.split('_').take_while(is_id).map(str::to_uppercase).collect()
}

/// The functions of a file that are named after cases, with whether they are tests that run.
fn tests_in(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut attributes: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("#[") {
            attributes.push(line.trim());
        } else {
            if let Some(name) = function(line).filter(|name| !ids(name).is_empty()) {
                let starts = |words: &[&str]| {
                    attributes.iter().any(|line| words.iter().any(|word| line.starts_with(word)))
                };
                let runs = starts(&["#[test]", "#[tokio::test"]) && !starts(&["#[ignore"]);
                found.push((name.to_owned(), runs));
            }
            attributes.clear();
        }
    }
    found
}

fn tests_in_file(path: &Path) -> Vec<(String, bool)> {
    tests_in(&fs::read_to_string(path).unwrap())
}

#[test]
fn every_case_is_on_the_page_once() {
    let catalogue = catalogue();
    assert_eq!(catalogue.len(), 76);
    let mut seen = BTreeMap::new();
    for row in rows() {
        let is_covered = row.covered.is_some();
        assert!(seen.insert(row.id.clone(), is_covered).is_none(), "{} is there twice", row.id);
    }
    for (id, tags) in &catalogue {
        let is_covered = seen.get(id).unwrap_or_else(|| panic!("{id} is not on the page"));
        let is_here = tags.iter().any(|tag| HERE.contains(tag));
        assert!(*is_covered || !is_here, "{id} is for later, but its tags are {tags:?}");
    }
    let unknown: Vec<_> = seen.keys().filter(|id| !catalogue.contains_key(*id)).collect();
    assert!(unknown.is_empty(), "no such cases: {unknown:?}");
}

#[test]
fn every_test_of_a_case_is_on_the_page_and_runs() {
    let mut in_tree: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, runs) in sources().iter().flat_map(|path| tests_in_file(path)) {
        assert!(runs, "{name} is no test, or is left out");
        for id in ids(&name) {
            in_tree.entry(id).or_default().insert(name.clone());
        }
    }
    for row in rows() {
        let on_page = row.covered.map(|(_, tests)| tests).unwrap_or_default();
        let there = in_tree.remove(&row.id).unwrap_or_default();
        let gone: Vec<_> = on_page.difference(&there).collect();
        assert!(gone.is_empty(), "{}: the page names what is not there: {gone:?}", row.id);
        let unnamed: Vec<_> = there.difference(&on_page).collect();
        assert!(unnamed.is_empty(), "{}: {PAGE} does not name {unnamed:?}", row.id);
    }
    assert!(in_tree.is_empty(), "tests of cases that the page does not have: {in_tree:?}");
}

#[test]
fn every_place_on_the_page_is_there() {
    for row in rows() {
        for (path, name) in row.covered.map(|(places, _)| places).unwrap_or_default() {
            let text = fs::read_to_string(root().join(&path));
            let text = text.unwrap_or_else(|error| panic!("{}: {path}: {error}", row.id));
            let is_there = text.lines().any(|line| {
                let words = line.trim_start().trim_start_matches("pub(crate) ");
                let words = words.trim_start_matches("pub(super) ").trim_start_matches("pub ");
                function(words) == Some(name.as_str())
            });
            assert!(is_there, "{}: {path} has no function {name}", row.id);
        }
    }
}

#[test]
fn what_is_wrong_with_a_test_is_seen() {
    // Written so that this very file has no such functions.
    let text = "#[tokio::test(start_paused = true)]\nasync ~ b08_b12_one() {}\n\n\
        #[test]\n#[ignore = \"slow\"]\n~ b01_two() {}\n\n~ b01_three() {}\n~ blank() {}\n";
    let text = text.replace('~', "fn");
    let found = tests_in(&text);
    let expected = [("b08_b12_one", true), ("b01_two", false), ("b01_three", false)];
    assert_eq!(found, expected.map(|(name, runs)| (name.to_owned(), runs)));
    assert_eq!(ids("b08_b12_one"), ["B08", "B12"]);
}
