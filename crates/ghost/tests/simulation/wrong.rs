//! Ways in which a driver can be wrong about the cloud's answers, put between the driver and the
//! wire: what it believes instead of what it was told.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ghost::backend::cosmos::{Failure, Request, Response};
use hyper::Method;
use hyper::header::HeaderMap;
use serde_json::{Value, json};

use crate::schedule::Variant;

/// What one controller believes.
pub(crate) struct Believed {
    variant: Variant,
    /// Where it takes volumes to be, until it has looked once.
    attached: Mutex<BTreeMap<String, Option<u64>>>,
}

impl Believed {
    pub(crate) fn new(variant: Variant) -> Self {
        Self { variant, attached: Mutex::default() }
    }

    /// What the driver takes this answer for.
    pub(crate) fn told(
        &self,
        request: &Request,
        answer: Result<Response, Failure>,
    ) -> Result<Response, Failure> {
        let Ok(response) = answer else { return answer };
        let is_post = request.method == Method::POST;
        match self.variant {
            Variant::TrustsRefusal if is_post && response.status == 422 => {
                self.done(request, response)
            }
            Variant::ForgetsAction if is_post && (200..300).contains(&response.status) => {
                self.done(request, response)
            }
            Variant::FinalOnServerError if is_post && response.status >= 500 => Ok(Response {
                status: 422,
                headers: response.headers,
                body: br#"{"id":"unprocessable_entity","message":"no"}"#.to_vec(),
            }),
            Variant::TrustsRefusal | Variant::ForgetsAction if request.method == Method::GET => {
                Ok(self.seen(request, response))
            }
            _ => Ok(response),
        }
    }

    /// The answer of an action that is over, if that was asked for.
    fn done(&self, request: &Request, response: Response) -> Result<Response, Failure> {
        let Some(volume) = volume(&request.path).filter(|_| request.path.ends_with("/actions"))
        else {
            return Ok(response);
        };
        let asked: Value =
            serde_json::from_slice(request.body.as_deref().unwrap_or_default()).unwrap_or_default();
        let goal = match asked["type"].as_str() {
            Some("attach") => asked["droplet_id"].as_u64(),
            Some("detach") => None,
            _ => return Ok(response),
        };
        self.attached
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(volume.to_owned(), goal);
        let body = json!({"action": {
            "id": 1, "status": "completed", "type": asked["type"], "resource_type": "volume",
            "started_at": "2026-01-01T00:00:00Z", "completed_at": "2026-01-01T00:00:00Z",
            "resource_id": null, "region": null, "region_slug": "ams1",
        }});
        Ok(Response { status: 201, headers: HeaderMap::new(), body: body.to_string().into_bytes() })
    }

    fn seen(&self, request: &Request, response: Response) -> Response {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(goal) = volume(&request.path).and_then(|volume| attached.remove(volume)) else {
            return response;
        };
        let mut body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        if let Some(droplets) = body.pointer_mut("/volume/droplet_ids") {
            *droplets = goal.into_iter().collect::<Vec<u64>>().into();
        }
        Response { body: body.to_string().into_bytes(), ..response }
    }
}

fn volume(path: &str) -> Option<&str> {
    path.strip_prefix("/v2/volumes/")?.split(['/', '?']).next()
}
