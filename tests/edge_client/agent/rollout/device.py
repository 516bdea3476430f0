"""A device's side of rollouts without a broker: real files and slots, fake comparisons."""

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.agent.lazy_services import decode_rollout_message
from edge_client.agent.offers.trial import Worked
from edge_client.agent.rollout.installation import make_runtime
from edge_client.agent.rollout.trial import Comparison, ComparisonRunner, ModelPair
from edge_client.data.dataset import make_labelled_data
from edge_client.data.local import LocalData
from edge_client.inference.model_slots import ServedModel, Slots
from edge_client.security.trusted_key import TrustedKey
from schemas.messages import BlobRequest, Message, ModelOffer, ModelReport, encode_message
from schemas.messages.rollout import TrialTerms
from schemas.tensors.chunks import BlobRef, decode_chunk, digest_of, encode_chunk
from tests.edge_client.agent.births import device_settings
from tests.edge_client.signed import SERVER, manifest_of
from tests.edge_server.releases.rollout.measured import measured

OLD, NEW = b"the old model" * 99, b"the new model" * 999
REF = BlobRef(digest=digest_of(NEW), size=len(NEW), chunk_bytes=4096)
MEASURED = measured(0.75, examples=4)
GOOD = Comparison(MEASURED, MEASURED, 0, 0)


def offer(rollout: str = "r-1", **more: Any) -> ModelOffer:
    """An offer of the new model, signed by the server."""
    fields = {
        "federation": "home",
        "device": "pi",
        "rollout": rollout,
        "version": "v2",
        "tier": 2,
        "blob": REF,
        "manifest": SERVER.sign(manifest_of(NEW)),
        "terms": TrialTerms(watch_s=0.0),
    }
    return ModelOffer.model_validate({**fields, **more})


def examples() -> LocalData:
    images = np.zeros((8, 1, 8, 8), np.uint8)
    data = make_labelled_data(images, np.arange(8))
    return LocalData(data, data.subset([0, 1, 2, 3]))


class Device:
    """One device process; a restart is another instance in the same folder. `compare` fakes comparisons."""

    def __init__(
        self,
        state: Path,
        patch: pytest.MonkeyPatch,
        *,
        compare: Callable[[ModelPair], Comparison] = lambda _: GOOD,
        trust: TrustedKey | None = None,
    ) -> None:
        self.slots, self.inbox, self.sent = (
            Slots(state / "serving"),
            queue.SimpleQueue[Any](),
            list[Message](),
        )
        self.clock = 0.0
        patch.setattr("edge_client.agent.offers.runtime.time.monotonic", lambda: self.clock)
        patch.setattr(ComparisonRunner, "compare", lambda _, pair, most: compare(pair))
        self.part = make_runtime(device_settings(state, trust=trust), examples, self.inbox, self.sent.append)

    @property
    def reports(self) -> list[ModelReport]:
        return [message for message in self.sent if isinstance(message, ModelReport)]

    def serves(self) -> bytes | None:
        served = self.slots.current()
        return None if served is None else served.read()

    def hear(self, message: Message) -> None:
        """Deliver a message of the rollout, encoded as bytes."""
        self.part.receive(decode_rollout_message(encode_message(message), "home"))

    def advance(self, *, most: int = 8) -> None:
        """Answer the device's chunk requests while time passes, for `most` turns."""
        answered = 0
        for _ in range(most):
            for message in self.sent[answered:]:
                if isinstance(message, BlobRequest):
                    for index in range(message.first, message.first + message.count):
                        data = NEW[index * REF.chunk_bytes :][: REF.chunk_size(index)]
                        self.part.take_chunk(decode_chunk(encode_chunk(REF.digest, index, data)))
                answered += 1
            self.clock += 1.0
            self.part.tick(training=False)
            if self.part.thread.is_alive():
                self.part.thread.join(timeout=60)
            while not self.inbox.empty():
                event = self.inbox.get()
                assert isinstance(event, Worked)
                self.part.on_worked(event)


def serving(state: Path, data: bytes = OLD) -> None:
    """Put a model in use before the test begins."""
    slots = Slots(state / "serving")
    slots.fill(data, ServedModel(version="v1", digest=digest_of(data)))
    slots.switch(digest_of(data))
