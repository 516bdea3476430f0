"""Updates that lie at a site: receipts, sums and their checks, with real training and no network."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.task_runner import do_training
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.gateway.site_work import SiteWork
from edge_server.rounds.events import CheckSum, CheckUpdate, CloseRound, SumChecked
from edge_server.rounds.gateway.events import MakeSum
from edge_server.storage.gateway_journal import GatewayJournal
from edge_server.storage.records import RoundRecord
from edge_server.strategy.aggregation.partial_sums import COARSE, FINE, planes_of, write_sum
from schemas.errors import Reason
from schemas.messages import SiteSum, SumMember, SumRequest, TrainTask, Update
from schemas.tensors.arrays import Groups
from tests.integration.bench import Bench
from tests.slow import slow

NAMES = ("barn.weak", "barn.strong")


class SiteBench(Bench):
    """A bench with devices at the site `barn`, and the site's half of a gateway."""

    def __init__(self, folder: Path, recipe: str, *words: str, names: tuple[str, ...] = NAMES) -> None:
        super().__init__(folder, recipe, 'federation.sites=["barn"]', *words, names=names)
        self.store = BlobStore(folder / "barn-blobs")
        self.journal = GatewayJournal(folder / "barn.sqlite", "federation", "barn")
        self.work = SiteWork("barn", folder, self.store, self.journal)
        self.work.take_terms(self.coordinator.context.site_terms("barn"))
        self.tasks_of: dict[str, TrainTask] = {}

    def answers(self, number: int, **options: object) -> dict[str, Update]:
        """Plan and train; the updates stay at the site, and their receipts are checked."""
        updates = {}
        for name, task in self.tasks(number, number).items():
            assert isinstance(task, TrainTask)
            self.tasks_of[name] = task
            place = self.places[name]
            trained = self.sent(
                name, do_training(task, place, on_epoch=lambda report: None, should_stop=lambda: False)
            )
            if not name.startswith("barn."):
                shutil.copy(
                    place.store.blob_path(trained.blob.digest),
                    self.coordinator.storage.store.blob_path(trained.blob.digest),
                )
                updates[name] = trained
                continue
            for digest in (trained.blob.digest, *(ref.digest for ref in task.blobs.values())):
                shutil.copy(place.store.blob_path(digest), self.store.blob_path(digest))
            updates[name] = judged = self.work.examine(trained, task)
            if judged.sent_blob is not None:
                self.to_server(judged.sent_blob.digest)
        return updates

    def to_server(self, digest: str) -> None:
        shutil.copy(self.store.blob_path(digest), self.coordinator.storage.store.blob_path(digest))

    def check(self, update: Update) -> tuple[Reason | None, str]:
        task, state = self.tasks_of[update.device], self.coordinator.model.state
        found = self.coordinator.checker.check(CheckUpdate(update.device, update), task, state)
        return found.reason, found.detail

    def weighed(self, number: int, updates: Mapping[str, Update]) -> tuple[CloseRound, SumRequest]:
        close = CloseRound(number, updates, tuple(sorted(updates)), (), {}, dict.fromkeys(updates, 0))
        weights = self.coordinator.aggregator.weigh(close).weights
        members = {
            name: SumMember(attempt=updates[name].attempt, digest=updates[name].blob.digest, weight=weight)
            for name, weight in weights.items()
        }
        request = {"federation": "federation", "site": "barn", "run": "run-1", "round": number}
        return close, SumRequest(**request, members=members)

    def added(self, request: SumRequest, updates: Mapping[str, Update]) -> SiteSum:
        """The sum of the site, which the server then has."""
        task = next(iter(self.tasks_of.values()))
        made = self.work.add(MakeSum(request, tuple(updates[name] for name in request.members)), task)
        assert made.ref is not None
        self.to_server(made.ref.digest)
        members = {name: member.weight for name, member in request.members.items()}
        about = {"federation": "federation", "site": "barn", "run": "run-1", "round": request.round}
        return SiteSum(**about, request=request.digest, members=members, blob=made.ref)

    def checked(self, found: SiteSum, updates: Mapping[str, Update]) -> SumChecked:
        assert found.blob is not None
        counted = [updates[name] for name in found.members]
        return self.coordinator.sums.check(CheckSum("barn", found.blob), found.members, counted)

    def close(self, number: int, updates: Mapping[str, Update]) -> RoundRecord:
        for name, update in updates.items():
            assert self.check(update) == (None, "")
            private = self.places[name].private
            assert private is not None
            private.commit(update.run, update.round, update.attempt)
        if all(update.receipt is not None and update.receipt.parameters == () for update in updates.values()):
            return self.coordinator.aggregator.close(self.weighed_without_sums(number, updates))
        close, request = self.weighed(number, updates)
        found = self.added(request, updates)
        assert self.checked(found, updates).detail == ""
        return self.coordinator.aggregator.close(replace(close, sums={"barn": found}))

    def weighed_without_sums(self, number: int, updates: Mapping[str, Update]) -> CloseRound:
        return CloseRound(number, updates, tuple(sorted(updates)), (), {}, dict.fromkeys(updates, 0))


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("attending", ["model.name=two-nn"]),
        slow("fedavg", ["model.name=cnn-batch", "tiers.ratios=[0.5, 0.0]"]),
        ("fedavg", ["tiers.ratios=[0.5, 0.0]", 'tiers.train=["head", "all"]']),
        ("fedavg", ["model.name=mlp", 'strategy.uplink=[{name="top-k", share=0.1}, "int8", "zstd"]']),
    ],
)
def test_the_model_is_that_of_the_updates_themselves(tmp_path: Path, recipe: str, words: list[str]):
    flat, site = Bench(tmp_path / "flat", recipe, *words, names=NAMES), SiteBench(tmp_path, recipe, *words)
    for number in (1, 2):
        before, _ = flat.round(number)
        after, _ = site.round(number)
        assert site.coordinator.model.sha256 == flat.coordinator.model.sha256
        # A site is compared as a whole.
        assert after.model_copy(update={"harm": before.harm}) == before


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> SiteBench:
    """A round whose updates lie at the site."""
    made = SiteBench(tmp_path_factory.mktemp("site"), "fedavg", "model.name=cnn-batch")
    made.updates = made.answers(1)  # type: ignore[attr-defined]
    for update in made.updates.values():  # type: ignore[attr-defined]
        assert made.check(update) == (None, "")
    return made


