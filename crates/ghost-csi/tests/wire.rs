//! Compares the compiled protocol with the published table of CSI 1.13.0, in both directions.
//!
//! Each side becomes a set of [`Row`]s with the columns of `wire-1.13.0.tsv`, and the sets must be
//! equal. The compiled side also yields rows for things that have no place in the table, such as
//! an option on a service, so that nothing unlisted goes unseen.
//!
//! The marks for alpha parts and secrets are options, which prost's own descriptor types cannot
//! hold. So `proto/csi.proto` is compiled here once more, by the same compiler, and one test shows
//! that what the crate was built from is the same in all else. Whether the marks for secrets had
//! their effect is tested on the generated types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use protox::Compiler;
use protox::prost::Message;
use protox::prost_reflect::prost_types::FileDescriptorSet;
use protox::prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, EnumDescriptor, ExtensionDescriptor,
    FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor, ServiceDescriptor, Syntax, Value,
};

const TABLE: &str = include_str!("wire-1.13.0.tsv");
const HEADER: &str =
    "kind\towner\tname\tnumber\ttype_or_input\tlabel_or_output\toneof_or_stream\tflags";
const PACKAGE: &str = "csi.v1";

/// One line of the table; a column without meaning for the kind is empty.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    kind: String,
    owner: String,
    name: String,
    number: String,
    type_or_input: String,
    label_or_output: String,
    oneof_or_stream: String,
    flags: String,
}

#[test]
fn every_row_of_the_table_is_in_the_compiled_protocol() {
    let compiled = compiled_rows();
    let missing = table_rows().into_iter().filter(|row| !compiled.contains(row));
    assert_none("in the table, but not so in proto/csi.proto", missing, &compiled);
}

#[test]
fn nothing_in_the_compiled_protocol_is_absent_from_the_table() {
    let table: BTreeSet<Row> = table_rows().into_iter().collect();
    let unlisted = compiled_rows().into_iter().filter(|row| !table.contains(row));
    assert_none("in proto/csi.proto, but not so in the table", unlisted, &table);
}

#[test]
fn the_table_is_complete() {
    let rows = table_rows();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &rows {
        *counts.entry(&row.kind).or_default() += 1;
    }
    let expected = [("enum", 57), ("extension", 7), ("field", 216), ("message", 104), ("rpc", 36)];
    assert_eq!(counts, BTreeMap::from(expected), "rows of each kind in wire-1.13.0.tsv");

    let mut flags: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.flags.is_empty()) {
        *flags.entry(&row.flags).or_default() += 1;
    }
    let expected = [("alpha", 34), ("secret", 21), ("secret,alpha", 1)];
    assert_eq!(flags, BTreeMap::from(expected), "rows with flags in wire-1.13.0.tsv");

    let distinct: BTreeSet<&Row> = rows.iter().collect();
    assert_eq!(distinct.len(), rows.len(), "a row of wire-1.13.0.tsv stands there twice");
}

#[test]
fn the_crate_was_built_from_the_protocol_that_is_compared() {
    let built =
        FileDescriptorSet::decode(ghost_csi::FILE_DESCRIPTOR_SET).expect("build.rs wrote it");
    let compared = compiler().file_descriptor_set();
    for (built, compared) in built.file.iter().zip(&compared.file) {
        assert!(built == compared, "{} was compiled differently", built.name());
    }
    assert_eq!(built.file.len(), compared.file.len());
    assert!(built.file.iter().any(|file| file.name() == "csi.proto"));
}

#[test]
fn the_protocol_is_one_proto3_file_beside_the_standard_ones() {
    let pool = pool();
    let own: Vec<_> =
        pool.files().filter(|file| file.package_name() != "google.protobuf").collect();
    let names: Vec<_> = own.iter().map(|file| (file.name(), file.package_name())).collect();
    assert_eq!(names, [("csi.proto", PACKAGE)]);
    // The syntax decides how lists of numbers are packed and which fields have presence.
    assert_eq!(own[0].syntax(), Syntax::Proto3);
}

#[test]
fn a_message_with_secrets_cannot_be_printed() {
    let printable = printable_by_name();
    let in_table: BTreeSet<String> = table_rows()
        .into_iter()
        .filter(|row| row.flags.split(',').any(|flag| flag == "secret"))
        .map(|row| row.owner)
        .collect();
    let examined: BTreeSet<String> = printable.keys().map(|name| (*name).to_owned()).collect();
    assert_eq!(examined, in_table, "the list in `printable_by_name` is not that of the table");

    let leaking: Vec<_> = printable.iter().filter(|(_, printable)| **printable).collect();
    assert!(leaking.is_empty(), "messages that carry secrets have `Debug`: {leaking:?}");
}

#[test]
fn the_probe_for_debug_finds_it_where_it_exists() {
    let printable = [
        Probe::<ghost_csi::CreateVolumeResponse>::PRINTABLE,
        Probe::<ghost_csi::NodeUnstageVolumeRequest>::PRINTABLE,
        Probe::<Unprintable>::PRINTABLE,
    ];
    assert_eq!(printable, [true, true, false]);
}

