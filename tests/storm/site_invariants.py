"""What must hold of gateways, and of the sums that they make."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_server.coordinator.aggregator import Aggregator
from edge_server.coordinator.gateway.command_runner import CommandRunner
from edge_server.coordinator.gateway.gateway import SiteGateway
from edge_server.rounds.events import CloseRound
from edge_server.rounds.gateway.events import MessageForSite, SendAbove, SumMade
from edge_server.storage.gateway_journal import GatewayJournal
from schemas.messages import SiteSum, SumRequest, Update
from tests.storm.disk import REAL_CONNECT
from tests.storm.invariants import Violation
from tests.storm.sites import around

if TYPE_CHECKING:
    from tests.storm.world import World


class SiteWatch:
    """Watches the gateways of one world; the functions that it wraps only report."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._request: SumRequest | None = None
        self._lying: dict[int, list[str]] = {}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """See what gateways write and say, and of which sums rounds are made."""
        step, do = SiteGateway.step, CommandRunner.do
        written, close = GatewayJournal.writing, Aggregator.close

        def note_written(journal: GatewayJournal) -> Any:
            self._check_writer()
            return written(journal)

        def note_step(gateway: SiteGateway, event: Any) -> None:
            self._request = _request_of(event)
            step(gateway, event)

        def note_done(runner: CommandRunner, command: Any) -> None:
            if isinstance(command, SendAbove) and isinstance(command.message, SiteSum):
                self._check_lost(command.message)
            do(runner, command)

        def note_close(aggregator: Aggregator, command: CloseRound, *figures: Any) -> Any:
            self._check_sums(command)
            return close(aggregator, command, *figures)

        places: Any = (SiteGateway, "step", note_step, step), (CommandRunner, "do", note_done, do)
        places += (
            (GatewayJournal, "writing", note_written, written),
            (Aggregator, "close", note_close, close),
        )
        for where, name, noted, _ in places:
            setattr(where, name, noted)
        try:
            yield
        finally:
            for where, name, _, before in places:
                setattr(where, name, before)

    def _check_writer(self) -> None:
        """A gateway's folder has one writer: the process that runs there."""
        writer = self._world.running
        if writer is None or not writer.alive or self._world.processes.get(writer.name) is not writer:
            raise Violation("a gateway that is gone writes its journal")

    def _check_lost(self, answer: SiteSum) -> None:
        """No gateway says of an update that it has accepted that it is lost, while the round is open."""
        if answer.round <= len(self._world.watch.closed):
            return
        for device in answer.lost:
            member = None if self._request is None else self._request.members.get(device)
            update = self._accepted(device)
            if around(device) != answer.site or member is None or update is None:
                continue
            if (update.attempt, update.blob.digest) == (member.attempt, member.digest):
                raise Violation(f"the gateway of {answer.site} has lost what it has accepted of {device}")

    def _check_sums(self, command: CloseRound) -> None:
        """Each update of a round that lies at a site is in one sum, and no other one is in any."""
        summed = [device for found in command.sums.values() for device in found.members]
        lying = [device for device, update in command.updates.items() if update.receipt is not None]
        self._lying[command.round] = lying
        if sorted(summed) != sorted(lying):
            raise Violation(f"round {command.round}: {sorted(summed)} are in sums of {sorted(lying)}")

    def check_counted(self, round_number: int, updates: Sequence[tuple[str, int, str, int]]) -> None:
        """Each update that counts and lies at a site is an accepted one in the journal of its gateway."""
        for device, attempt, digest, _ in updates:
            if device not in self._lying.get(round_number, ()):
                continue  # gateways pass on the updates of tasks that they do not know
            update = self._accepted(device)
            if update is None or (update.attempt, update.blob.digest) != (attempt, digest):
                what = f"attempt {attempt} of {device}"
                raise Violation(f"round {round_number} counts {what}, which its gateway has not accepted")

    def check_dropped(self, device: str) -> None:
        """Without a fault of its site, the server or the network no update is dropped that was confirmed."""
        world = self._world
        faults = (fault for fault in world.faults if fault.target not in world.devices)
        if not around(device) or all(fault.at > world.timeline.now for fault in faults):
            raise Violation(f"{device}'s confirmed update is dropped without a reason")

    def _accepted(self, device: str) -> Update | None:
        """The last update of a device that its gateway has accepted, as its journal has it."""
        folder = Path(self._world.disks.machines[around(device)].root) / "gateway"
        with closing(REAL_CONNECT(folder / "gateway.sqlite")) as connection:
            rows = connection.execute("SELECT message FROM updates WHERE device = ?", (device,)).fetchall()
        found = [Update.model_validate_json(message) for (message,) in rows]
        return next((u for u in found if u.receipt is not None and u.receipt.reason is None), None)


def _request_of(event: Any) -> SumRequest | None:
    """The request for a sum that a gateway answers when this event comes."""
    match event:
        case MessageForSite(SumRequest() as request) | SumMade(request):
            return request
        case _:
            return None
