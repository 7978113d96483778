//! `openapi.json` says what the sources do, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::wire::get;
use crate::{How, Serve, source};

/// What `POST /v1/calls` can end with, of all the codes of a call: the rest is of attempts that the library makes itself.
const OF_CALLS: [&str; 3] = ["CALL_BUDGET_CIRCUIT_OPEN", "CALL_BUDGET_HELD", "CALL_BUDGET_UNKNOWN_SURFACE"];

fn text(path: &str) -> String {
    std::fs::read_to_string(source(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn document() -> Value {
    serde_json::from_str(&text("src/service/http/openapi.json")).unwrap()
}

/// Path and method of each `.route("PATH", METHOD(...))`.
fn routes(code: &str) -> BTreeSet<(String, String)> {
    let routes = code.split(".route(\"").skip(1);
    let route = |rest: &str| {
        let (path, rest) = rest.split_once("\", ").unwrap();
        (path.to_owned(), rest.split_once('(').unwrap().0.to_owned())
    };
    routes.map(route).collect()
}

/// The whole string literals that are codes.
fn codes(code: &str) -> BTreeSet<String> {
    let literals = code.split('"').filter(|text| {
        text.starts_with("CALL_BUDGET_") && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    });
    literals.map(str::to_owned).collect()
}

fn listed(document: &Value) -> BTreeSet<(String, String)> {
    let methods = |(path, methods): (&String, &Value)| {
        let methods: Vec<_> = methods.as_object().unwrap().keys().cloned().collect();
        methods.into_iter().map(|method| (path.clone(), method)).collect::<Vec<_>>()
    };
    document["paths"].as_object().unwrap().iter().flat_map(methods).collect()
}

#[test]
fn every_route_is_in_the_document_and_the_document_knows_no_other() {
    let code = text("src/service/http/routes.rs");
    let listed = listed(&document());
    let routes = routes(&code);
    assert!(routes.len() > 15, "{routes:?}");
    assert_eq!(routes, listed);
}

#[test]
fn every_code_that_the_source_gives_is_in_the_document_and_the_document_knows_no_other() {
    let document = document();
    let folder = std::fs::read_dir(source("src/service/http")).unwrap();
    let files = folder.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let mut given: BTreeSet<String> = files.flat_map(|path| codes(&std::fs::read_to_string(path).unwrap())).collect();
    let library = text("src/error.rs");
    let of_library = library.lines().filter(|line| line.contains("Code::") && line.contains("=> \"CALL_BUDGET_"));
    given.extend(of_library.flat_map(codes));
    let calls = codes(&text("src/call/error.rs"));
    for code in OF_CALLS {
        assert!(calls.contains(code), "{code}");
        given.insert(code.to_owned());
    }
    let problem = &document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
    let known: BTreeSet<String> =
        problem.as_array().unwrap().iter().map(|code| code.as_str().unwrap().into()).collect();
    assert!(given.len() > 20, "{given:?}");
    assert_eq!(given, known);
    // Each is the answer of some path.
    let mut answered = codes(&document["components"]["responses"].to_string());
    answered.extend(codes(&document["paths"].to_string()));
    assert_eq!(answered, known);
}

#[test]
fn every_reference_of_the_document_leads_somewhere_and_everything_is_referred_to() {
    let document = document();
    let mut used = BTreeMap::new();
    references(&document, &mut used);
    for reference in used.keys() {
        let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads out of the document"));
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    for part in ["responses", "schemas", "headers"] {
        for name in document["components"][part].as_object().unwrap().keys() {
            // Of these the document says in words where they apply: everywhere, or inside a stream.
            let in_words = ["NoSuchPath", "NoSuchMethod", "History"].contains(&name.as_str());
            assert!(in_words || used.contains_key(&format!("#/components/{part}/{name}")), "nobody uses {part}/{name}");
        }
    }
}

fn references(value: &Value, used: &mut BTreeMap<String, usize>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                *used.entry(reference.clone()).or_default() += 1;
            }
            map.values().for_each(|value| references(value, used));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, used)),
        _ => {}
    }
}

#[tokio::test]
async fn the_service_gives_out_this_document() {
    let serve = Serve::start("", How::default()).await;
    let answer = serve.ask(get("/v1/openapi.json")).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.done(), document());
}

#[test]
fn a_route_or_a_code_that_is_missing_would_be_seen() {
    let code = ".route(\"/a/{b}\", get(x::y))\n        .route(\"/c\", post(z))";
    assert_eq!(routes(code), [("/a/{b}", "get"), ("/c", "post")].map(|(p, m)| (p.into(), m.into())).into());
    assert_eq!(
        codes("f(\"CALL_BUDGET_X\", \"CALL_BUDGET_SERVE_*\", \"a CALL_BUDGET_Y\")"),
        ["CALL_BUDGET_X".into()].into()
    );
}
