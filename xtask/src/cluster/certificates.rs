//! The certificates of a cluster: one authority for the API server and the cloud, made anew each
//! time.

use std::fs;
use std::path::Path;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::network;

/// The authority's certificate, in the cluster's folder.
pub(super) const AUTHORITY: &str = "pki/ca.crt";
/// The key with which service account tokens are signed, and the one with which they are checked.
pub(super) const ACCOUNT_KEY: &str = "pki/accounts.key";
const ACCOUNT_PUBLIC_KEY: &str = "pki/accounts.pub";

/// Makes all of them.
pub(super) fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("pki"))?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "ghost test cluster");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    fs::write(folder.join(AUTHORITY), authority.pem())?;
    for name in ["api-server", "cloud"] {
        let key = KeyPair::generate()?;
        let names = [network::CONTROL_PLANE, "127.0.0.1", "10.96.0.1", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(str::to_owned))?;
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.signed_by(&key, &authority)?;
        fs::write(folder.join(format!("pki/{name}.crt")), certificate.pem())?;
        fs::write(folder.join(format!("pki/{name}.key")), key.serialize_pem())?;
    }
    let accounts = KeyPair::generate()?;
    fs::write(folder.join(ACCOUNT_KEY), accounts.serialize_pem())?;
    fs::write(folder.join(ACCOUNT_PUBLIC_KEY), accounts.public_key_pem())?;
    Ok(())
}
