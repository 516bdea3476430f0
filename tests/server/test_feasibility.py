"""`edge-server check` looks at the data where it is on this machine: can it be shared out so?"""

from __future__ import annotations

import json

import pytest

from edge_server.cli import main


def check(*words: str) -> int:
    return main(["check", "--format", "json", "fedavg", *words])


IMPOSSIBLE = {
    "more shards than examples": (
        ("data.source=digits", "partition=shards", "shards=400"),
        "fedavg: [data] partition: 2000 shards for 5 clients are more than 1438 examples",
    ),
    "more examples per client than there are": (
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
    "data that nobody knows": (
        ("data.source=digit",),
        "fedavg: [data] source: unknown data source 'digit' (did you mean 'digits'?)",
    ),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_data_that_cannot_be_shared_out_is_refused(capsys, what):
    words, said = IMPOSSIBLE[what]
    assert check(*words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("data.source=digits", "partition=shards", "shards=2"),
        ("data.source=digits", "samples-per-client=200"),
        ("data.source=MNIST", "data-root=/nowhere", "num-clients=100000"),
        ("num-clients=100000",),
    ],
    ids=["few shards", "few examples", "data that is elsewhere", "no data"],
)
def test_data_that_can_be_shared_out_or_is_not_here_is_right(capsys, words):
    assert check(*words) == 0
    assert json.loads(capsys.readouterr().out)["strategy"]["combiner"]["name"] == "mean"
