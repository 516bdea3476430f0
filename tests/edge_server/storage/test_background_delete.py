"""Background deletion: files disappear from their path immediately and are removed later."""

from edge_server.storage.run_files import BackgroundDelete


def test_a_file_disappears_immediately_and_its_name_may_be_reused(tmp_path):
    disposal, path = BackgroundDelete(tmp_path / "disposal"), tmp_path / "blob"
    for content in ("first", "second"):
        path.write_text(content)
        disposal.take(path)
        assert not path.exists()
    path.write_text("third")
    disposal.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["blob"]
    assert path.read_text() == "third"


def test_a_missing_file_is_ignored(tmp_path):
    disposal = BackgroundDelete(tmp_path / "disposal")
    disposal.take(tmp_path / "blob")
    disposal.close()
    assert not list(tmp_path.iterdir())


def test_files_left_by_a_killed_process_are_removed(tmp_path):
    left = tmp_path / "disposal"
    left.mkdir()
    (left / "0").write_text("blob")
    disposal = BackgroundDelete(left)
    assert not left.exists()
    disposal.close()
