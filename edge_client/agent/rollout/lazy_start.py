"""The agent's door to rollouts: what is behind it is imported with the first offer, or with a trial left.

Most devices are offered a model once in months, and all of them wait for what is imported at their start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edge_client.agent.rollout.events import ComparisonEnded, trial_path
from edge_client.agent.settings import AgentSettings
from edge_client.data.local import LocalData
from edge_client.transport.mqtt_client import Inbox
from schemas.messages import Message
from schemas.tensors.chunks import Chunk

if TYPE_CHECKING:
    from edge_client.agent.rollout.runtime import RolloutRuntime


class LazyRollout:
    """What `Agent` says of what happens, handed on to the device's part in rollouts once it has one."""

    def __init__(
        self, settings: AgentSettings, data: LocalData, inbox: Inbox, publish: Callable[[Message], None]
    ) -> None:
        self._made_of = (settings, data, inbox, publish)
        self._part: RolloutRuntime | None = None
        self._connected = False
        if trial_path(settings.state).exists():
            self._open()

    def connected(self) -> None:
        """The link is up."""
        self._connected = True
        if self._part is not None:
            self._part.connected()

    def disconnected(self) -> None:
        """The link is down."""
        self._connected = False
        if self._part is not None:
            self._part.disconnected()

    def tick(self, *, training: bool) -> None:
        """Time has passed; `training`: the device is at work."""
        if self._part is not None:
            self._part.tick(training=training)

    def hear(self, payload: bytes) -> None:
        """A message on this device's rollout topic; raises `PeerError` for what is none."""
        self._open().hear(payload)

    def renew(self, data: LocalData) -> None:
        """The device's data is another now."""
        settings, _, inbox, publish = self._made_of
        self._made_of = (settings, data, inbox, publish)
        if self._part is not None:
            self._part.renew(data)

    def takes(self, chunk: Chunk) -> bool:
        """Take a chunk, if it is of the file on its way."""
        return self._part is not None and self._part.takes(chunk)

    def ran(self, event: ComparisonEnded) -> None:
        """A comparison has ended."""
        self._open().ran(event)

    def stop(self) -> None:
        """The process ends."""
        if self._part is not None:
            self._part.stop()

    def _open(self) -> RolloutRuntime:
        if self._part is None:
            from edge_client.agent.rollout.runtime import RolloutRuntime

            self._part = RolloutRuntime(*self._made_of)
            if self._connected:
                self._part.connected()
        return self._part