/// Fails naming every row, each with what the other side has under the same name.
fn assert_none(fault: &str, rows: impl Iterator<Item = Row>, other_side: &BTreeSet<Row>) {
    let report: Vec<String> = rows
        .map(|row| {
            let namesake = |other: &&Row| {
                (&other.kind, &other.owner, &other.name) == (&row.kind, &row.owner, &row.name)
            };
            let there = other_side.iter().find(namesake);
            format!("  {row}\n    there: {}", there.map_or("nothing".to_owned(), Row::to_string))
        })
        .collect();
    assert!(report.is_empty(), "{} rows are {fault}:\n{}", report.len(), report.join("\n"));
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.kind, self.owner)?;
        let columns = [
            ("name", &self.name),
            ("number", &self.number),
            ("type or input", &self.type_or_input),
            ("label or output", &self.label_or_output),
            ("oneof or stream", &self.oneof_or_stream),
            ("flags", &self.flags),
        ];
        columns
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .try_for_each(|(column, value)| write!(out, ", {column} {value}"))
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

// The table.

fn table_rows() -> Vec<Row> {
    let mut lines = TABLE.lines();
    assert_eq!(lines.next(), Some(HEADER), "the columns of wire-1.13.0.tsv");
    lines.map(table_row).collect()
}

fn table_row(line: &str) -> Row {
    let columns: Vec<String> = line.split('\t').map(str::to_owned).collect();
    let columns: [String; 8] = columns
        .try_into()
        .unwrap_or_else(|columns| panic!("a row without eight columns: {columns:?}"));
    let [kind, owner, name, number, type_or_input, label_or_output, oneof_or_stream, flags] =
        columns;
    Row { kind, owner, name, number, type_or_input, label_or_output, oneof_or_stream, flags }
}

// The compiled protocol.

/// The compiler as `build.rs` uses it, with the protocol read.
fn compiler() -> Compiler {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let mut compiler = Compiler::new([folder]).expect("the folder is part of the crate");
    compiler.include_source_info(true).include_imports(true);
    compiler.open_file("csi.proto").expect("build.rs compiled it");
    compiler
}

fn pool() -> DescriptorPool {
    compiler().descriptor_pool()
}

fn compiled_rows() -> BTreeSet<Row> {
    let pool = pool();
    let mut rows = Vec::new();
    for message in pool.all_messages().filter(|message| own(message.package_name())) {
        rows.extend(message_rows(&message));
    }
    for list in pool.all_enums().filter(|list| own(list.package_name())) {
        rows.extend(enum_rows(&list));
    }
    for extension in pool.all_extensions().filter(|extension| own(extension.package_name())) {
        rows.push(extension_row(&extension));
    }
    for service in pool.services().filter(|service| own(service.package_name())) {
        rows.extend(service_rows(&service));
    }
    let count = rows.len();
    let distinct: BTreeSet<Row> = rows.into_iter().collect();
    assert_eq!(distinct.len(), count, "two parts of the protocol give the same row");
    distinct
}

/// Whether a package is not one of the standard ones that CSI only imports.
fn own(package: &str) -> bool {
    package != "google.protobuf"
}

fn message_rows(message: &MessageDescriptor) -> Vec<Row> {
    // The compiler makes a message for the pairs of each map field; the table has none of them.
    if message.is_map_entry() {
        return Vec::new();
    }
    let mut rows = vec![Row {
        kind: "message".into(),
        owner: local_name(message.full_name()),
        flags: flags(&message.options()),
        ..Row::default()
    }];
    rows.extend(message.fields().map(|field| field_row(message, &field)));
    rows
}

fn field_row(message: &MessageDescriptor, field: &FieldDescriptor) -> Row {
    let oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
    Row {
        kind: "field".into(),
        owner: local_name(message.full_name()),
        name: field.name().into(),
        number: field.number().to_string(),
        type_or_input: field_type(field),
        label_or_output: label(field).into(),
        oneof_or_stream: oneof.map_or(String::new(), |oneof| oneof.name().into()),
        flags: flags(&field.options()),
    }
}

fn field_type(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let key = type_name(&entry.map_entry_key_field().kind());
            let value = type_name(&entry.map_entry_value_field().kind());
            format!("map<{key},{value}>")
        }
        kind => type_name(&kind),
    }
}

/// A scalar as it is written in a `.proto`, a message or enum by its full name.
fn type_name(kind: &Kind) -> String {
    // The library documents no such text, but gives exactly this one for `Debug`; if it ever
    // changes, every row fails.
    format!("{kind:?}")
}

fn label(field: &FieldDescriptor) -> &'static str {
    match field.cardinality() {
        _ if field.is_map() => "map",
        _ if field.field_descriptor_proto().proto3_optional() => "optional",
        Cardinality::Repeated => "repeated",
        Cardinality::Required => "required",
        Cardinality::Optional => "singular",
    }
}

