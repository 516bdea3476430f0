"""How long what a virtual device does takes, in virtual seconds."""

from __future__ import annotations

from typing import Protocol

from edge_server.config.board_profiles import profile
from edge_server.simulation.clock import TaskTimes, delivery_times, task_times
from edge_server.simulation.population import VirtualDevice
from schemas.messages import DeliverTask, Task


class Pace(Protocol):
    """The pace of one device; `latency_s` is how long a message is on its way, in either direction."""

    latency_s: float

    def download_s(self, size: int) -> float:
        """How long `size` bytes take to the device."""
        ...

    def upload_s(self, size: int) -> float:
        """How long `size` bytes take from the device."""
        ...

    def work_s(self, task: Task, macs: int) -> float:
        """How long the task takes on the device; `macs` for one example through its sub-model."""
        ...


class NoTime(Pace):
    """Nothing takes time: for runs where only the rounds matter."""

    latency_s = 0.0

    def download_s(self, size: int) -> float:
        """At once."""
        return 0.0

    def upload_s(self, size: int) -> float:
        """At once."""
        return 0.0

    def work_s(self, task: Task, macs: int) -> float:
        """At once."""
        return 0.0


class BoardPace(Pace):
    """The pace of a device's board."""

    def __init__(self, device: VirtualDevice, board: str) -> None:
        self._examples, self._board = len(device.train), profile(board)
        self.latency_s = self._board.latency_s

    def download_s(self, size: int) -> float:
        """By the board's link."""
        return self._times(downlink_bytes=size).download_s

    def upload_s(self, size: int) -> float:
        """By the board's link."""
        return self._times(uplink_bytes=size).upload_s

    def work_s(self, task: Task, macs: int) -> float:
        """By the board's processor."""
        if isinstance(task, DeliverTask):
            return delivery_times(self._board, downlink_bytes=0, macs=macs).work_s
        return self._times(macs=macs, epochs=task.training.local_epochs).work_s

    def _times(
        self, *, downlink_bytes: int = 0, macs: int = 0, epochs: int = 0, uplink_bytes: int = 0
    ) -> TaskTimes:
        return task_times(
            self._board,
            downlink_bytes=downlink_bytes,
            macs=macs,
            examples=self._examples,
            epochs=epochs,
            uplink_bytes=uplink_bytes,
        )


def pace_of(device: VirtualDevice) -> Pace:
    """The pace of a device."""
    return NoTime() if device.board is None else BoardPace(device, device.board)
