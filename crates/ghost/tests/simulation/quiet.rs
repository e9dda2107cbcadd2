//! What a cluster costs the cloud's budget in which nothing happens, and then a little.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use ghost::backend::cosmos::Meter;
use ghost::csi::{IdentityService, Plugin};
use ghost_csi as pb;
use ghost_sim::state::Settings;
use pb::controller_server::Controller as _;
use pb::identity_server::Identity as _;
use tonic::Request;

use crate::calm::{Calm, PER_MINUTE};
use crate::in_virtual_time;
use crate::storm::attach;
use crate::world::{controller, unwatched};

const NODES: u64 = 20;
const VOLUMES_PER_NODE: u64 = 10;
const MORE: u64 = 50;
const PATIENT: Duration = Duration::from_secs(600);

/// Counts what the metrics count.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl Meter for Counter {
    fn answered(&self, _: &'static str, _: u16) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn remaining(&self, _: u64) {}
}

/// The node half has no client of the API and no token, so that statistics, probes and NodeGetInfo
/// of the twenty nodes cannot cost a call: what is left is what the sidecars ask the controller.
#[test]
fn b55_a_quiet_hour_costs_its_lists_and_fifty_attachments_share_their_looks() {
    let (quiet, busy) = in_virtual_time(async |token| {
        let settings = Settings {
            droplets: NODES,
            volumes_per_droplet: 20,
            action_time: Duration::from_secs(5),
            one_event_per_droplet: true,
            ..Settings::default()
        };
        let volumes = NODES * VOLUMES_PER_NODE + MORE;
        let (cloud, ids) = Calm::with_volumes(settings, volumes, 0);
        let counter = Counter::default();
        let controller = controller(cloud.clone(), counter.clone(), token, PER_MINUTE, 0);
        let plugin = Plugin::new("ghost.test").unwrap();
        let identity = IdentityService::of_controller(plugin, &controller);
        let service = unwatched(&controller);
        let attach_all = async |ids: &[String]| {
            let droplets = (0..NODES).map(|node| 101 + node).cycle();
            let calls = ids.iter().zip(droplets);
            join_all(calls.map(|(id, droplet)| attach(&service, id, droplet, PATIENT))).await;
        };
        let (at_first, later) = ids.split_at(ids.len() - usize::try_from(MORE).unwrap());
        attach_all(at_first).await;

        let before = cloud.inner().calls;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            identity.probe(Request::new(pb::ProbeRequest {})).await.unwrap();
            let asked = Request::new(pb::ControllerGetCapabilitiesRequest {});
            service.controller_get_capabilities(asked).await.unwrap();
            let list = service.list_volumes(Request::new(pb::ListVolumesRequest::default())).await;
            let entries = list.unwrap().into_inner().entries;
            let of = |entry: &pb::list_volumes_response::Entry| {
                entry.status.as_ref().map_or(0, |status| status.published_node_ids.len())
            };
            assert_eq!(entries.iter().map(of).sum::<usize>(), at_first.len());
        }
        let quiet = cloud.inner().calls - before;
        attach_all(later).await;
        let inner = cloud.inner();
        assert_eq!(inner.refused, 0);
        assert_eq!(counter.0.load(Ordering::Relaxed), inner.calls, "the metric tells the calls");
        (quiet, inner.calls - before - quiet)
    });
    eprintln!("a quiet hour: {quiet} calls; {MORE} attachments: {busy} calls");
    assert_eq!(quiet, 60 * 2, "a list has two pages");
    assert!(busy <= 3 * 50, "{busy}");
}
