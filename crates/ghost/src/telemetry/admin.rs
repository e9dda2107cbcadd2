//! The admin address: `/metrics`, `/healthz` (the process answers its own Probe) and `/readyz` (and
//! says that it is ready).

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use super::metrics::Metrics;
use crate::csi::{self, Endpoint};
use crate::error::{Error, Result};

#[derive(Clone)]
struct Admin {
    metrics: Metrics,
    endpoint: Endpoint,
}

/// Answers at the admin address until the process ends.
///
/// # Errors
/// `Failed` when the listener fails.
pub async fn serve(listener: TcpListener, metrics: Metrics, endpoint: Endpoint) -> Result<()> {
    let router = Router::new()
        .route("/metrics", get(numbers))
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .with_state(Admin { metrics, endpoint });
    axum::serve(listener, router)
        .await
        .map_err(|error| Error::failed("the admin server failed").with_source(error))
}

async fn numbers(State(admin): State<Admin>) -> impl IntoResponse {
    let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, form)], admin.metrics.text())
}

async fn health(State(admin): State<Admin>) -> impl IntoResponse {
    match csi::probe(&admin.endpoint).await {
        Ok(_) => (StatusCode::OK, "ok\n".to_owned()),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{}\n", error.chain())),
    }
}

async fn readiness(State(admin): State<Admin>) -> impl IntoResponse {
    match csi::probe(&admin.endpoint).await {
        Ok(true) => (StatusCode::OK, "ok\n".to_owned()),
        Ok(false) => (StatusCode::SERVICE_UNAVAILABLE, "not ready yet\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", error.chain())),
    }
}