fn enum_rows(list: &EnumDescriptor) -> Vec<Row> {
    let owner = local_name(list.full_name());
    let mut rows: Vec<Row> = list
        .values()
        .map(|value| Row {
            kind: "enum".into(),
            owner: owner.clone(),
            name: value.name().into(),
            number: value.number().to_string(),
            flags: flags(&value.options()),
            ..Row::default()
        })
        .collect();
    // The table has no rows for enums as such: an option on one is a difference.
    rows.extend(unlisted_options("enum", &owner, &list.options()));
    rows
}

fn extension_row(extension: &ExtensionDescriptor) -> Row {
    Row {
        kind: "extension".into(),
        owner: extension.containing_message().full_name().into(),
        name: local_name(extension.full_name()),
        number: extension.number().to_string(),
        type_or_input: type_name(&extension.kind()),
        label_or_output: if extension.is_list() { "repeated".into() } else { String::new() },
        flags: flags(&extension.options()),
        ..Row::default()
    }
}

fn service_rows(service: &ServiceDescriptor) -> Vec<Row> {
    let owner = local_name(service.full_name());
    let mut rows: Vec<Row> = service.methods().map(|method| method_row(&owner, &method)).collect();
    if rows.is_empty() {
        rows.push(Row {
            kind: "service without calls".into(),
            owner: owner.clone(),
            ..Row::default()
        });
    }
    // The table has no rows for services as such: an option on one is a difference.
    rows.extend(unlisted_options("service", &owner, &service.options()));
    rows
}

fn method_row(service: &str, method: &MethodDescriptor) -> Row {
    let stream = match (method.is_client_streaming(), method.is_server_streaming()) {
        (false, false) => "",
        (false, true) => "server-stream",
        (true, false) => "client-stream",
        (true, true) => "client-stream,server-stream",
    };
    Row {
        kind: "rpc".into(),
        owner: service.into(),
        name: method.name().into(),
        type_or_input: method.input().full_name().into(),
        label_or_output: method.output().full_name().into(),
        oneof_or_stream: stream.into(),
        flags: flags(&method.options()),
        ..Row::default()
    }
}

fn unlisted_options(kind: &str, owner: &str, options: &DynamicMessage) -> Option<Row> {
    let flags = flags(options);
    (!flags.is_empty()).then(|| Row {
        kind: kind.into(),
        owner: owner.into(),
        flags,
        ..Row::default()
    })
}

/// The options that are set, in the order of their numbers: CSI's own in the words of the table,
/// any other by its name, so that it is found to be a difference.
fn flags(options: &DynamicMessage) -> String {
    let mut set: BTreeMap<u32, String> = BTreeMap::new();
    for (option, value) in options.extensions() {
        let name = match local_name(option.full_name()).as_str() {
            "csi_secret" => "secret".to_owned(),
            alpha if alpha.starts_with("alpha_") => "alpha".to_owned(),
            other => other.to_owned(),
        };
        let text = if *value == Value::Bool(true) { name } else { format!("{name}={value}") };
        set.insert(option.number(), text);
    }
    for (option, value) in options.fields() {
        set.insert(option.number(), format!("{}={value}", option.name()));
    }
    for unknown in options.unknown_fields() {
        set.insert(unknown.number(), format!("unknown option {}", unknown.number()));
    }
    set.into_values().collect::<Vec<_>>().join(",")
}

/// The name as in the table: without CSI's package, or in full if it is in another one.
fn local_name(full_name: &str) -> String {
    let local = full_name.strip_prefix(PACKAGE).and_then(|rest| rest.strip_prefix('.'));
    local.unwrap_or(full_name).to_owned()
}

// Whether a type has `Debug`. A constant of the type itself goes before one of a trait, and the
// former exists only where the bound holds; so the compiler chooses by the bound.

struct Probe<T>(PhantomData<T>);

impl<T: fmt::Debug> Probe<T> {
    const PRINTABLE: bool = true;
}

trait WithoutDebug {
    const PRINTABLE: bool = false;
}

impl<T> WithoutDebug for Probe<T> {}

struct Unprintable;

/// The messages with secrets, and whether they can be printed.
fn printable_by_name() -> BTreeMap<&'static str, bool> {
    macro_rules! probe {
        ($($message:ident)*) => {
            BTreeMap::from([$((
                stringify!($message),
                Probe::<ghost_csi::$message>::PRINTABLE,
            )),*])
        };
    }
    probe! {
        CreateVolumeRequest
        DeleteVolumeRequest
        ControllerPublishVolumeRequest
        ControllerUnpublishVolumeRequest
        ValidateVolumeCapabilitiesRequest
        ControllerListVolumeHealthRequest
        ControllerGetVolumeHealthRequest
        CreateSnapshotRequest
        DeleteSnapshotRequest
        ListSnapshotsRequest
        GetSnapshotRequest
        ControllerExpandVolumeRequest
        ControllerModifyVolumeRequest
        CreateVolumeGroupSnapshotRequest
        DeleteVolumeGroupSnapshotRequest
        GetVolumeGroupSnapshotRequest
        GetMetadataAllocatedRequest
        GetMetadataDeltaRequest
        NodeStageVolumeRequest
        NodePublishVolumeRequest
        NodeGetStorageHealthRequest
        NodeExpandVolumeRequest
    }
}
