"""`edge-server check` verifies that the data exists and can be partitioned as stated."""

import json

import pytest

from edge_server.cli.main import main
from tests.edge_client.data.pictures.box_samples import BROKEN, source_of, write_broken


def check(*words: str) -> int:
    return main(["check", "--format", "json", "fedavg", *words])


IMPOSSIBLE = {
    "more shards than examples": (
        ("data.source=digits", "partition=shards", "shards=400"),
        "fedavg: [data] partition: 2000 shards for 5 clients are more than 1438 examples",
    ),
    "more examples per client than available": (
        ("data.source=digits", "samples-per-client=300"),
        "fedavg: [data] samples-per-client: 5 devices of 300 need 1500 examples, the data has 1438",
    ),
    "more devices than examples": (
        ("data.source=digits", "num-clients=2000"),
        "fedavg: [clients] num-clients: 2000 devices are more than 1438 examples",
    ),
    "more pairs than labels": (
        ("data.source=digits", "partition=paired", "num-clients=22"),
        "fedavg: [data] partition: 22 clients are 11 pairs, more than the 10 labels",
    ),
    "an unknown data source": (
        ("data.source=digit",),
        "fedavg: [data] source: unknown data source 'digit' (did you mean 'digits'?)",
    ),
    "a missing data set": (
        ("data.source=MNIST", "data-root=/nowhere"),
        "fedavg: [data] source: no MNIST below /nowhere: put its unpacked files",
    ),
    "a missing folder": (
        ("data.source=folder:/nowhere",),
        "fedavg: [data] source: folder:/nowhere: there is no such folder",
    ),
    "a missing file": (("data.source=npz:/nowhere.npz",), "fedavg: [data] source: cannot read /nowhere.npz"),
    "a missing module": (
        ("data.source=python:no_such_module:load",),
        "fedavg: [data] source: data source python:no_such_module:load: there is no module 'no_such_module'",
    ),
    "a missing function": (("data.source=python:os:load",), "os.py has no function 'load'"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_data_that_cannot_be_partitioned_is_refused(capsys, what):
    words, message = IMPOSSIBLE[what]
    assert check(*words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_of_boxes_are_refused_in_one_line(capsys, tmp_path, kind):
    said, source = write_broken(kind, tmp_path), source_of(kind, tmp_path)
    network = ("task=detection", "model.name=detector:cnn", "input-shape=[3,64,64]")
    assert check(f"data.source={kind}:{source}", *network) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    "words",
    [
        ("data.source=digits", "partition=shards", "shards=2"),
        ("data.source=digits", "samples-per-client=200"),
        ("num-clients=100000",),
    ],
    ids=["few shards", "few examples", "no data"],
)
def test_data_that_can_be_partitioned_or_is_not_named_is_accepted(capsys, words):
    assert check(*words) == 0
    assert json.loads(capsys.readouterr().out)["strategy"]["combiner"]["name"] == "mean"
