//! The ways in which the reference driver can be wrong.

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident => [$($check:literal),+],)*) => {
        /// One way to be wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault {
            $($(#[$doc])* $fault,)*
        }

        /// Every fault with the checks that are meant for it.
        pub(crate) const FAULTS: &[(Fault, &[&str])] = &[$((Fault::$fault, &[$($check),+]),)*];
    };
}

faults! {
    /// Its name has an underscore.
    NameWithUnderscore => ["identity.name"],
    /// Its Probe says that it is not ready.
    ProbeNotReady => ["identity.probe"],
    /// Its node has another id each time.
    NodeIdChanges => ["identity.stable"],
    /// It claims the list of unhealthy volumes without the health of one.
    HealthListAlone => ["capability.dependencies"],
    /// It claims EXPAND_VOLUME and says nowhere how.
    ExpansionUnsaid => ["capability.expansion"],
    /// It tells topologies without claiming the constraints.
    TopologyUnclaimed => ["capability.node-topology"],
    /// It tells a topology in the first answer only.
    TopologyForgotten => ["capability.volume-topology"],
    /// It claims GET_CAPACITY and has no such RPC.
    ClaimedUnimplemented => ["capability.claimed"],
    /// It has a ControllerModifyVolume that it does not claim.
    UnclaimedAnswered => ["capability.unclaimed"],
    /// It claims the same capability twice.
    ClaimedTwice => ["capability.known"],
    /// It makes small letters, digits and dashes of names.
    NamesCleaned => ["name.look-alike", "snapshot.look-alike"],
    /// It looks at the first 64 bytes of names.
    NamesCut => ["name.limit"],
    /// It refuses names with a slash.
    NamesAreFiles => ["name.path"],
    /// It refuses names that are not ASCII.
    NamesAreAscii => ["name.unicode"],
    /// It fails at names with control characters.
    ControlFails => ["name.control"],
    /// What it was never told cannot be deleted.
    DeleteUnknownIsNotFound => ["id.never-seen"],
    /// It deletes a volume without an id.
    EmptyIdIsFine => ["id.empty"],
    /// It takes a name for the volume whatever the size.
    SizeIgnoredOnRepeat => ["create.other-size"],
    /// It wants the very same range when a call is repeated.
    SizeMustBeEqual => ["create.compatible-size"],
    /// It takes negative sizes for none.
    NegativeSizeTaken => ["create.contradiction"],
    /// It rounds up over the limit.
    LimitIgnored => ["create.odd-size"],
    /// It rounds down.
    RoundsDown => ["create.odd-size"],
    /// It notes a volume before it sees that it is too large.
    RefusedCreateLeavesVolume => ["create.no-such-size"],
    /// It makes a blank volume of a source that does not exist.
    BlankForUnknownSource => ["create.unknown-source"],
    /// It makes volumes where nobody reaches them.
    TopologyIgnored => ["create.unknown-topology"],
    /// It confirms whatever it is asked, with nothing.
    ConfirmsNothing => ["create.validate"],
    /// It deletes what is at a node.
    DeletesPublished => ["delete.published"],
    /// It keeps a deleted volume in the list.
    DeletedIsListed => ["list.deleted"],
    /// It answers an unknown node with INTERNAL.
    UnknownNodeIsInternal => ["publish.unknown-node"],
    /// It does not say where a volume is.
    SecondNodeUnnamed => ["publish.second-node"],
    /// It looks whether a volume is free, and takes it a while later.
    PublishRaces => ["concurrency.two-nodes"],
    /// An empty node id is the id of no node.
    EmptyNodeIsNone => ["unpublish.every-node"],
    /// It takes a volume from wherever it is.
    AnyNodeUnpublishes => ["unpublish.other-node"],
    /// It does not tell the nodes of a volume.
    NodesNotShown => ["publish.shown"],
    /// It answers each publish with another context.
    PublishContextChanges => ["publish.twice", "concurrency.publish"],
    /// It ignores another readonly.
    ReadonlyIgnored => ["publish.other-readonly"],
    /// A second expansion grows the volume again.
    GrowsEachTime => ["expand.grows", "lost.expand"],
    /// It takes a limit below the size.
    ExpandIgnoresLimit => ["expand.limit"],
    /// It has space everywhere.
    CapacityEverywhere => ["capacity.nowhere"],
    /// Its tokens are places in a list that changes.
    PagesByOffset => ["list.churn"],
    /// It begins at the start with a token that it does not know.
    BadTokenIsStart => ["list.bad-token", "snapshot-list.bad-token", "health.list-token"],
    /// Its pages have one entry too many.
    PagesTooLong => ["list.every-page-size", "snapshot-list.every-page-size"],
    /// Its pages lose the entry between them.
    PagesWithGaps => ["list.every-page-size"],
    /// It takes a negative number of entries for no limit.
    NegativeIsAll => ["list.negative", "snapshot-list.negative"],
    /// It takes a name for the snapshot whatever the volume.
    SnapshotOfOtherSource => ["snapshot.other-source"],
    /// Each CreateSnapshot makes one.
    SnapshotEachTime => ["snapshot.twice", "concurrency.snapshot"],
    /// It fills a page and takes out afterwards what does not fit.
    FilterAfterPaging => ["snapshot-list.filter"],
    /// A filter that nothing fits is NOT_FOUND.
    UnknownFilterIsNotFound => ["snapshot-list.nothing"],
    /// It drops the snapshots of a volume with it.
    SnapshotsGoWithVolume => ["snapshot.source-deleted"],
    /// It tells the source of a volume in the first answer only.
    SourceForgotten => ["restore.source", "clone.source"],
    /// It makes volumes smaller than their snapshots.
    RestoreShrinks => ["restore.size", "clone.size"],
    /// It takes a blank volume of that name for the restored one.
    SourceIgnoredOnRepeat => ["restore.same-name"],
    /// It fills a restored volume with what its source has now.
    RestoreIsLive => ["data.snapshot"],
    /// It makes clones that are blank.
    CloneIsBlank => ["data.clone"],
    /// It looks whether a name is free, and takes it a while later.
    CreateRaces => ["concurrency.create"],
    /// It notes the name of a volume a while after it has made it.
    LostCreateMakesSecond => ["lost.create"],
    /// It never ends an attachment whose caller went away.
    LostPublishStaysBusy => ["lost.publish"],
    /// It detaches a while after it has noted that it did, if anybody waits.
    LostUnpublishStays => ["lost.unpublish"],
    /// It notes the name of a snapshot a while after it has made it.
    LostSnapshotMakesSecond => ["lost.snapshot"],
    /// Its reasons are sentences.
    ReasonIsSentence => ["health.storage"],
    /// It lists the healthy too.
    HealthyListed => ["health.list"],
    /// It knows the health of what is not there.
    HealthOfUnknown => ["health.controller"],
    /// It finds what is unknown healthy at the node.
    NodeHealthOfUnknown => ["health.node", "health.node-other-volume"],
    /// It refuses without a word.
    RefusesSilently => ["error.message"],
    /// It shows what it was given in what it says.
    SecretInMessage => ["error.secrets"],
    /// It gives a secret back in the volume context.
    SecretInContext => ["error.secrets"],
    /// Each stage mounts once more.
    StageStacks => ["stage.twice"],
    /// It ignores another capability of what is staged.
    StageIgnoresCapability => ["stage.other-capability"],
    /// It formats a volume that has another filesystem.
    Reformats => ["stage.other-filesystem"],
    /// It cannot unstage what is not staged.
    UnstageNeedsStaged => ["unstage.never-staged"],
    /// Each publish mounts once more.
    PublishStacks => ["node-publish.twice", "concurrency.node", "lost.node"],
    /// It leaves the target behind.
    TargetLeft => ["node-unpublish.removes"],
    /// It publishes what is not staged.
    PublishesUnstaged => ["node-publish.unstaged"],
    /// It cuts paths at the first blank.
    PathsCutAtBlank => ["node-publish.odd-paths"],
    /// It ignores other arguments of what is published.
    OtherArgumentsTaken => ["node-publish.other-arguments"],
    /// It has a second target for a single writer.
    SecondWriterTaken => ["second-target.single-writer"],
    /// It has no second target for many writers.
    SecondWriterRefused => ["second-target.multi-writer"],
    /// It takes all targets away with one.
    UnpublishesAll => ["second-target.multi-writer"],
    /// What is read-only can be written.
    ReadonlyIsWritable => ["data.readonly"],
    /// It makes a volume blank when it is staged.
    StageWipes => ["data.restaged"],
    /// Its volumes share a disk.
    VolumesShared => ["data.apart"],
    /// It has statistics of what is nowhere.
    StatsOfNothing => ["node.stats-elsewhere", "node.stats-other-volume"],
    /// Its statistics are negative.
    StatsNegative => ["node.stats"],
    /// It leaves the filesystem as it is.
    ExpandsNothing => ["node.expand"],
    /// It expands what is nowhere.
    ExpandsAnything => ["node.expand-elsewhere"],
    /// It stages without a capability.
    StagesWithoutCapability => ["node.missing"],
    /// It does not say that it has a Controller service.
    ControllerServiceUnsaid => ["capability.controller-service"],
    /// Its space is negative.
    CapacityNegative => ["capacity.sound"],
    /// It counts its volumes for the next id.
    IdsCounted => ["concurrency.create-others"],
    /// It answers INTERNAL while another call is at a volume.
    BusyIsInternal => ["concurrency.mixed"],
    /// It cannot delete what it has deleted.
    DeleteTwiceFails => ["delete.twice", "id.gone", "lost.delete"],
    /// It looks whether a volume is there, and deletes it a while later.
    DeleteRaces => ["concurrency.delete"],
    /// It does not look at the capabilities of new volumes.
    CapabilitiesUnchecked => ["create.capabilities"],
    /// It wants a size.
    SizeRequired => ["create.no-size"],
    /// It tells the context of a volume in the first answer only.
    ContextForgotten => ["create.twice"],
    /// It shows a file where a block device should be.
    BlockTargetIsFile => ["data.block-device"],
    /// It keeps the names of deleted volumes.
    DeletedNameIsTaken => ["delete.name"],
    /// Its refusals have details.
    RefusesWithDetails => ["error.details"],
    /// It expands without being told how far.
    ExpandNeedsNoSize => ["expand.contradiction"],
    /// ControllerGetVolume does not know the size.
    GetForgetsSize => ["get.agrees"],
    /// Its list has other sizes.
    ListSizeWrong => ["list.agrees"],
    /// Its node takes less than no volumes.
    NegativeLimit => ["identity.node-info"],
    /// It has another version each time.
    VersionChanges => ["identity.one-plugin"],
    /// It takes any mutable parameter.
    ModifyTakesAnything => ["modify.refuses"],
    /// It makes volumes without a name.
    NameOptional => ["name.empty"],
    /// It fails at long names.
    LongNameFails => ["name.too-long"],
    /// It cannot unpublish what is not published at the node.
    TargetNeedsPublished => ["node-unpublish.never-published"],
    /// It does not look at the capability of an attachment.
    AttachUnchecked => ["publish.capability"],
    /// It breaks at a second target.
    SecondTargetFails => ["second-target.single-node-writer"],
    /// It cannot delete a snapshot that is gone.
    SnapshotDeleteTwiceFails => ["snapshot.delete"],
    /// GetSnapshot does not know the size.
    SnapshotGetForgets => ["snapshot.get"],
    /// It answers INTERNAL for a snapshot of nothing.
    SnapshotOfNothingIsInternal => ["snapshot.unknown-source"],
    /// It is stuck with a node that is gone.
    GoneNodeIsStuck => ["unpublish.gone-node"],
    /// It cannot unpublish what is not published.
    UnpublishNeedsPublished => ["unpublish.never-published", "unpublish.twice"],
}
