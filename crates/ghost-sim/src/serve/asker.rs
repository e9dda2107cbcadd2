//! Who asks the metadata service: a droplet, told by the address that it asks from.

use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;
use hyper::http::uri::PathAndQuery;

/// The addresses of one droplet: `ADDRESS=DROPLET`, or `ADDRESS/BITS=DROPLET` for all that begin
/// with these bits, such as those of its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    network: IpAddr,
    bits: u32,
    droplet: u64,
}

impl FromStr for Asker {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "an asker looks like 10.0.0.1=101 or 10.1.0.0/24=101".to_owned();
        let (network, droplet) = text.split_once('=').ok_or_else(form)?;
        let (address, bits) =
            network.split_once('/').map_or((network, None), |(a, b)| (a, Some(b)));
        let network: IpAddr = address.parse().map_err(|_| form())?;
        let longest = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(longest), |bits| bits.parse().map_err(|_| form()))?;
        if bits > longest {
            return Err(format!("an address of this kind has {longest} bits, not {bits}"));
        }
        Ok(Self { network, bits, droplet: droplet.parse().map_err(|_| form())? })
    }
}

impl Asker {
    fn is_at(&self, address: IpAddr) -> bool {
        let (own, other, longest) = match (self.network, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u128::from(own.to_bits()), u128::from(other.to_bits()), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        // Shifted by all its bits there would be nothing left to compare.
        (own ^ other).checked_shr(longest - self.bits).unwrap_or(0) == 0
    }
}

/// Where the API has what is asked for here; `None` where nothing is, or for whom nothing is known.
pub(super) fn place_of(askers: &[Asker], address: IpAddr, asked: &Uri) -> Option<Uri> {
    let path = asked.path();
    if !path.starts_with("/metadata/v1/") {
        return None;
    }
    let asker = askers.iter().find(|asker| asker.is_at(address.to_canonical()))?;
    let place = PathAndQuery::try_from(format!("/droplets/{}{path}", asker.droplet)).ok()?;
    Some(Uri::from(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_droplet_is_told_by_the_address() {
        let askers = ["10.0.0.1=101", "10.1.2.0/24=102", "fd00::/8=103", "0.0.0.0/0=104"];
        let askers: Vec<Asker> = askers.iter().map(|text| text.parse().expect("valid")).collect();
        let id = Uri::from_static("/metadata/v1/id");
        for (address, droplet) in [
            ("10.0.0.1", Some(101)),
            ("::ffff:10.0.0.1", Some(101)),
            ("10.1.2.200", Some(102)),
            ("10.1.3.1", Some(104)),
            ("fd12::1", Some(103)),
            ("fe80::1", None),
        ] {
            let place = place_of(&askers, address.parse().expect("an address"), &id);
            let wanted = droplet.map(|droplet| format!("/droplets/{droplet}/metadata/v1/id"));
            assert_eq!(place.map(|place| place.to_string()), wanted, "{address}");
        }
        let askers = &askers[..1];
        let of = |path| place_of(askers, "10.0.0.1".parse().expect("an address"), &path);
        assert_eq!(of(Uri::from_static("/v2/volumes")), None, "the API is not served here");
        assert_eq!(place_of(askers, "10.0.0.2".parse().expect("an address"), &id), None);
    }

    #[test]
    fn what_is_no_asker_is_refused() {
        for bad in ["", "10.0.0.1", "10.0.0.1=", "10.0.0=1", "10.0.0.1/33=1", "10.0.0.1/x=1"] {
            assert!(bad.parse::<Asker>().is_err(), "{bad:?}");
        }
    }
}
