//! Answers checked against the API's document, `v2-block-storage.openapi.json`.

use hyper::Response;
use hyper::body::Bytes;
use jsonschema::Validator;
use serde_json::{Value, json};

/// The document, with its schemas turned from OpenAPI 3.0's dialect into JSON Schema's.
pub(crate) struct Document(Value);

impl Document {
    pub(crate) fn read() -> Self {
        let text = include_str!("../v2-block-storage.openapi.json");
        let mut document = serde_json::from_str(text).unwrap();
        spell_out_nullable(&mut document);
        Self(document)
    }

    /// Every method and path that it has.
    pub(crate) fn operations(&self) -> Vec<(String, String)> {
        let paths = self.0["paths"].as_object().unwrap();
        let methods = |path: &Value| path.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        paths
            .iter()
            .flat_map(|(path, item)| methods(item).into_iter().map(move |m| (m, path.clone())))
            .map(|(method, path)| (method.to_uppercase(), path))
            .collect()
    }

    /// Whether the operation names this status, not only as one of the rest.
    pub(crate) fn names(&self, method: &str, path: &str, status: u16) -> bool {
        self.responses(method, path).get(status.to_string()).is_some()
    }

    /// What is wrong with this answer, if anything.
    pub(crate) fn fault_in(
        &self,
        method: &str,
        path: &str,
        answer: &Response<Bytes>,
    ) -> Option<String> {
        let status = answer.status().as_u16();
        let responses = self.responses(method, path);
        // Errors may be among the rest; a success has to be named.
        let rest = (status >= 400).then(|| responses.get("default")).flatten();
        let Some(described) = responses.get(status.to_string()).or(rest) else {
            return Some(format!("{method} {path} does not answer {status}"));
        };
        for header in described["headers"].as_object().into_iter().flat_map(|all| all.keys()) {
            let value = answer.headers().get(header).and_then(|value| value.to_str().ok());
            if value.and_then(|value| value.parse::<u64>().ok()).is_none() {
                return Some(format!("header {header} is {value:?}"));
            }
        }
        let Some(content) = described.get("content") else {
            return (!answer.body().is_empty()).then(|| "there is a body".to_owned());
        };
        let content_type = answer.headers().get("content-type").unwrap().to_str().unwrap();
        if !content_type.starts_with("application/json") {
            return Some(format!("the content type is {content_type}"));
        }
        let body: Value = match serde_json::from_slice(answer.body()) {
            Ok(body) => body,
            Err(error) => return Some(format!("the body is no JSON: {error}")),
        };
        let schema = &content["application/json"]["schema"];
        let errors: Vec<_> =
            self.validator(schema).iter_errors(&body).map(|e| e.to_string()).collect();
        (!errors.is_empty()).then(|| format!("{}: {body}", errors.join("; ")))
    }

    /// The query parameters that the operation takes.
    #[allow(dead_code, reason = "for the driver's tests, which share this file")]
    pub(crate) fn query_parameters(&self, method: &str, path: &str) -> Vec<String> {
        let operation = &self.0["paths"][path][method.to_lowercase()];
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        parameters
            .map(|parameter| match parameter["$ref"].as_str() {
                None => parameter,
                Some(reference) => self.0.pointer(reference.trim_start_matches('#')).unwrap(),
            })
            .filter(|parameter| parameter["in"] == "query")
            .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// What is wrong with this request's body, if anything.
    pub(crate) fn fault_in_request(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Option<String> {
        let operation = &self.0["paths"][path][method.to_lowercase()];
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{method} {path} takes no body");
        let errors: Vec<_> =
            self.validator(schema).iter_errors(body).map(|e| e.to_string()).collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }

    /// The names of all properties of a schema, those that it is put together from included.
    pub(crate) fn properties(&self, schema: &str) -> Vec<String> {
        let mut names = Vec::new();
        self.collect_properties(&self.0["components"]["schemas"][schema], &mut names);
        names.sort();
        names.dedup();
        names
    }

    fn collect_properties(&self, schema: &Value, names: &mut Vec<String>) {
        if let Some(reference) = schema["$ref"].as_str() {
            let pointed = self.0.pointer(reference.trim_start_matches('#')).unwrap();
            self.collect_properties(pointed, names);
        }
        names.extend(schema["properties"].as_object().into_iter().flat_map(|p| p.keys().cloned()));
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.collect_properties(part, names);
        }
    }

    fn responses(&self, method: &str, path: &str) -> &Value {
        let responses = &self.0["paths"][path][method.to_lowercase()]["responses"];
        assert!(responses.is_object(), "the document has no {method} {path}");
        responses
    }

    fn validator(&self, schema: &Value) -> Validator {
        let whole = json!({ "allOf": [schema], "components": self.0["components"] });
        jsonschema::draft202012::options().should_validate_formats(true).build(&whole).unwrap()
    }
}

/// `"type": "x", "nullable": true` is `"type": ["x", "null"]` in JSON Schema.
fn spell_out_nullable(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.get("nullable") == Some(&Value::Bool(true)) {
                let kind = object["type"].clone();
                object.insert("type".to_owned(), json!([kind, "null"]));
            }
            // `components` has a schema for a property named `nullable` nowhere; were there one,
            // the line above would fail.
            object.values_mut().for_each(spell_out_nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(spell_out_nullable),
        _ => {}
    }
}

#[test]
fn a_damaged_answer_does_not_pass() {
    let document = Document::read();
    let fault = |status: u16, body: Value, headers: &[&str]| {
        let mut answer = Response::new(Bytes::from(body.to_string()));
        *answer.status_mut() = hyper::StatusCode::from_u16(status).unwrap();
        answer.headers_mut().insert("content-type", "application/json".parse().unwrap());
        for header in headers {
            let name = hyper::header::HeaderName::try_from(*header).unwrap();
            answer.headers_mut().insert(name, "1".parse().unwrap());
        }
        document.fault_in("GET", "/v2/snapshots", &answer)
    };
    let headers = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
    let snapshot = json!({
        "id": "a", "name": "b", "created_at": "2026-01-01T00:00:00Z", "regions": ["ams1"],
        "min_disk_size": 1, "size_gigabytes": 1, "resource_id": "v", "resource_type": "volume",
        "tags": null,
    });
    let list = |one: &Value| json!({ "snapshots": [one], "links": {}, "meta": { "total": 1 } });
    assert_eq!(fault(200, list(&snapshot), &headers), None);
    assert!(fault(200, list(&snapshot), &headers[1..]).is_some(), "a header is missing");
    assert!(fault(201, list(&snapshot), &headers).is_some(), "another status");
    for (key, value) in [
        ("id", json!(5)),
        ("created_at", json!("yesterday")),
        ("regions", json!("ams1")),
        ("resource_type", json!("disk")),
        ("min_disk_size", json!(1.5)),
    ] {
        let mut damaged = snapshot.clone();
        damaged[key] = value;
        assert!(fault(200, list(&damaged), &headers).is_some(), "{key} is damaged");
    }
    assert!(fault(404, json!({ "message": "an id is missing" }), &headers).is_some());
}
