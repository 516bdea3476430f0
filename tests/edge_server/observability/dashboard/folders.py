"""Run folders for tests, written by the same writers that real runs use."""

from pathlib import Path
from typing import Any

import numpy as np

from edge_server.config.load import load_config
from edge_server.rounds.events import Assignment
from edge_server.rounds.fleet import Device
from edge_server.storage.journal import AggregatedUpdate, Journal
from edge_server.storage.records import DeviceRecord, Rejected, RoundRecord, Summary
from edge_server.storage.run_folder import RunFolder
from edge_server.strategy.explanations import (
    ChannelScores,
    DeviceChoice,
    Observation,
    RoundChoices,
    Similarity,
)
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment
from schemas.values import CapabilityProfile, DataCard, DeliveryVerdict
from tests.edge_server.observability.terminal import shown
from tests.schemas.examples import MESSAGES_BY_KIND

UPDATE, TASK = MESSAGES_BY_KIND["update"], MESSAGES_BY_KIND["task"]
MARKUP = "<script>alert(1)</script>"
WORDS = ("data.source=digits", "model.name=mlp", "num-clients=2", "rounds=3", "tiers.ratios=[0.5, 0.0]")
CHANNELS = ChannelMap(
    groups={"hidden": ChannelGroup(channels=4, layers=("fc1",))},
    parameters={
        "fc1.weight": ParameterLayout(shape=(4, 3), axes={0: (Segment(channels=4, group="hidden"),)}),
        "fc1.running_mean": ParameterLayout(shape=(4,), axes={0: (Segment(channels=4, group="hidden"),)}),
        "fc2.weight": ParameterLayout(shape=(2, 4), axes={1: (Segment(channels=4, group="hidden"),)}),
    },
)
"""20 trainable numbers: 4 x 3 and 2 x 4."""
PROFILE = CapabilityProfile(machine="Pi 4", processor="Cortex-A72", cores=4, memory_bytes=4096, tier=1)


def record(number: int, **fields: Any) -> RoundRecord:
    """A round in which `alpha` counted and `beta` was refused."""
    values: dict[str, Any] = {
        "selected": ("alpha", "beta"),
        "completed": ("alpha",),
        "rejected": (Rejected(device="beta", reason="not-finite"),),
        "uplink_bytes": 40,
        "downlink_bytes": 120,
        "duration_s": 1.5,
        "weights": {"alpha": 1.0},
    }
    return shown.record(number, **(values | fields))


def observed(number: int) -> Observation:
    """Scores of four channels; tier 1 keeps the first and the third channel."""
    scores = ChannelScores(
        layers=("fc1",), measure="attention", scores=(0.9, 0.1, 0.5, 0.1), kept={1: (0, 2), 2: 4}
    )
    alike = Similarity(clients=("alpha", "beta"), values=((1.0, 0.5), (0.5, 1.0)))
    return Observation(round=number, groups={"hidden": scores}, similarity=alike)


def chosen(number: int) -> RoundChoices:
    """`alpha` is chosen and `beta` is not; the reason for `alpha` contains HTML markup."""
    asked = DeviceChoice(device="alpha", chosen=True, because=f"drawn with chance 0.6 {MARKUP}", score=0.6)
    other = DeviceChoice(device="beta", chosen=False, because="not drawn")
    return RoundChoices(attempt=number, round=number, devices=(asked, other))


def begun(path: Path, *, rounds: int = 2) -> tuple[RunFolder, Journal]:
    """Create a run with `rounds` closed rounds and one open round whose journal is still being written."""
    folder = RunFolder.create(path, load_config("attending", WORDS))
    params = {name: np.ones(parameter.shape, np.float32) for name, parameter in CHANNELS.parameters.items()}
    folder.save_model(rounds, params, CHANNELS, {})
    journal = Journal(folder.journal)
    journal.begun("run-1", "federation")
    for number in range(1, rounds + 2):
        journal.write_planning(
            number,
            number,
            {"alpha": Assignment(TASK, 1000)},
            devices=[device("alpha"), device("beta")],
            clients={"alpha": (1, 60), "beta": (2, 60)},
            choices=chosen(number),
        )
        if number <= rounds:
            close(folder, journal, number)
    return folder, journal


def close(folder: RunFolder, journal: Journal, number: int) -> None:
    """Close one more round: `alpha` counted, `beta` was refused."""
    journal.write_examined(_update("alpha", number), reason=None)
    journal.write_examined(_update("beta", number), reason="not-finite")
    journal.struck("beta", number, "not-finite")
    line = record(number)
    updates = [AggregatedUpdate("alpha", number, "a" * 64, 0)]
    text = line.model_dump_json()
    journal.write_closed_round(
        number,
        "b" * 64,
        updates=updates,
        over=["alpha"],
        record=text,
        traffic={},
        observation=observed(number),
    )
    folder.add_round(line)


def ended(path: Path) -> RunFolder:
    """Create a finished run of two rounds with one ONNX file."""
    folder, journal = begun(path)
    folder.onnx(1).write_bytes(b"an ONNX file")
    folder.write_summary(summary())
    journal.close()
    return folder


def summary() -> Summary:
    """The summary of a finished run."""
    alpha = DeviceRecord(
        device="alpha",
        tier=1,
        ratio=0.5,
        parameters=10,
        macs=77,
        onnx_bytes=12,
        latency_ms=0.5,
        onnx_accuracy=0.75,
        variant="int8",
        variant_accuracy=0.5,
        why=f"fastest {MARKUP}",
        verdict=DeliveryVerdict(
            served=False,
            why=f"accuracy: 50.0% of 4 examples, 75.0% before {MARKUP}",
            earlier="home-1 round 4",
            accuracy=0.5,
            earlier_accuracy=0.75,
            examples=4,
        ),
        rounds=2,
    )
    beta = DeviceRecord(device="beta", tier=2, ratio=0.0, refusals=2, refused={"not-finite": 2})
    return Summary(
        federation="federation",
        run="run-1",
        recipe="attending",
        outcome="finished",
        detail=MARKUP,
        rounds=2,
        duration_s=9.0,
        model="mlp",
        parameters=20,
        devices=(alpha, beta),
        onnx={1: "onnx/tier-1.onnx"},
    )


def device(name: str) -> Device:
    """A device that joined the run."""
    card = DataCard(source="digits", examples=60, input_shape=(1, 8, 8), num_classes=10)
    return Device(name, 1, PROFILE, card)


def _update(name: str, number: int) -> Any:
    return UPDATE.model_copy(update={"device": name, "round": number, "attempt": number})
