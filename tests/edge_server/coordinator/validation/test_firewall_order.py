"""The firewall's order of checks: an update that fails several checks is refused for the first one.

The tests run a whole server without a network: they capture its messages and pass it the devices' messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.compression.layered_model import received_groups
from edge_client.data.tasks.registry import CLASSIFICATION
from edge_client.transport.broker_link import Arrived, LinkUp, parse_address
from edge_server.config.load import load_config
from edge_server.config.run_sections import FirewallSettings
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.server import Server
from edge_server.coordinator.validation.harm_review import UpdateHistory
from edge_server.coordinator.validation.round_review import Canary
from edge_server.rounds.events import Started
from edge_server.storage.run_folder import RunFolder
from schemas import messages
from schemas.errors import Reason
from schemas.submodel import SubModelSpec
from schemas.tensors.chunks import BlobRef, digest_of, encode_chunk
from schemas.values import DataCard
from tests.groups import encode_groups
from tests.schemas.examples import plain_update

WORDS = (
    "data.source=digits",
    "model.name=mlp",
    "num-clients=1",
    "rounds=2",
    "deliver=none",
    "strategy.uplink=[]",
)
TURNS = 400
CARD = DataCard(source="digits", examples=50, input_shape=(1, 8, 8), num_classes=10)


class Unseen:
    """A watcher that ignores everything."""

    def show(self, snapshot: object) -> None:
        """Ignore the snapshot."""


class Desk:
    """The server and the device `pi`, which the test controls."""

    def __init__(self, folder: Path) -> None:
        config = load_config("median", WORDS)
        self.coordinator = assemble(config, "run-1", RunFolder.create(folder, config))
        self.server = Server(parse_address("mqtt://127.0.0.1:1"), self.coordinator, Unseen())
        self.sent: list[Any] = []
        self.server.connection.link.publish = self._publish  # type: ignore[method-assign]
        self.server.connection.link.echo = self._echo  # type: ignore[method-assign]
        self.server.loop.handle(LinkUp(1, None))
        self.server.driver.step(Started())
        self.blobs: dict[str, bytes] = {}
        self.send(messages.Birth(federation="federation", device="pi", session=1, data=CARD))
        self.task = self.until(messages.Task)

    def _publish(self, topic: str, payload: bytes, **_: Any) -> None:
        self.sent.append(messages.decode_message(payload))

    def _echo(self, topic: str, payload: bytes) -> None:
        self.server.inbox.put(Arrived(topic, payload))

    def send(self, message: Any, *, topic: str = "pi") -> None:
        self.deliver(messages.encode_message(message), topic=topic)

    def deliver(self, payload: bytes, *, topic: str = "pi", channel: str = "up/control") -> None:
        self.server.loop.handle(Arrived(f"fed/v1/federation/devices/{topic}/{channel}", payload))

    def until(self, kind: type) -> Any:
        """Run the server until it sends a message of type `kind`, answering its blob requests meanwhile."""
        for _ in range(TURNS):
            for message in [*self.sent]:
                if isinstance(message, messages.BlobRequest):
                    self.sent.remove(message)
                    self._answer(message)
                elif isinstance(message, kind):
                    self.sent.remove(message)
                    return message
            self.server.loop.turn()
        raise AssertionError(f"no {kind.__name__} in {TURNS} turns")

    def _answer(self, request: messages.BlobRequest) -> None:
        """Answer with the chunk, or refuse a blob that the device does not have."""
        if request.digest in self.blobs:
            self.deliver(encode_chunk(request.digest, 0, self.blobs[request.digest]), channel="up/blob")
            return
        common = {"federation": "federation", "device": request.device, "digest": request.digest}
        self.send(messages.Refusal(**common, reason=Reason.UNKNOWN_BLOB))

    def close(self) -> None:
        self.server.jobs.end(finished=False)
        self.coordinator.storage.journal.close()

    def delta(self, value: float) -> dict[str, np.ndarray]:
        """Return an update of the whole model in which every number is `value`."""
        state = received_groups(
            self.task, self.coordinator.storage.store, self.coordinator.context.channel_map
        )["model"]
        return {name: np.full(array.shape, value, np.float32) for name, array in state.items()}

    def update(self, groups: Mapping[str, Any], **changes: Any) -> messages.Update:
        data = encode_groups(groups)
        blob = BlobRef(digest=digest_of(data), size=len(data))
        self.blobs[blob.digest] = data
        return plain_update(**{"federation": "federation", "blob": blob, **changes})


FULL = SubModelSpec()


@dataclass(frozen=True)
class Wrong:
    """The faults of an update, as its sender would cause them."""

    value: float = 0.001
    spec: SubModelSpec = FULL
    size: int | None = None
    damaged: bool = False
    changes: tuple[tuple[str, Any], ...] = ()
    broken: bool = False
    counted: bool = False


NAN, BEYOND, LARGE = float("nan"), 2e6, 1e4
OTHER = SubModelSpec(kept={"linear1": 3})
STALE, POSED = ("attempt", 7), ("device", "victim")
# Each row has its own fault and all faults of the rows below that can occur at the same time.
TABLE: dict[str, tuple[Wrong, Reason, str]] = {
    "envelope": (
        Wrong(BEYOND, OTHER, 10**9, True, (STALE, POSED), broken=True, counted=True),
        Reason.MALFORMED,
        "",
    ),
    "sender": (Wrong(BEYOND, OTHER, 10**9, True, (STALE, POSED), counted=True), Reason.WRONG_SENDER, ""),
    "selected": (Wrong(BEYOND, OTHER, 10**9, True, (STALE,), counted=True), Reason.STALE_ROUND, ""),
    "counted": (Wrong(BEYOND, OTHER, 10**9, True, counted=True), Reason.ALREADY_COUNTED, ""),
    "size": (Wrong(BEYOND, OTHER, 10**9, True), Reason.OVERSIZED, ""),
    "digest": (Wrong(BEYOND, OTHER, None, True), Reason.DIGEST_MISMATCH, ""),
    "shapes": (Wrong(NAN, OTHER), Reason.WRONG_SHAPE, ""),
    "finite": (Wrong(NAN), Reason.NOT_FINITE, ""),
    "any sense": (Wrong(BEYOND), Reason.OUT_OF_BOUNDS, "exceeds"),
    "norm": (Wrong(LARGE), Reason.OUT_OF_BOUNDS, "typical number"),
    "canary": (Wrong(0.02), Reason.HARMFUL, "by more than"),
}


@pytest.mark.parametrize("row", TABLE)
def test_an_update_is_refused_for_its_first_fault(tmp_path: Path, row: str) -> None:
    wrong, reason, detail = TABLE[row]
    desk = Desk(tmp_path)
    try:
        refusal = refused(desk, wrong)
        assert refusal.reason == reason
        assert detail in refusal.detail
        assert desk.server.reporter.counters.refusals["pi", reason] == 1
    finally:
        desk.close()


def refused(desk: Desk, wrong: Wrong) -> messages.Refusal:
    model, channel_map = desk.coordinator.model.state.params, desk.coordinator.context.channel_map
    # The canary's accuracy is 1 while no weight has moved by more than 0.01.
    still = steadiness(model)
    desk.coordinator.checker.history = UpdateHistory(FirewallSettings(canary=0.1), channel_map, still)
    if wrong.counted:
        desk.send(desk.update({"model": desk.delta(0.001)}))
        desk.until(messages.Acknowledgement)
    delta = desk.delta(wrong.value)
    if wrong.damaged:
        delta = {"nonsense": np.zeros(1, np.float32)}
    update = desk.update({"model": delta}, spec=wrong.spec, **dict(wrong.changes))
    if wrong.damaged:
        desk.blobs[update.blob.digest] = desk.blobs[update.blob.digest][:-1] + b"x"
    if wrong.size is not None:
        update = update.model_copy(update={"blob": BlobRef(digest="f" * 64, size=wrong.size)})
    payload = messages.encode_message(update)
    desk.deliver(payload[:-1] if wrong.broken else payload)
    answer = desk.until(messages.Refusal)
    assert isinstance(answer, messages.Refusal)
    return answer


def steadiness(model: Mapping[str, np.ndarray]) -> Canary:
    def accuracy(params: Mapping[str, np.ndarray], spec: object) -> dict[str, float]:
        moved = max(np.abs(params[name] - model[name]).max() for name in model) > 0.01
        return {"accuracy": 1.0 - float(moved)}

    return Canary(accuracy, CLASSIFICATION, 0.1)
