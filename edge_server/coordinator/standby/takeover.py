"""Following a federation's server until this one takes over."""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from edge_client.system.watchdog import watchdog_of
from edge_client.transport import broker_link, chunk_transfer
from edge_client.transport.event_loop import EventLoop, Stop
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator import launch, run_start
from edge_server.coordinator.standby import following, replica_copy, writing_right
from edge_server.transport.lease import holder, keeper, phases
from schemas import messages
from schemas.base import fields_of
from schemas.errors import ConfigError, PeerError
from schemas.tensors.chunks import decode_chunk, decode_json
from schemas.topics import standby_topic

TICK_S, REPORT_S = 0.1, 1.0
End = Literal["taken over", "over", "stopped"]


class Standby:
    """Follows the holder of a lease.

    `check` looks at the copied folder once it is whole, and may refuse it; `goes_on` says whether another run
    follows the one in the folder; `say` gets a sentence whenever something changes for the user.
    """

    def __init__(
        self,
        federation: str,
        run: Path,
        lease: keeper.LeaseKeeper,
        *,
        check: Callable[[Path], None],
        goes_on: Callable[[Path], bool],
        say: Callable[[str], None],
    ) -> None:
        self._federation, self._lease, self._check, self._say = federation, lease, check, say
        self._copy, self._run, self._goes_on = replica_copy.RunCopy(run), run, goes_on
        self._watchdog = watchdog_of(os.environ)
        me = lease.state.me
        self._state = following.Following(me.instance)
        self._origin = f"{me.host}, process {me.pid}, folder {me.folder}"[:500]
        self._inbox: broker_link.Inbox = queue.SimpleQueue()
        self.loop = EventLoop(self._inbox, TICK_S, tick=self._tick, handle=self._handle)
        self.end: End | None = None
        self._report_at, self._trouble = 0.0, ""
        self._may_follow = False

    def stop(self) -> None:
        """End soon; may be called from a signal handler."""
        self._inbox.put(Stop())

    def run(self) -> End:
        topics = (standby_topic(self._federation, "entry"), standby_topic(self._federation, "chunk"))
        self._lease.talk(frozenset(map(str, topics)), self._inbox)
        try:
            self.loop.run(until=lambda: self.end is not None)
        finally:
            self._lease.talk(frozenset(), None)
        assert self.end is not None
        return self.end

    def take_over(self) -> None:
        """Make the copy a run folder that a server may serve."""
        self._copy.become_a_run()

    def _tick(self, now: float) -> None:
        self._watchdog.alive(now)
        if (trouble := self._lease.trouble) != self._trouble:
            self._trouble = trouble
            self._say(trouble or "connected")
        self._look_at_lease()
        if self.end is None:
            self._step(following.Tick())
            if now >= self._report_at:
                self._report()

    def _handle(self, event: Any) -> None:
        if isinstance(event, Stop):
            self.end = "stopped"
            return
        self._look_at_lease()
        if self.end is None and isinstance(event, broker_link.Arrived):
            self._on_message(event)

    def _look_at_lease(self) -> None:
        """End as soon as the lease is held, or the run that was followed is over."""
        state = self._lease.state
        if isinstance(state.phase, phases.Held):
            self.end = "taken over"
            return
        last = state.log.last
        if last is not None and last.state == "over" and self._state.confirmed:
            if not self._goes_on(self._run):
                self.end = "over"
                return
            self._state = following.Following(self._state.standby)
        self._say_changes()

    def _say_changes(self) -> None:
        may = self._lease.state.may_follow
        if may == self._may_follow:
            return
        self._may_follow = may
        last = self._lease.state.log.last
        if may and last is not None:
            self._say(f"up to date with {last.holder.host}, process {last.holder.pid}: ready to take over")
        elif isinstance(self._lease.state.phase, phases.Looking):
            self._say("not up to date: this standby will not take over before it is again")

    def _on_message(self, arrived: broker_link.Arrived) -> None:
        if arrived.topic == standby_topic(self._federation, "chunk"):
            self._step(following.ChunkArrived(decode_chunk(arrived.payload)))
            return
        message = messages.decode_message(arrived.payload, federation=self._federation)
        match message:
            case messages.StandbyEntry():
                self._step(following.Announced(message))
            case messages.StandbyRefusal(standby=standby, detail=detail) if standby == self._state.standby:
                raise ConfigError(f"the server cannot be followed: {detail}")
            case messages.StandbyRefusal():
                pass
            case _:
                raise PeerError(f"a server does not send '{message.kind}' to its standby")

    def _step(self, event: following.Event) -> None:
        self._state, commands = following.step(self._state, event, time.monotonic())
        for command in commands:
            self._do(command)

    def _do(self, command: following.Command) -> None:
        store = self._copy.store
        match command:
            case following.OpenEntry(number, ref):
                entry = decode_json(following.Entry, store.blob_path(ref.digest).read_bytes())
                store.blob_path(ref.digest).unlink(missing_ok=True)
                self._step(following.Opened(number, entry))
            case following.ApplyEntry(number, entry):
                self._apply(number, entry)
            case following.Report():
                self._report()
            case chunk_transfer.RequestChunks():
                self._publish(command.request(self._federation, self._state.standby))
            case chunk_transfer.WriteChunk(ref, index, data, crc):
                store.write_chunk(ref, index, data, crc)
            case chunk_transfer.VerifyBlob(ref):
                self._step(following.Checked(ref, store.verify(ref)))

    def _apply(self, number: int, entry: following.Entry) -> None:
        self._copy.apply(entry)
        if entry.journal is not None:
            self._check(self._run)
            self._lease.follow(*run_start.read_run_and_epoch(self._run))
        self._step(following.Applied(number))

    def _report(self) -> None:
        self._report_at = time.monotonic() + REPORT_S
        state = fields_of(self._state, "standby", "series", "known", "confirmed")
        self._publish(messages.StandbyReport(federation=self._federation, origin=self._origin, **state))

    def _publish(self, message: messages.Message) -> None:
        self._lease.say(standby_topic(self._federation, "report"), messages.encode_message(message))


