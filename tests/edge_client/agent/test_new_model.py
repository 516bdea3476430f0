"""A device states in its birth which model is in use, and repeats the birth when that changes."""

import hashlib
from pathlib import Path
from typing import Any, cast

from edge_client.agent.announcer import LOOK_AT_MODEL_S
from edge_client.agent.session.state import Session
from edge_client.inference.model_slots import ServedModel, Slots
from edge_client.transport.broker_link import LinkUp
from schemas.topics import Channel
from tests.edge_client.agent.births import Births

SESSION = cast(Session, None)


class OnlyBirths(Births):
    """An announcer's messenger that keeps births, and drops questions to the server."""

    def publish(self, channel: Channel, message: Any, *, retain: bool = False) -> None:
        if channel is Channel.BIRTH:
            super().publish(channel, message, retain=retain)


def use(state: Path, version: str) -> None:
    """Put a model of this version in use."""
    data = version.encode()
    digest, slots = hashlib.sha256(data).hexdigest(), Slots(state / "serving")
    slots.fill(data, ServedModel(version=version, digest=digest))
    slots.switch(digest)


def test_a_new_model_is_stated_at_the_next_look(tmp_path: Path) -> None:
    births = OnlyBirths(tmp_path)
    births.announcer.on_connected(LinkUp(1, None), 0.0)
    births.announcer.tick(1.0, SESSION)
    use(tmp_path, "v1")
    births.announcer.tick(0.5 + LOOK_AT_MODEL_S, SESSION)
    assert [birth.model for birth in births.made] == [""]
    births.announcer.tick(1.0 + LOOK_AT_MODEL_S, SESSION)
    assert [birth.model for birth in births.made] == ["", "v1"]
    births.announcer.tick(1.0 + 2 * LOOK_AT_MODEL_S, SESSION)
    assert [birth.model for birth in births.made] == ["", "v1"]
