"""A board whose client is updated without a broker: real files and launcher decisions, fake environments."""

import os
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.client_update import launcher
from edge_client.agent.client_update.installation import make_runtime
from edge_client.agent.client_update.slots import ClientSlots, InstalledRelease
from edge_client.agent.offers.trial import Worked
from edge_client.agent.restart import RestartWanted
from edge_client.security.trusted_key import TrustedKey
from schemas.messages import BlobRequest, ClientOffer, ClientReport, ClientWithdrawal, Message
from schemas.tensors.chunks import decode_chunk, encode_chunk
from tests.edge_client.agent.births import device_settings
from tests.edge_client.signed import TRUSTED

MAX_TURNS = 200


def no_cut() -> None:
    """The power stays on."""


class FakeInstaller:
    """Fills the spare slot with a script; `cut` is called between its writes."""

    def __init__(self, slots: ClientSlots, cut: Callable[[], None] = no_cut) -> None:
        self._slots, self._cut = slots, cut

    def install(self, offer: ClientOffer, archive: Path, issued_at: int) -> None:
        assert archive.read_bytes()
        slot = self._slots.clear_spare()
        self._cut()
        environment(slot)
        self._cut()
        note = InstalledRelease(name=offer.version, digest=offer.blob.digest, issued_at=issued_at)
        self._slots.complete(slot, note)
        self._cut()

    def check(self, offer: ClientOffer) -> None:
        assert self._slots.holds(self._slots.spare().name, offer.blob.digest)

    def stop(self) -> None:
        pass


def environment(folder: Path) -> None:
    """An environment with a command."""
    program = folder / launcher.PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)


def make_board(folder: Path) -> Path:
    """The folder of a launcher with `a` in use."""
    root = folder / "client"
    slots = ClientSlots(root)
    slots.make("a")
    environment(root / "a")
    (root / "a" / "release.json").write_text(
        InstalledRelease(name="0.1.0", digest="0" * 64).model_dump_json()
    )
    return root


class Process:
    """One process of the client, started as the launcher starts it; it sees the offer while connected."""

    def __init__(
        self,
        root: Path,
        archive: Path,
        patch: pytest.MonkeyPatch,
        *,
        trust: TrustedKey | None = TRUSTED,
        make_installer: Callable[[ClientSlots], Any] = FakeInstaller,
        connects: Callable[[str], bool] = lambda slot: True,
    ) -> None:
        self.clock, self.sent = 0.0, list[Message]()
        patch.setattr("edge_client.agent.offers.runtime.time.monotonic", lambda: self.clock)
        # Waiting for the whole machine's disk takes long and proves nothing here.
        patch.setattr("edge_client.agent.client_update.slots.os.sync", lambda: None)
        trial = launcher.settle(root)
        if trial is not None:
            launcher.write_trial(root, {**trial, "started": trial["started"] + 1})
        self.slot = launcher.read_current(root)
        self.slots = ClientSlots(root, prefix=root / self.slot)
        self._archive, self._connects = archive, connects(self.slot)
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        settings = device_settings(root.parent / "state", trust=trust, install_root=root)
        self.part = make_runtime(
            settings, self.slots, self.inbox, self.sent.append, installer=make_installer(self.slots)
        )

    @property
    def reports(self) -> list[ClientReport]:
        return [message for message in self.sent if isinstance(message, ClientReport)]

    def run(self, message: ClientOffer | ClientWithdrawal | None) -> bool:
        """Work until the update has ended; returns whether the process ends for another one."""
        if self._connects:
            self.part.on_connected()
        for _ in range(MAX_TURNS):
            self.clock += 5.0
            self.part.tick(training=False)
            if self._connects and message is not None:
                self.part.receive(message)
            self._answer()
            if self._ended_work():
                return True
            trial = self.part.state.trial
            if (
                trial is not None
                and trial.is_final
                and (not self._connects or message is None or self.reports)
            ):
                return False
        raise AssertionError(f"no end: {self.part.state}")

    def _answer(self) -> None:
        """Send the requested chunks."""
        requests = [message for message in self.sent if isinstance(message, BlobRequest)]
        self.sent[:] = [message for message in self.sent if not isinstance(message, BlobRequest)]
        offer = self.part.state.trial.offer if self.part.state.trial else None
        for request in requests if offer is not None else ():
            data = self._archive.read_bytes()
            for index in range(request.first, min(request.first + request.count, offer.blob.chunks)):
                part = data[index * offer.blob.chunk_bytes :][: offer.blob.chunk_size(index)]
                self.part.take_chunk(decode_chunk(encode_chunk(offer.blob.digest, index, part)))

    def _ended_work(self) -> bool:
        """Pass on the events of the thread that installs or checks; returns whether a restart is wanted."""
        if self.part.thread.is_alive():
            self.part.thread.join(timeout=60)
        while not self.inbox.empty():
            event = self.inbox.get()
            if isinstance(event, RestartWanted):
                return True
            assert isinstance(event, Worked)
            self.part.on_worked(event)
        return False


def run_to_the_end(
    root: Path, archive: Path, message: Any, patch: pytest.MonkeyPatch, **more: Any
) -> Process:
    """Start processes one after the other until the update has ended; returns the last one."""
    for _ in range(10):
        process = Process(root, archive, patch, **more)
        if not process.run(message):
            return process
    raise AssertionError("restarts without an end")


def in_a_process(work: Callable[[], None]) -> int:
    """Do something in a forked process; returns its exit code, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
