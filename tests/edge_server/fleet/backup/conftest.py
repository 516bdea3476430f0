"""The small service of the tests of backups."""

from pathlib import Path

import pytest

from tests.edge_server.fleet.backup.small_service import SmallService


@pytest.fixture
def service(tmp_path: Path) -> SmallService:
    """A service with a run that is under way."""
    return SmallService(tmp_path)
