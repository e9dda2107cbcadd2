//! The checks: what each demands, and of which drivers.

use futures_util::future::BoxFuture;
use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use pb::node_service_capability::rpc::Type as NodeRpc;
use pb::plugin_capability::service::Type as Service;

use crate::driver::{Driver, Half};
use crate::options::{Access, Options};
use crate::trial::Trial;
use crate::verdict::Verdict;

mod capability;
mod capacity;
mod concurrency;
mod content;
mod create;
mod delete;
mod error;
mod expand;
mod health;
mod id;
mod identity;
mod list;
mod lost;
mod name;
mod node;
mod node_data;
mod node_publish;
mod node_stage;
mod node_target;
mod publish;
mod snapshot;
mod snapshot_list;

/// One thing that is demanded of drivers.
pub struct Check {
    /// Its name: a group, a dot, and what it is about.
    pub name: &'static str,
    /// What is demanded, in one sentence.
    pub about: &'static str,
    needs: &'static [Need],
    run: for<'t> fn(&'t Trial) -> BoxFuture<'t, Verdict>,
}

/// What must be there for a check to apply.
#[derive(Clone, Copy, Debug)]
enum Need {
    /// The controller's socket.
    Controller,
    /// The node's socket.
    Node,
    /// Volumes that can be made.
    Volume,
    /// Volumes that can be made and attached.
    Attachment,
    /// A second node.
    SecondNode,
    /// Volumes that can be made and used at the node, by a suite that may look at them.
    Use,
    /// Volumes that are used as filesystems.
    Mount,
    /// Volumes that are used as block devices.
    Block,
    /// A capability of the controller.
    Rpc(ControllerRpc),
    /// A capability of the node.
    NodeRpc(NodeRpc),
    /// A service or constraint of the plugin.
    Service(Service),
}

/// All checks, in the order in which they are made.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let groups: [&'static [Check]; 22] = [
        identity::CHECKS,
        capability::CHECKS,
        name::CHECKS,
        id::CHECKS,
        create::CHECKS,
        delete::CHECKS,
        publish::CHECKS,
        expand::CHECKS,
        capacity::CHECKS,
        list::CHECKS,
        snapshot::CHECKS,
        snapshot_list::CHECKS,
        content::CHECKS,
        node::CHECKS,
        node_stage::CHECKS,
        node_publish::CHECKS,
        node_target::CHECKS,
        node_data::CHECKS,
        lost::CHECKS,
        concurrency::CHECKS,
        health::CHECKS,
        error::CHECKS,
    ];
    groups.into_iter().flatten()
}

impl Check {
    /// Why it does not apply, if it does not.
    pub(crate) fn missing(&self, driver: &Driver, options: &Options) -> Option<String> {
        self.needs.iter().find_map(|need| need.missing(driver, options))
    }

    /// Makes it.
    pub(crate) fn make<'t>(&self, trial: &'t Trial) -> BoxFuture<'t, Verdict> {
        (self.run)(trial)
    }
}

impl Need {
    fn missing(self, driver: &Driver, options: &Options) -> Option<String> {
        let all = |needs: &[Self]| needs.iter().find_map(|need| need.missing(driver, options));
        let without = |there: bool, what: &str| (!there).then(|| what.to_owned());
        let unclaimed =
            |there: bool, what: &str| (!there).then(|| format!("{what} is not claimed"));
        match self {
            Self::Controller => without(driver.has(Half::Controller), "no controller socket"),
            Self::Node => without(driver.has(Half::Node), "no node socket"),
            Self::Volume => all(&[Self::Controller, Self::Rpc(ControllerRpc::CreateDeleteVolume)]),
            Self::Attachment => {
                all(&[Self::Volume, Self::Rpc(ControllerRpc::PublishUnpublishVolume)])
                    .or_else(|| without(has_node_id(driver, options), "no node id is known"))
            }
            Self::SecondNode => without(options.second_node_id.is_some(), "no second node id"),
            Self::Use => {
                let attaches = driver.offers(ControllerRpc::PublishUnpublishVolume);
                let root = rustix::process::geteuid().is_root();
                all(&[Self::Volume, Self::Node])
                    .or_else(|| all(if attaches { &[Self::Attachment] } else { &[] }))
                    .or_else(|| without(root, "it is for root"))
            }
            Self::Mount => {
                without(options.access == Access::Mount, "volumes are used as block devices")
            }
            Self::Block => {
                without(options.access == Access::Block, "volumes are used as filesystems")
            }
            Self::Rpc(rpc) => unclaimed(driver.offers(rpc), rpc.as_str_name()),
            Self::NodeRpc(rpc) => {
                unclaimed(driver.node_offers(rpc), &format!("{} of the node", rpc.as_str_name()))
            }
            Self::Service(service) => unclaimed(driver.serves(service), service.as_str_name()),
        }
    }
}

fn has_node_id(driver: &Driver, options: &Options) -> bool {
    options.node_id.is_some() || driver.info().is_some_and(|info| !info.node_id.is_empty())
}

/// A line of a table of checks.
macro_rules! check {
    ($name:literal, $about:literal, [$($need:expr),*], $run:path) => {
        $crate::check::Check {
            name: $name,
            about: $about,
            needs: &[$($need),*],
            run: |trial| Box::pin($run(trial)),
        }
    };
}
pub(in crate::check) use check;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_check_says_what_it_demands() {
        let mut names: Vec<&str> = checks().map(|check| check.name).collect();
        names.sort_unstable();
        let total = names.len();
        names.dedup();
        assert_eq!(names.len(), total);
        for check in checks() {
            let form = |c: char| c.is_ascii_lowercase() || c == '-' || c == '.';
            assert!(check.name.chars().all(form), "{}", check.name);
            assert_eq!(check.name.matches('.').count(), 1, "{}", check.name);
            assert!(check.about.len() > 10 && check.about.len() < 110, "{}", check.name);
        }
    }
}
