//! Every call to the machine fails once, or never answers, at each moment; what is asked for again
//! then always ends in the same state.

use ghost_host::{Access, Content, FakeDisk, Moment};

use super::fixture::{Fixture, SIZE, STAGING, TARGET, ext4, io_error};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The call answers with an error.
    Error(Moment),
    /// The call never answers: the process has died in it.
    Silence(Moment),
}

const FAULTS: [Fault; 6] = [
    Fault::Error(Moment::Before),
    Fault::Error(Moment::Midway),
    Fault::Error(Moment::After),
    Fault::Silence(Moment::Before),
    Fault::Silence(Moment::Midway),
    Fault::Silence(Moment::After),
];

/// Runs `$operation` until it succeeds. The one fault may cost it one try.
macro_rules! until_done {
    ($fixture:expr, $strikes_at:expr, $operation:expr) => {{
        let mut tries = 0;
        loop {
            tries += 1;
            assert!(tries <= 2, "one fault costs one try, and no more");
            let calls = $fixture.host.calls().len();
            let strikes_at = $strikes_at.filter(|call| *call > calls);
            tokio::select! {
                biased;
                outcome = $operation => if outcome.is_ok() { break },
                () = silenced(&$fixture, strikes_at) => {}
            }
        }
    }};
}

/// Ready when the call that never answers has been made; what made it is then dropped.
async fn silenced(fixture: &Fixture, strikes_at: Option<usize>) {
    let Some(call) = strikes_at else { return std::future::pending().await };
    while fixture.host.calls().len() < call {
        tokio::task::yield_now().await;
    }
}

/// Sets the fault for the n-th call from now; the number of that call if it is one of silence.
fn set(fixture: &Fixture, fault: Fault, n: usize) -> Option<usize> {
    match fault {
        Fault::Error(moment) => {
            fixture.host.fail_at(n, moment, io_error());
            None
        }
        Fault::Silence(moment) => {
            fixture.host.silence_at(n, moment);
            Some(fixture.host.calls().len() + n)
        }
    }
}

/// The whole life of a volume on the node with a fault at call n. Whether the fault struck.
async fn live(fixture: &Fixture, fault: Fault, n: usize) -> bool {
    let context = format!("{fault:?} at call {n}");
    let start = fixture.table();
    let content = fixture.host.content(fixture.number);
    let is_block = fixture.request.capability.access == crate::volume::AccessType::Block;
    let silent = set(fixture, fault, n);

    until_done!(*fixture, silent, fixture.stage());
    let staged = usize::from(!is_block);
    assert_eq!(fixture.mounted(STAGING).len(), staged, "{context}");
    assert_eq!(fixture.notes_left(), 0, "{context}");
    if !is_block {
        let size = fixture.host.filesystem_size(fixture.number);
        assert_eq!(size, fixture.host.disk_size(fixture.number), "{context}");
    }

    until_done!(*fixture, silent, fixture.publish(TARGET));
    assert_eq!(fixture.mounted(STAGING).len(), staged, "{context}");
    let published = fixture.mounted(TARGET);
    assert_eq!(published.len(), 1, "{context}");
    assert_eq!(published[0].access, Access::ReadWrite, "{context}");
    if is_block {
        assert!(published[0].source.ends_with("devtmpfs"), "{context}: {published:?}");
    } else {
        assert_eq!(published[0].device, Some(fixture.number), "{context}");
    }

    until_done!(*fixture, silent, fixture.unpublish(TARGET));
    assert_eq!(fixture.mounted(TARGET), [], "{context}");
    assert_eq!(fixture.host.target(TARGET), None, "{context}");
    assert_eq!(fixture.mounted(STAGING).len(), staged, "{context}");

    until_done!(*fixture, silent, fixture.unstage());
    assert_eq!(fixture.table(), start, "{context}");
    assert_eq!(fixture.host.target(STAGING), None, "{context}");

    let end = fixture.host.content(fixture.number);
    if is_block || content != Content::Blank {
        assert_eq!(end, content, "{context}");
        assert_eq!(fixture.calls("format") + fixture.calls("erase"), 0, "{context}");
    } else {
        assert_eq!(end, ext4(), "{context}");
    }
    fixture.host.clear_faults() == 0
}

async fn converges(fresh: impl Fn() -> Fixture, at_least: usize) {
    for fault in FAULTS {
        let mut n = 1;
        while live(&fresh(), fault, n).await {
            n += 1;
            assert!(n < 200, "the calls do not end");
        }
        assert!(n > at_least, "only {n} calls were reached with {fault:?}");
    }
}

#[tokio::test]
async fn a_blank_volume_lives_through_a_fault_at_every_call() {
    converges(|| Fixture::new(Content::Blank), 20).await;
}

#[tokio::test]
async fn a_volume_with_data_lives_through_a_fault_at_every_call_and_is_never_formatted() {
    converges(|| Fixture::new(ext4()), 20).await;
}

#[tokio::test]
async fn b18_a_volume_that_is_smaller_than_its_disk_grows_through_a_fault_at_every_call() {
    for may_grow_mounted in [true, false] {
        let restored = || {
            let fixture = Fixture::new(ext4());
            fixture.host.resize(fixture.number, 2 * SIZE);
            fixture.host.set_may_grow_mounted_ext(may_grow_mounted);
            fixture
        };
        converges(restored, if may_grow_mounted { 20 } else { 25 }).await;
    }
}

#[tokio::test]
async fn a_block_volume_lives_through_a_fault_at_every_call_and_is_never_written() {
    let content = || Content::Foreign("the data of its user".to_owned());
    converges(|| Fixture::block(content()), 15).await;
    converges(|| Fixture::block(Content::Blank), 15).await;
}

#[tokio::test]
async fn b07_a_volume_that_came_back_is_staged_and_published_anew_through_a_fault_at_every_call() {
    for fault in FAULTS {
        for n in 1.. {
            assert!(n < 200, "the calls do not end");
            let fixture = Fixture::new(ext4());
            fixture.stage().await.expect("staged");
            fixture.publish(TARGET).await.expect("published");
            fixture.host.unplug(fixture.number);
            let second = fixture.host.plug(FakeDisk::blank("pvc-1", SIZE).with_content(ext4()));

            let silent = set(&fixture, fault, n);
            until_done!(fixture, silent, fixture.stage());
            until_done!(fixture, silent, fixture.publish(TARGET));
            for path in [STAGING, TARGET] {
                let devices: Vec<_> =
                    fixture.mounted(path).into_iter().map(|entry| entry.device).collect();
                assert_eq!(devices, [Some(second)], "{path} with {fault:?} at call {n}");
            }
            assert_eq!(fixture.calls("format"), 0);
            if fixture.host.clear_faults() == 1 {
                assert!(n > 15, "only {n} calls were reached with {fault:?}");
                break;
            }
        }
    }
}