def changed(groups: Groups, name: str, change: float) -> Groups:
    arrays = {group: {key: np.array(groups[group][key]) for key in groups[group]} for group in (COARSE, FINE)}
    arrays[COARSE][name].reshape(-1)[0] += change
    return arrays


@pytest.mark.parametrize(
    ("change", "words"), [(2.0**30, "exceeds what its members' receipts allow"), (2.0**54, "whole numbers")]
)
def test_a_sum_beyond_its_members_receipts_is_refused(bench: SiteBench, change: float, words: str):
    updates = bench.updates  # type: ignore[attr-defined]
    _, request = bench.weighed(1, updates)
    found = bench.added(request, updates)
    assert found.blob is not None
    (total,) = bench.coordinator.sums.open_sums({"barn": found})
    blob = bench.coordinator.storage.store.put_groups(
        planes_of(changed(total.groups, "conv1.weight", change)), write=write_sum
    )
    verdict = bench.checked(found.model_copy(update={"blob": blob}), updates)
    assert words in verdict.detail


def test_a_receipt_has_the_norms_of_the_parts_that_its_tier_trains(tmp_path: Path):
    bench = SiteBench(tmp_path, "fedavg", "tiers.ratios=[0.5, 0.0]", 'tiers.train=["head", "all"]')
    updates = bench.answers(1)
    found = {
        name: set(update.receipt.norms) for name, update in updates.items() if update.receipt is not None
    }
    head, rest = {"model", "model peak"}, {"model from linear1.bias", "model peak from linear1.bias"}
    assert found == {"barn.weak": head, "barn.strong": head | rest}
    _, request = bench.weighed(1, updates)
    total = bench.added(request, updates)
    assert bench.checked(total, updates).detail == ""
    weak = {**updates, "barn.strong": updates["barn.weak"]}
    assert "'linear1.bias' of the sum exceeds" in bench.checked(total, weak).detail


def test_a_file_that_is_no_sum_is_refused(bench: SiteBench):
    updates = bench.updates  # type: ignore[attr-defined]
    _, request = bench.weighed(1, updates)
    blob = bench.coordinator.storage.store.put_blob(b"not a sum")
    found = bench.added(request, updates).model_copy(update={"blob": blob})
    assert bench.checked(found, updates).detail


