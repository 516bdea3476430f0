"""What `demo` changes in a configuration."""

import pytest

from edge_server.cli.commands.demo import without_testers
from edge_server.config.load import load_config


@pytest.mark.parametrize(("words", "testers"), [([], 0), (["testers=2"], 2), (["testers=0"], 0)])
def test_devices_on_this_machine_get_the_cores_of_tests_unless_the_file_says_otherwise(words, testers):
    config = load_config("fedavg", ["data.source=digits", *words])
    assert without_testers(config).federation.testers == testers