def follow(
    federation: str, address: broker_link.BrokerAddress, out: Path, *, say: Callable[[str], None]
) -> tuple[End, keeper.LeaseKeeper | None]:
    """Follow the holder of the federation's lease in the folder `out`; with the lease, once it is held.

    Raises `ConfigError` for a folder with another run, and for a server that cannot be followed.
    """
    where = writing_right.lease_address(address)
    if where is None:
        raise ConfigError(
            "a standby needs a certificate of its own besides the server's",
            remedy="copy AUTHORITY/standby and AUTHORITY/server, which `edge-server enroll` makes, "
            "to a folder of this machine",
        )
    replica_copy.mark_as_copy(out, federation)
    with run_start.lock_folder(out), contextlib.ExitStack() as undo:
        run, epoch = run_start.read_run_and_epoch(out)
        lease = keeper.LeaseKeeper(
            where, federation, holder.this_process(out), follows=True, first_epoch=epoch, run=run
        ).open()
        undo.callback(lease.close, over=False)
        threading.Thread(target=preload, name="preload", daemon=True).start()
        standby = Standby(
            federation, out, lease, check=lambda run: check_copy(run, federation), goes_on=is_pass, say=say
        )
        say(f"waits for a server of '{federation}' on {address}")
        with launch.stopped_by_signals(standby.stop):
            end = standby.run()
        if end != "taken over":
            return end, None
        standby.take_over()
        undo.pop_all()
        return end, lease


def copied_config(run: Path) -> Config:
    """The configuration of a copied run."""
    return load_config(str(run / "federation.toml"), [])


def is_pass(run: Path) -> bool:
    """Whether the copied run only asks for statistics, after which the federation's own run begins."""
    return copied_config(run).make_strategy().statistics is not None


def check_copy(run: Path, federation: str) -> None:
    """Raise `ConfigError` if this machine could not serve the copied run."""
    from edge_server.security.signing_key import public_key_text

    config = copied_config(run)
    if config.federation.name != federation:
        raise ConfigError(f"{run} is a run of '{config.federation.name}', not of '{federation}'")
    key = config.federation.signing_key or run / "signing.key"
    if not key.exists() or public_key_text(key) != (run / "signing.pub").read_text():
        raise ConfigError(
            f"{key} must be the key that the server signs with, which is never sent",
            remedy="copy it from the server (mode 0600), and start the standby again",
        )


def preload() -> None:
    """Import what a server needs as it starts: seconds that a takeover should not take."""
    import edge_server.coordinator.coordinator
    import edge_server.coordinator.publisher
    import edge_server.coordinator.scaling
    import edge_server.coordinator.server
    import edge_server.observability.integrations.open
    import edge_server.observability.report.report
    import edge_server.releases.registry.register  # noqa: F401
