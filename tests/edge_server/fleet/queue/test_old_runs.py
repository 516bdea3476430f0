"""Old run folders are removed, also those that an earlier service began to remove."""

from pathlib import Path

from edge_server.fleet.queue.jobs_part import GONE, remove_run_folders


def test_run_folders_are_removed(tmp_path: Path) -> None:
    for name in ("night-1", "night-2", "night-3", f"{GONE}night-0"):
        (tmp_path / name / "models").mkdir(parents=True)
    remove_run_folders(tmp_path, ["night-1", "night-2", "night-missing"]).join(30)
    assert [path.name for path in tmp_path.iterdir()] == ["night-3"]
