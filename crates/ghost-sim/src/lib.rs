//! The simulated cloud: a block storage API with real files and loop devices behind it.
//!
//! For development only; no product contains it. It shares no type with the driver, above all
//! not the wire types, because client and simulator would then agree on the same mistake.
//!
//! [`state`] is the cloud as a pure state machine, [`api`] turns requests into responses over it
//! and [`fault`] makes chosen ones go wrong; these three know no socket, no disk and no clock and
//! can be run in-process under any time. [`disk`] and [`store`] are the real files and devices,
//! [`simulator`] holds all that together under the real clock, and [`serve`] is the listener.
//!
//! What was written to a volume stays: no file is ever made smaller, and none is removed before
//! the stored state has forgotten it.

pub mod api;
pub mod disk;
pub mod fault;
pub mod serve;
pub mod simulator;
pub mod state;
pub mod store;
pub mod token;
