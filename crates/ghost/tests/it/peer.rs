//! The storm of attachments measures another driver by its socket, under the same rules: here a
//! second ghost.

use std::path::Path;
use std::process::Stdio;

use xtask::command::program;

use crate::process::free_address;
use crate::world::World;

#[tokio::test]
async fn another_driver_has_rows_of_its_own_in_the_storm() {
    let mut world = World::empty("0ms", false, "warn");
    let cloud = free_address();
    world.parts.start_controller_at(&format!("http://{cloud}"), &[]).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_ghost")).parent().unwrap();
    let mut command = program(programs.join("xtask"));
    command
        .args(["bench", "--measure"])
        .arg(programs)
        .args(["attach-storm", "--volumes", "12", "--peer-cloud", &cloud, "--peer-endpoint"])
        .arg(world.parts.controller_socket())
        .arg("--peer-token-file")
        .arg(world.path("token"))
        .stdin(Stdio::null());
    let run = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (told, error) =
        (String::from_utf8(run.stdout).unwrap(), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{told}\n{error}");
    for name in ["ghost, all at once", "ghost, 10 callers", "peer, all at once", "peer, 10 callers"]
    {
        let row = told.lines().find_map(|line| line.strip_prefix(name));
        let row = row.unwrap_or_else(|| panic!("no row {name:?}: {told}"));
        // took, "s", floor, "s", ratio, median, "s", calls, refused, goal
        let cells: Vec<&str> = row.split_whitespace().collect();
        let [took, _, _, _, _, _, _, calls, refused, goal] = cells[..] else { panic!("{row}") };
        assert!(took.parse::<f64>().unwrap() >= 5.0, "sooner than the cloud: {told}");
        assert!(calls.parse::<u32>().unwrap() > 12, "{told}");
        assert_eq!((refused, goal), ("0", "none"), "{told}");
    }
}
