//! What the project's own commands share with its integration tests: programs, a small world of
//! simulated cloud, controller and nodes, virtual machines for it, and the calls of a volume's life.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "commands report to the person who typed them"
)]

pub mod command;
pub mod guest;
pub mod interrupt;
pub mod leftover;
pub mod playground;
pub mod setup;
pub mod volume_life;
