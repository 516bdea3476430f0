"""A rollout of a client release: the same machine as for models, with other messages."""

import io
from pathlib import Path
from typing import Any

import pytest

from edge_client.transport.broker_link import Arrived, LinkUp, parse_address
from edge_server.releases.client.offering import Wanted, make_release, new_rollout
from edge_server.releases.client.store import ReleaseStore
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.machine import stop_rollout
from edge_server.releases.rollout.open import begin_or_continue, reopen, with_labels
from edge_server.releases.rollout.progress import Progress, summary
from edge_server.releases.rollout.service import RolloutService
from edge_server.releases.rollout.state import Rollout, RolloutPhase, RolloutRules
from edge_server.releases.rollout.target import TargetStatus
from edge_server.security.signing_key import load_or_make_signing_key
from edge_server.storage.service_folder import ServiceFolder
from schemas import messages
from schemas.errors import ConfigError
from schemas.messages.client_update import UpdateCause, UpdateStage, UpdateTerms
from schemas.messages.rollout import Stage
from schemas.topics import Channel, DeviceTopic
from tests.edge_client.agent.client_update.wheels import make_wheel
from tests.edge_server.releases.rollout.fleet import birth
from tests.edge_server.releases.rollout.test_service import FakeLink

TERMS = UpdateTerms(watch_s=30.0)
RULES = RolloutRules(canary="1", groups=1, gather_s=0.0, terms=TERMS)


class World:
    """A rollout's service with a fake connection."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, *devices: str, rules: RolloutRules = RULES
    ) -> None:
        patch.setattr("edge_server.transport.broker_connection.Link", FakeLink)
        self.store = ReleaseStore(folder / "releases")
        make_wheel(folder / "wheels", "0.2.0")
        signer = load_or_make_signing_key(folder / "signing.key")
        self.stored = make_release(self.store, folder / "wheels", Wanted("home"), signer)
        self.journal = RolloutJournal(self.store)
        rollout, _ = begin_or_continue(self.journal, new_rollout(self.stored, rules))
        rollout = with_labels(rollout, ServiceFolder(folder))
        paths = {self.stored.ref.digest: self.stored.archive}
        self.text = io.StringIO()
        progress = Progress(self.text)
        address = parse_address("mqtt://127.0.0.1:1")
        self.service = RolloutService(rollout, self.journal, address, paths, progress.show)
        self.link: Any = self.service.connection.link
        for device in devices:
            labels = {"site": device.partition("-")[0]}
            self.hear(birth(device).model_copy(update={"labels": labels}), Channel.BIRTH)
        self.service.loop.handle(LinkUp(1, None))
        while not self.service.inbox.empty():
            self.service.loop.handle(self.service.inbox.get())

    def hear(self, message: Any, channel: Channel = Channel.UP_FLEET) -> None:
        topic = DeviceTopic("home", message.device, channel)
        self.service.loop.handle(Arrived(str(topic), messages.encode_message(message)))

    def say(self, device: str, stage: UpdateStage, cause: UpdateCause | None = None, **more: Any) -> None:
        fields = {"rollout": self.rollout.id, "version": "0.2.0", "running": "0.1.0", **more}
        self.hear(messages.ClientReport(federation="home", device=device, stage=stage, cause=cause, **fields))

    @property
    def rollout(self) -> Rollout:
        return self.service.rollout

    def offers(self) -> list[str]:
        return [topic.split("/")[4] for topic, _ in self.link.published if topic.endswith("/down/fleet")]


def test_the_canary_is_offered_the_archive_and_the_next_group_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, "pi-1", "pi-2")
    (canary,) = world.offers()
    offer = messages.decode_message(world.link.published[0][1])
    assert isinstance(offer, messages.ClientOffer)
    assert (offer.version, offer.fits, offer.terms) == ("0.2.0", ("any",), TERMS)
    assert offer.manifest == world.stored.signed
    world.hear(
        messages.BlobRequest(federation="home", device=canary, digest=offer.blob.digest, first=0, count=16)
    )
    assert len(world.link.frames) == 1
    for stage, status in (
        (UpdateStage.OFFERED, TargetStatus.FETCHING),
        (UpdateStage.FETCHED, TargetStatus.COMPARING),
        (UpdateStage.INSTALLED, TargetStatus.COMPARING),
        (UpdateStage.CHECKED, TargetStatus.SWITCHING),
        (UpdateStage.SWITCHED, TargetStatus.WATCHING),
        (UpdateStage.KEPT, TargetStatus.KEPT),
    ):
        world.say(canary, stage)
        assert world.rollout.targets[canary].status is status
    (other,) = {"pi-1", "pi-2"} - {canary}
    assert other in world.offers()
    world.say(other, UpdateStage.KEPT, had_it=True)
    assert world.rollout.phase is RolloutPhase.FINISHED
    text = world.text.getvalue()
    assert "installs and checks it next to the running client" in text
    assert f"{other} runs it already" in text
    assert "2 of 2 devices run 0.2.0" in text


def test_a_client_that_goes_back_on_the_canary_stops_the_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, "pi-1", "pi-2")
    (canary,) = world.offers()
    world.say(canary, UpdateStage.SWITCHED)
    world.say(canary, UpdateStage.ROLLED_BACK, UpdateCause.CRASHES, detail="3 starts")
    assert world.rollout.phase is RolloutPhase.STOPPED
    assert set(world.offers()) == {canary}
    assert f"{canary} has gone back (crashes): 3 starts" in world.text.getvalue()
    assert summary(world.rollout)["outcome"] == "stopped"


def test_the_journal_restores_reports_of_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, "pi-1", "pi-2")
    (canary,) = world.offers()
    world.say(canary, UpdateStage.SWITCHED)
    again, resumed = begin_or_continue(world.journal, new_rollout(world.stored, RULES))
    assert resumed
    assert (again.rules, again.targets[canary].report) == (RULES, world.rollout.targets[canary].report)


def test_a_stopped_rollout_is_reopened_to_be_withdrawn_and_another_release_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, "pi-1")
    world.say("pi-1", UpdateStage.KEPT)
    assert world.rollout.phase is RolloutPhase.FINISHED
    loaded = stop_rollout(reopen(world.journal, new_rollout(world.stored, RULES)), "by hand", 0.0)
    world.journal.save(world.rollout, loaded)
    make_wheel(tmp_path / "newer", "0.3.0")
    signer = load_or_make_signing_key(tmp_path / "signing.key")
    newer = make_release(world.store, tmp_path / "newer", Wanted("home"), signer)
    with pytest.raises(ConfigError, match=r"edge-server client-release rollout 0.2.0 --withdraw"):
        begin_or_continue(world.journal, new_rollout(newer, RULES))


def test_a_rollout_has_its_own_identity_and_ignores_answers_to_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, "pi-1")
    assert world.link.named["client_id"] == "home-updates"
    before = world.rollout
    fields = {"rollout": before.id, "version": "0.2.0", "stage": Stage.KEPT}
    world.hear(messages.ModelReport(federation="home", device="pi-1", **fields))
    assert world.rollout is before


def test_a_selector_chooses_the_boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = RULES.model_copy(update={"where": "site=barn", "canary": "100%"})
    world = World(tmp_path, monkeypatch, "barn-1", "barn-2", "field-1", rules=rules)
    assert sorted(world.offers()) == ["barn-1", "barn-2"]
