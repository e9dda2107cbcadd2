//! The provider's metadata service: which machine this is, and where.

use std::time::Duration;

use url::Url;

use crate::error::{Error, Result};
use crate::volume::{NodeId, Region};

/// How long one question may take; the service is on the machine's own link.
const LIMIT: Duration = Duration::from_secs(5);
/// The waits between rounds of questions grow from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const ANSWER_LIMIT: usize = 1024;

/// The metadata service of this machine.
#[derive(Debug)]
pub struct Metadata {
    client: reqwest::Client,
    base: Url,
}

impl Metadata {
    /// The service at this address.
    ///
    /// # Errors
    /// `Invalid` when it is no http or https URL.
    pub fn new(base: Url) -> Result<Self> {
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
            return Err(Error::invalid(format!(
                "metadata URL {base} must begin with http://HOST or https://HOST"
            )));
        }
        let mut builder = reqwest::Client::builder().no_proxy().timeout(LIMIT);
        if base.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        }
        let client = builder
            .build()
            .map_err(|error| Error::invalid("cannot set up TLS").with_source(error))?;
        Ok(Self { client, base })
    }

    /// Asks until the service has said what is not given yet. It may not be up when a machine
    /// boots, and whatever it answers then is no identity.
    pub async fn identity(
        &self,
        mut id: Option<NodeId>,
        mut region: Option<Region>,
    ) -> (NodeId, Region) {
        let mut wait = FIRST_WAIT;
        loop {
            match self.round(&mut id, &mut region).await {
                Ok(()) => {
                    if let (Some(id), Some(region)) = (&id, &region) {
                        tracing::info!(node_id = id.as_str(), region = region.as_str(), "known");
                        return (id.clone(), region.clone());
                    }
                }
                Err(error) => {
                    tracing::warn!(error = error.chain(), "the metadata service is asked again");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn round(&self, id: &mut Option<NodeId>, region: &mut Option<Region>) -> Result<()> {
        if id.is_none() {
            *id = Some(NodeId::new(self.get("id").await?)?);
        }
        if region.is_none() {
            *region = Some(Region::new(self.get("region").await?)?);
        }
        Ok(())
    }

    async fn get(&self, item: &str) -> Result<String> {
        let url = format!("{}/metadata/v1/{item}", self.base.as_str().trim_end_matches('/'));
        let failed = |error: reqwest::Error| Error::unavailable(url.clone()).with_source(error);
        let response = self.client.get(&url).send().await.map_err(failed)?;
        let mut response = response.error_for_status().map_err(failed)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_LIMIT {
                return Err(Error::unavailable(format!("{url} answers more than a word")));
            }
        }
        let text = String::from_utf8_lossy(&body);
        let word = text.trim();
        // Something else may answer in its place while a machine boots, such as a page of a proxy.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if word.is_empty() || !word.chars().all(is_plain) {
            return Err(Error::unavailable(format!("{url} answers {word:?}, which is no id")));
        }
        Ok(word.to_owned())
    }
}
