//! The routes of toxiproxy's HTTP API, and what each answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::listener::{Proxy, Toxified};
use super::toxic::Placed;

/// The proxies by their names. One change at a time.
#[derive(Debug, Default)]
pub(super) struct Registry {
    pub proxies: std::sync::Mutex<BTreeMap<String, Arc<Proxy>>>,
    changing: Mutex<()>,
}

/// A status, and the body where there is one.
pub(super) type Answer = (StatusCode, Option<Value>);

type Refused = (StatusCode, String);

impl Registry {
    pub async fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Answer {
        let _one = self.changing.lock().await;
        match self.route(method, path, body).await {
            Ok(answer) => answer,
            Err((status, error)) => (status, Some(json!({ "error": error, "status": status.as_u16() }))),
        }
    }

    pub fn find(&self, name: &str) -> Option<Arc<Proxy>> {
        self.proxies.lock().expect("nothing panics with it").get(name).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Proxy>> {
        self.proxies.lock().expect("nothing panics with it").values().cloned().collect()
    }

    async fn route(&self, method: &Method, path: &str, body: &[u8]) -> Result<Answer, Refused> {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let method = method.as_str();
        match (method, parts.as_slice()) {
            ("GET", ["version"]) => ok(json!({ "version": VERSION })),
            ("POST", ["reset"]) => self.reset().await,
            ("GET", ["proxies"]) => {
                ok(Value::Object(self.all().iter().map(|proxy| (proxy.name.clone(), proxy.to_json())).collect()))
            }
            ("POST", ["proxies"]) => self.create(&object(body)?).await,
            ("GET", ["proxies", name]) => ok(self.proxy(name)?.to_json()),
            ("POST" | "PATCH", ["proxies", name]) => change(&self.proxy(name)?, &object(body)?).await,
            ("DELETE", ["proxies", name]) => {
                self.proxy(name)?.stop().await.map_err(broken)?;
                self.proxies.lock().expect("nothing panics with it").remove(*name);
                Ok((StatusCode::NO_CONTENT, None))
            }
            ("GET", ["proxies", name, "toxics"]) => ok(self.proxy(name)?.toxics()),
            ("POST", ["proxies", name, "toxics"]) => add_toxic(self.proxy(name)?.as_ref(), &object(body)?),
            ("GET", ["proxies", name, "toxics", toxic]) => {
                let proxy = self.proxy(name)?;
                let shape = proxy.shape.borrow();
                let found = shape.toxics.iter().find(|one| one.placed.name == *toxic);
                ok(found.ok_or_else(no_toxic)?.placed.to_json())
            }
            ("POST" | "PATCH", ["proxies", name, "toxics", toxic]) => {
                update_toxic(self.proxy(name)?.as_ref(), toxic, &object(body)?)
            }
            ("DELETE", ["proxies", name, "toxics", toxic]) => {
                let gone = self.proxy(name)?.shape.send_if_modified(|shape| {
                    let before = shape.toxics.len();
                    shape.toxics.retain(|one| one.placed.name != *toxic);
                    shape.toxics.len() < before
                });
                if gone { Ok((StatusCode::NO_CONTENT, None)) } else { Err(no_toxic()) }
            }
            (
                _,
                ["version" | "reset" | "proxies"]
                | ["proxies", _]
                | ["proxies", _, "toxics"]
                | ["proxies", _, "toxics", _],
            ) => Err((StatusCode::METHOD_NOT_ALLOWED, "method not allowed".to_owned())),
            _ => Err((StatusCode::NOT_FOUND, "page not found".to_owned())),
        }
    }

    fn proxy(&self, name: &str) -> Result<Arc<Proxy>, Refused> {
        self.find(name).ok_or((StatusCode::NOT_FOUND, "proxy not found".to_owned()))
    }

    async fn create(&self, json: &Map<String, Value>) -> Result<Answer, Refused> {
        let field = |key: &str| text(json, key).map(|text| text.unwrap_or_default().to_owned());
        let (name, listen, upstream) = (field("name")?, field("listen")?, field("upstream")?);
        for (key, value) in [("name", &name), ("upstream", &upstream)] {
            if value.is_empty() {
                return Err(bad(format!("missing required field: {key}")));
            }
        }
        if self.find(&name).is_some() {
            return Err((StatusCode::CONFLICT, "proxy already exists".to_owned()));
        }
        let proxy = Proxy::new(name.clone(), listen, upstream);
        if flag(json, "enabled")?.unwrap_or(true) {
            proxy.start().await.map_err(broken)?;
        }
        self.proxies.lock().expect("nothing panics with it").insert(name, Arc::clone(&proxy));
        Ok((StatusCode::CREATED, Some(proxy.to_json())))
    }

    async fn reset(&self) -> Result<Answer, Refused> {
        for proxy in self.all() {
            proxy.start().await.map_err(broken)?;
            proxy.shape.send_modify(|shape| shape.toxics.clear());
        }
        Ok((StatusCode::NO_CONTENT, None))
    }
}

async fn change(proxy: &Arc<Proxy>, json: &Map<String, Value>) -> Result<Answer, Refused> {
    let enabled = match flag(json, "enabled")? {
        Some(enabled) => enabled,
        None => proxy.to_json()["enabled"] == true,
    };
    proxy.place(text(json, "listen")?, text(json, "upstream")?).await.map_err(broken)?;
    if enabled { proxy.start().await } else { proxy.stop().await }.map_err(broken)?;
    ok(proxy.to_json())
}

fn add_toxic(proxy: &Proxy, json: &Map<String, Value>) -> Result<Answer, Refused> {
    let placed = Placed::from_json(&Value::Object(json.clone()), None).map_err(bad)?;
    let shown = placed.to_json();
    let id = proxy.next_id();
    let added = proxy.shape.send_if_modified(|shape| {
        let free = shape.toxics.iter().all(|one| one.placed.name != placed.name);
        if free {
            shape.toxics.push(Toxified { id, placed });
        }
        free
    });
    if added { ok(shown) } else { Err((StatusCode::CONFLICT, "toxic already exists".to_owned())) }
}

fn update_toxic(proxy: &Proxy, name: &str, json: &Map<String, Value>) -> Result<Answer, Refused> {
    let json = Value::Object(json.clone());
    let mut answer = Err(no_toxic());
    proxy.shape.send_modify(|shape| {
        if let Some(one) = shape.toxics.iter_mut().find(|one| one.placed.name == name) {
            answer = Placed::from_json(&json, Some(&one.placed)).map_err(bad).and_then(|placed| {
                one.placed = placed;
                ok(one.placed.to_json())
            });
        }
    });
    answer
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Refused> {
    serde_json::from_slice(body).map_err(|error| bad(format!("bad request body: {error}")))
}

fn text<'a>(json: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, Refused> {
    match json.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(bad(format!("bad request body: {key} is a string"))),
    }
}

fn flag(json: &Map<String, Value>, key: &str) -> Result<Option<bool>, Refused> {
    match json.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(bad(format!("bad request body: {key} is true or false"))),
    }
}

fn ok(json: Value) -> Result<Answer, Refused> {
    Ok((StatusCode::OK, Some(json)))
}

fn bad(error: String) -> Refused {
    (StatusCode::BAD_REQUEST, error)
}

fn broken(error: String) -> Refused {
    (StatusCode::INTERNAL_SERVER_ERROR, error)
}

fn no_toxic() -> Refused {
    (StatusCode::NOT_FOUND, "toxic not found".to_owned())
}

/// Says at once that this is not the real one.
const VERSION: &str = "2.0.0-call-budget-fault-proxy";
