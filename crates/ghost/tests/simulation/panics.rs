//! A panic in the middle of a creation, after the cloud has done what it was asked for.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ghost::backend::cosmos::{Exchange, Failure, Request as Sent, Response};
use ghost::csi::ControllerService;
use ghost_csi as pb;
use ghost_sim::state::Settings;
use hyper::Method;
use pb::controller_server::Controller as _;
use tonic::{Code, Request, Status};

use crate::calm::{Calm, PER_MINUTE};
use crate::in_virtual_time;
use crate::world::{controller, unwatched};

/// Panics when the answer to the first request of that path that makes something is there.
struct Panicking {
    cloud: Calm,
    path: String,
    has_panicked: AtomicBool,
}

#[async_trait]
impl Exchange for Panicking {
    async fn exchange(&self, request: Sent) -> Result<Response, Failure> {
        let fits = request.method == Method::POST && request.path == self.path;
        let answer = self.cloud.exchange(request).await;
        assert!(!fits || self.has_panicked.swap(true, Ordering::Relaxed), "told to panic");
        answer
    }
}

/// What the first try is answered, after which the second must succeed.
fn panics_once<T>(
    path: impl Fn(&str) -> String,
    call: &impl AsyncFn(&ControllerService, &str) -> Result<T, Status>,
) -> (Status, usize, usize) {
    in_virtual_time(async |token| {
        let (cloud, ids) = Calm::with_volumes(Settings::default(), 1, 0);
        let has_panicked = AtomicBool::new(false);
        let wire = Panicking { cloud: cloud.clone(), path: path(&ids[0]), has_panicked };
        let controller = controller(wire, (), token, PER_MINUTE, 0);
        let service = unwatched(&controller);
        let status = call(&service, &ids[0]).await.map(|_| ()).unwrap_err();
        call(&service, &ids[0]).await.map(|_| ()).expect("the name is free again");
        let inner = cloud.inner();
        let cloud = inner.api.cloud();
        (status, cloud.all_volumes().len(), cloud.all_snapshots().len())
    })
}

#[test]
fn b59_a_panic_in_a_creation_leaves_its_outcome_open_and_its_name_free() {
    let capability = || xtask::volume_life::mounted("ext4");
    let (status, volumes, _) = panics_once(|_| "/v2/volumes".to_owned(), &async |service, _| {
        let request = pb::CreateVolumeRequest {
            name: "pvc-made".to_owned(),
            volume_capabilities: vec![capability()],
            ..Default::default()
        };
        service.create_volume(Request::new(request)).await
    });
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("panic"), "{status}");
    assert_eq!(volumes, 2, "made once");
    let (status, _, snapshots) =
        panics_once(|id| format!("/v2/volumes/{id}/snapshots"), &async |service, id| {
            let request = pb::CreateSnapshotRequest {
                name: "snapshot-made".to_owned(),
                source_volume_id: id.to_owned(),
                ..Default::default()
            };
            service.create_snapshot(Request::new(request)).await
        });
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(snapshots, 1, "made once");
}