def test_a_lost_update_is_named_instead_of_a_sum(bench: SiteBench):
    updates = dict(bench.updates)  # type: ignore[attr-defined]
    _, request = bench.weighed(1, updates)
    path = bench.store.blob_path(updates["barn.weak"].blob.digest)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"?")
    made = bench.work.add(MakeSum(request, tuple(updates.values())), bench.tasks_of["barn.weak"])
    path.write_bytes(data)
    assert (made.ref, made.lost) == (None, ("barn.weak",))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"parameters": ("conv1.weight",)}, Reason.WRONG_SHAPE),
        ({"groups": None}, Reason.WRONG_SHAPE),
        ({"norms": {"model": 1e9, "model peak": 1e9}}, Reason.OUT_OF_BOUNDS),
        ({"reason": Reason.NOT_FINITE, "detail": "as seen there"}, Reason.NOT_FINITE),
    ],
    ids=["other parameters", "no variances", "too large", "refused there"],
)
def test_a_receipt_is_judged_as_the_update_would_be(bench: SiteBench, more, reason):
    update = bench.updates["barn.strong"]  # type: ignore[attr-defined]
    judged = update.model_copy(update={"receipt": update.receipt.model_copy(update=more)})
    assert bench.check(judged)[0] is reason


def test_a_site_examines_with_the_servers_firewall(bench: SiteBench):
    update, task = bench.updates["barn.strong"], bench.tasks_of["barn.strong"]  # type: ignore[attr-defined]
    blob = bench.store.put_blob(b"neither groups nor anything else")
    judged = bench.work.examine(update.model_copy(update={"blob": blob, "receipt": None}), task)
    assert judged.receipt is not None
    assert judged.receipt.reason is Reason.MALFORMED
    missing = update.blob.model_copy(update={"digest": "0" * 64})
    gone = bench.work.examine(update.model_copy(update={"blob": missing, "receipt": None}), task)
    assert gone.receipt is not None
    assert gone.receipt.reason is Reason.DIGEST_MISMATCH


def multiplied(
    bench: SiteBench, request: SumRequest, updates: Mapping[str, Update], factor: float
) -> SiteSum:
    """The site's sum times `factor`, which the server then has."""
    found = bench.added(request, updates)
    (total,) = bench.coordinator.sums.open_sums({"barn": found})
    groups = {
        group: {name: np.array(arrays[name]) * factor for name in arrays}
        for group, arrays in total.groups.items()
    }
    blob = bench.coordinator.storage.store.put_groups(planes_of(groups), write=write_sum)
    return found.model_copy(update={"blob": blob})


def test_a_sum_turned_round_is_left_out(tmp_path: Path):
    """Neither a number nor the norm is larger than the receipts allow."""
    words = ("model.name=mlp", "learning-rate=0.2", "local-epochs=10", "firewall.leave-one-out=0.05")
    bench = SiteBench(tmp_path, "fedavg", *words, names=("barn.weak", "barn.second", "strong", "other"))
    updates = bench.answers(1)
    for update in updates.values():
        assert bench.check(update) == (None, "")
    close, request = bench.weighed(1, updates)
    wrong = multiplied(bench, request, updates, -1.0)
    assert bench.checked(wrong, updates).detail == ""
    true = bench.added(request, updates)
    found = bench.coordinator.aggregator.review(replace(close, sums={"barn": true}))
    assert (found.refused, list(found.sums)) == ({}, ["barn"])
    record = bench.coordinator.aggregator.close(replace(close, sums={"barn": wrong}))
    assert set(record.completed) == {"strong", "other"}
    assert {(each.device, each.reason) for each in record.rejected} == {
        ("barn.weak", Reason.WRONG_SUM),
        ("barn.second", Reason.WRONG_SUM),
    }


def test_the_canary_refuses_a_sum_turned_round_and_not_the_true_one(tmp_path: Path):
    """A gateway multiplies its sum by -1: no number and no norm is larger than allowed."""
    bench = SiteBench(
        tmp_path, "fedavg", "model.name=mlp", "learning-rate=0.05", "local-epochs=5", "firewall.canary=0.1"
    )
    bench.close(1, bench.answers(1))
    updates = bench.answers(2)
    for update in updates.values():
        assert bench.check(update) == (None, "")
    _, request = bench.weighed(2, updates)
    assert bench.checked(multiplied(bench, request, updates, 1.0), updates).detail == ""
    turned = multiplied(bench, request, updates, -1.0)
    assert "alone it takes accuracy from" in bench.checked(turned, updates).detail


def test_a_sum_whose_norm_no_member_explains_is_refused(bench: SiteBench):
    updates = bench.updates  # type: ignore[attr-defined]
    small = {
        name: update.model_copy(
            update={
                "receipt": update.receipt.model_copy(
                    update={"norms": {**update.receipt.norms, "model": update.receipt.norms["model"] / 10}}
                )
            }
        )
        for name, update in updates.items()
    }
    _, request = bench.weighed(1, updates)
    assert "norm of 'model'" in bench.checked(bench.added(request, updates), small).detail
