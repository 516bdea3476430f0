"""A gateway's machine, driven event by event, and what tests ask of it."""

from edge_client.transport.chunk_transfer import VerifyBlob
from edge_server.rounds.events import ChunkReceived, Tick
from edge_server.rounds.gateway import events, machine
from edge_server.rounds.gateway.state import Gateway
from schemas.messages import BlobRequest, SiteReceipt, SiteTerms, SumMember, SumRequest, Update
from schemas.tensors.chunks import Chunk
from tests.edge_server.rounds.by_hand import CHUNK, NAME, RUN, STATE, answer_of, assignment, of, update
from tests.edge_server.rounds.test_fleet import birth

SITE, A, B, DEEP = "b", "b.1", "b.2", "b.n.1"
STATE_BYTES = b"s" * 2500


class Driven:
    """A gateway and its clock; `tell` returns the commands."""

    def __init__(self, *devices: str, **more) -> None:
        terms = SiteTerms(federation=NAME, site=SITE, run=RUN, sites=(SITE, "b.n"))
        self.gateway, self.now = Gateway(NAME, SITE, **more), 0.0
        self.tell(events.LinkedAbove(1))
        self.tell(events.MessageForSite(terms))
        for device in devices:
            self.tell(events.DeviceSpoke(birth(device)))

    def tell(self, event) -> list:
        self.gateway, commands = machine.step(self.gateway, event, self.now)
        return commands

    def wait(self, seconds: float) -> list:
        self.now += seconds
        return self.tell(Tick())

    def give(self, *devices: str, number: int = 1, **more) -> list:
        task = assignment(number, number, **more).task
        return [command for device in devices for command in self.tell(events.MessageForDevice(device, task))]

    def fetch(self) -> list:
        commands = []
        for index, at in enumerate(range(0, len(STATE_BYTES), CHUNK)):
            chunk = Chunk(STATE.digest[:16], index, STATE_BYTES[at : at + CHUNK])
            commands += self.tell(events.ChunkFromAbove(chunk))
        assert of(VerifyBlob, commands) == [VerifyBlob(STATE)]
        return self.tell(events.BlobVerified(STATE.digest, True))

    def upload(self, device: str, **more) -> Update:
        """An update of a device arrives and is examined."""
        claim, data = update(device, **more), answer_of(device)
        self.tell(events.DeviceSpoke(claim, most_bytes=10**6))
        commands = []
        for index, at in enumerate(range(0, len(data), CHUNK)):
            commands += self.tell(
                ChunkReceived(device, Chunk(claim.blob.digest[:16], index, data[at : at + CHUNK]))
            )
        assert [command.update for command in of(events.ExamineUpdate, commands)] == [claim]
        judged = claim.model_copy(update={"receipt": SiteReceipt(site=SITE, moved=True)})
        assert events.SendAbove(judged, device) in self.tell(events.UpdateExamined(judged))
        return judged


def asked(commands: list) -> list[tuple[str, str]]:
    """The requests for blobs above, as (device, digest)."""
    told = [command.message for command in of(events.SendAbove, commands)]
    return [(message.device, message.digest) for message in told if isinstance(message, BlobRequest)]


def wanted(device: str, first: int = 0, count: int = 3) -> events.DeviceSpoke:
    request = {"federation": NAME, "device": device, "digest": STATE.digest, "first": first, "count": count}
    return events.DeviceSpoke(BlobRequest(**request))


def sum_request(*updates: Update, site: str = SITE) -> SumRequest:
    members = {u.device: SumMember(attempt=u.attempt, digest=u.blob.digest, weight=3) for u in updates}
    return SumRequest(federation=NAME, site=site, run=RUN, round=1, members=members)
