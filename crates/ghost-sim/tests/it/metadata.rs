//! The metadata service as droplets reach it: at one address, and each is told about itself.

use crate::program::Folder;

/// What is told to somebody who asks from this address.
fn ask(url: &str, from: &str, path: &str) -> (u16, String) {
    let client = reqwest::blocking::Client::builder().local_address(Some(from.parse().unwrap()));
    let answer = client.build().unwrap().get(format!("{url}{path}")).send().unwrap();
    (answer.status().as_u16(), answer.text().unwrap())
}

#[test]
fn a_droplet_is_told_about_itself_by_the_address_that_it_asks_from() {
    let folder = Folder::new();
    let mut program = folder.start(&[
        "--no-devices",
        "--metadata-listen=127.0.0.1:0",
        "--metadata-of=127.0.0.11=101",
        "--metadata-of=127.0.2.0/24=102",
        "--region=ams1",
    ]);
    let url = program.metadata_url();
    let told = |from, item| ask(&url, from, &format!("/metadata/v1/{item}"));
    assert_eq!(told("127.0.0.11", "id"), (200, "101".to_owned()));
    assert_eq!(told("127.0.2.77", "id"), (200, "102".to_owned()));
    assert_eq!(told("127.0.2.77", "region"), (200, "ams1".to_owned()));
    assert_eq!(told("127.0.0.1", "id").0, 404, "this is the address of no droplet");
    assert_eq!(ask(&url, "127.0.0.11", "/v2/account").0, 404, "the API is at its own address");
    assert_eq!(ask(&url, "127.0.0.11", "/droplets/102/metadata/v1/id").0, 404);
    // At the API's address nobody is told apart by theirs: without a token there is no answer.
    assert_eq!(ask(&program.url, "127.0.0.11", "/metadata/v1/id").0, 401);
}
