"""Files that are disposed of: out of the way at once, removed soon, never in the way of the next ones."""

from edge_server.storage.background_delete import BackgroundDelete


def test_a_file_is_out_of_the_way_at_once_and_its_name_may_be_used_again(tmp_path):
    disposal, path = BackgroundDelete(tmp_path / "disposal"), tmp_path / "blob"
    for content in ("first", "second"):
        path.write_text(content)
        disposal.take(path)
        assert not path.exists()
    path.write_text("third")
    disposal.close()
    assert [one.name for one in tmp_path.iterdir()] == ["blob"]
    assert path.read_text() == "third"


def test_a_file_that_is_not_there_needs_nothing(tmp_path):
    disposal = BackgroundDelete(tmp_path / "disposal")
    disposal.take(tmp_path / "blob")
    disposal.close()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed(tmp_path):
    left = tmp_path / "disposal"
    left.mkdir()
    (left / "0").write_text("blob")
    disposal = BackgroundDelete(left)
    assert not left.exists()
    disposal.close()
