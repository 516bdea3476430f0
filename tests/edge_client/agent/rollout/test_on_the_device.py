"""A device's side of a rollout with real files: switch, rollback and power cuts at every write."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from edge_client.agent.rollout.trial import Comparison, ServedForm
from edge_client.inference.model_slots import export_path, read_export
from edge_client.inference.service.health import Health, write_health
from edge_client.security.trusted_key import check_model
from edge_client.storage import atomic_files
from edge_client.storage.atomic_files import Space, sweep
from schemas.errors import PeerError
from schemas.messages import BlobRequest, ModelWithdrawal
from schemas.messages.rollout import Cause, Stage, TrialTerms
from schemas.tensors.chunks import digest_of
from tests.edge_client.agent.rollout.device import GOOD, MEASURED, NEW, OLD, REF, Device, offer, serving
from tests.edge_client.inference.test_model_slots import PowerCut, failing_power
from tests.edge_client.signed import STRANGER, TRUSTED, manifest_of
from tests.edge_server.releases.rollout.measured import measured

BAD = Comparison(MEASURED, measured(0.1), lost=60, won=0)
EVERY = int(os.environ.get("CHAOS_EVERY_WRITE", "4"))
"""The power is cut at every n-th step of writing; `make chaos` sets 1."""
WITHDRAWAL = ModelWithdrawal(federation="home", device="pi", rollout="r-1", version="v2")


def begin(device: Device) -> None:
    device.part.on_connected()
    device.hear(offer())
    device.advance()


def test_an_offered_model_is_put_in_use_with_the_servers_signature(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    device = Device(tmp_path, monkeypatch, trust=TRUSTED)
    begin(device)
    assert device.serves() == NEW
    served = device.slots.current()
    assert check_model(served.path, NEW, TRUSTED).what == "tier-export"
    assert (served.model.version, served.model.accuracy) == ("v2", 0.75)
    assert device.reports[-1].stage is Stage.KEPT
    # The downloaded file and the examples have been deleted.
    assert sorted(path.name for path in (tmp_path / "rollout").rglob("*") if path.is_file()) == ["trial.json"]


def test_a_worse_model_is_never_used(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    device = Device(tmp_path, monkeypatch, compare=lambda _: BAD)
    begin(device)
    assert device.serves() == OLD
    assert (device.reports[-1].stage, device.reports[-1].cause) == (Stage.REFUSED, Cause.ACCURACY)


def test_both_models_are_compared_before_the_switch_and_again_after_it(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    pairs = []

    def compare(pair):
        pairs.append((pair.running.read_bytes(), pair.candidate.read_bytes()))
        return GOOD

    begin(Device(tmp_path, monkeypatch, compare=compare))
    assert set(pairs) == {(OLD, NEW)}
    assert len(pairs) == 2


def test_failing_requests_after_the_switch_cause_a_rollback(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    device = Device(tmp_path, monkeypatch)

    def fail_once_in_use(pair):
        served = device.slots.current()
        if served.model.digest == REF.digest:
            write_health(served.folder, Health(digest=REF.digest, starts=1, requests=50, errors=40))
        return GOOD

    monkeypatch.setattr(
        "edge_client.agent.rollout.trial.ComparisonRunner.compare",
        lambda _, pair, most: fail_once_in_use(pair),
    )
    begin(device)
    assert device.serves() == OLD
    assert (device.reports[-1].stage, device.reports[-1].cause) == (Stage.ROLLED_BACK, Cause.ERRORS)
    assert [report.stage for report in device.reports].count(Stage.SWITCHED) == 1


def test_a_second_trial_of_a_model_does_not_count_the_failures_of_the_first(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    device = Device(tmp_path, monkeypatch)
    begin(device)
    write_health(device.slots.current().folder, Health(digest=REF.digest, starts=9, requests=50, errors=40))
    device.hear(WITHDRAWAL)
    assert device.serves() == OLD
    device.hear(offer("r-2"))
    device.advance()
    assert (device.serves(), device.reports[-1].stage) == (NEW, Stage.KEPT)


def test_a_version_withdrawn_after_it_was_kept_is_rolled_back(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    device = Device(tmp_path, monkeypatch)
    begin(device)
    device.hear(WITHDRAWAL)
    assert device.serves() == OLD
    assert (device.reports[-1].stage, device.reports[-1].cause) == (Stage.ROLLED_BACK, Cause.WITHDRAWN)


def test_a_withdrawn_version_of_an_earlier_rollout_is_rolled_back(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    device = Device(tmp_path, monkeypatch)
    begin(device)
    device.hear(offer("r-2", version="v3", blob=REF.model_copy(update={"digest": "0" * 64})))
    for _ in range(2):
        device.hear(WITHDRAWAL)
        assert device.serves() == OLD
        assert (device.reports[-1].rollout, device.reports[-1].stage) == ("r-1", Stage.ROLLED_BACK)
    assert device.reports[-1].detail == "it is not in use"


def test_a_withdrawn_first_model_stays_in_use_and_the_reason_is_reported(tmp_path, monkeypatch) -> None:
    device = Device(tmp_path, monkeypatch)
    begin(device)
    device.hear(WITHDRAWAL)
    assert device.serves() == NEW
    assert "no model before it" in device.reports[-1].detail


def test_the_file_in_models_follows_a_rollout_and_its_rollback(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    shown = tmp_path / "models" / "model.onnx"
    device = Device(tmp_path, monkeypatch)
    assert shown.read_bytes() == OLD
    begin(device)
    assert shown.read_bytes() == device.serves() == NEW
    assert shown.samefile(device.slots.current().path)
    device.hear(WITHDRAWAL)
    assert shown.read_bytes() == device.serves() == OLD


def test_a_better_variant_of_the_file_is_served(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    other = b"the new model in eight bits" * 99

    def compare(pair):
        if pair.made is not None:
            pair.made.write_bytes(other)
            export_path(pair.made).write_bytes(NEW)
        return replace(GOOD, made=ServedForm("int8", digest_of(other)))

    device = Device(tmp_path, monkeypatch, compare=compare)
    begin(device)
    served = device.slots.current()
    assert device.serves() == other
    assert (served.model.variant, served.model.parent) == ("int8", REF.digest)
    assert read_export(served.path) == NEW
    assert list(tmp_path.rglob("made*")) == []
    assert device.reports[-1].stage is Stage.KEPT
    # Another rollout offers the same version, which is already in use.
    device.hear(offer("r-2"))
    assert (device.reports[-1].stage, device.reports[-1].candidate) == (Stage.KEPT, None)


@pytest.mark.parametrize(
    ("offered", "reason"),
    [
        (offer(manifest=None), "not signed"),
        (offer(manifest=STRANGER.sign(manifest_of(NEW))), "signed with key"),
        (offer(tier=1), "tier 2 in home, not this file"),
        (
            offer(manifest=STRANGER.sign(manifest_of(NEW)).model_copy(update={"key": TRUSTED.fingerprint})),
            "altered",
        ),
    ],
)
def test_a_model_not_signed_with_the_trusted_key_is_not_downloaded(
    tmp_path, monkeypatch, offered, reason
) -> None:
    serving(tmp_path)
    device = Device(tmp_path, monkeypatch, trust=TRUSTED)
    device.part.on_connected()
    device.hear(offered)
    device.advance()
    assert device.reports[-1].cause is Cause.UNTRUSTED
    assert reason in device.reports[-1].detail
    assert [message.kind for message in device.sent] == ["model-report"]
    assert device.serves() == OLD


def test_messages_for_other_devices_or_of_other_kinds_are_refused(tmp_path, monkeypatch) -> None:
    device = Device(tmp_path, monkeypatch)
    for message in (offer(device="pi-2"), device_report(device, tmp_path, monkeypatch)):
        with pytest.raises(PeerError):
            device.hear(message)


def device_report(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    other = Device(tmp_path / "other", monkeypatch)
    other.part.on_connected()
    other.hear(offer())
    return other.reports[0]


def test_a_comparison_waits_for_training_to_end_but_not_forever(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    compared = []
    device = Device(tmp_path, monkeypatch, compare=lambda pair: compared.append(pair) or GOOD)
    device.part.on_connected()
    device.hear(offer())
    tick = device.part.tick
    monkeypatch.setattr(device.part, "tick", lambda training: tick(training=True))
    device.advance(most=60)
    assert compared == []
    device.advance(most=120)
    assert len(compared) == 1


def test_if_the_trial_cannot_be_recorded_the_model_is_not_switched(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    device = Device(tmp_path, monkeypatch)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("edge_client.agent.offers.runtime.write_synced", full)
    begin(device)
    assert device.serves() == OLD
    assert (device.reports[-1].stage, device.reports[-1].cause) == (Stage.REFUSED, Cause.NO_SPACE)


def test_a_device_that_starts_without_a_link_continues_its_watch(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    device = Device(tmp_path, monkeypatch)
    device.part.on_connected()
    device.hear(offer(terms=TrialTerms(watch_s=3600.0)))
    device.advance()
    assert (device.serves(), device.reports[-1].stage) == (NEW, Stage.SWITCHED)
    later = Device(tmp_path, monkeypatch, compare=lambda _: BAD)
    later.advance(most=100)
    assert (later.serves(), later.reports[-1].stage) == (OLD, Stage.ROLLED_BACK)


# --- power cuts ---
@pytest.mark.parametrize("ends", ["kept", "rolled back"])
def test_after_a_power_cut_a_complete_model_is_in_use_and_the_trial_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    def compare_in(state: Path) -> Callable[[object], Comparison]:
        """Good before the switch; afterwards bad if the trial is to end with a rollback."""
        from edge_client.inference.model_slots import Slots

        def compare(_: object) -> Comparison:
            in_use = Slots(state / "serving").current()
            bad = ends == "rolled back" and in_use is not None and in_use.model.digest == REF.digest
            return BAD if bad else GOOD

        return compare

    cut_at, seen = 0, set()
    while True:
        state = tmp_path / f"cut-{cut_at}"
        serving(state)
        with failing_power(state, monkeypatch, cut_at) as steps, suppress(PowerCut):
            begin(Device(state, monkeypatch, compare=compare_in(state)))
        sweep(state)
        later = Device(state, monkeypatch, compare=compare_in(state))
        seen.add(later.serves())
        assert later.serves() in (OLD, NEW), steps
        later.part.on_connected()
        later.hear(offer())
        later.advance()
        assert later.serves() == (NEW if ends == "kept" else OLD), steps
        assert later.reports[-1].stage is (Stage.KEPT if ends == "kept" else Stage.ROLLED_BACK), steps
        if len(steps) <= cut_at:
            break
        cut_at += EVERY
    # At least four stages are recorded and four files of a slot are written, each in four steps.
    assert cut_at > 4 * (4 + 4)
    assert seen == {OLD, NEW}


def test_terms_without_a_watch_still_check_once(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    device = Device(tmp_path, monkeypatch)
    device.part.on_connected()
    device.hear(offer(terms=TrialTerms(watch_s=0.0)))
    device.advance()
    assert device.reports[-1].stage is Stage.KEPT


def test_a_model_that_the_disk_has_no_room_for_is_refused_before_it_is_fetched(tmp_path, monkeypatch) -> None:
    serving(tmp_path)
    # Of these 100 bytes 5 stay free, and the model is there twice before the earlier one goes.
    monkeypatch.setattr(atomic_files, "space_of", lambda _: Space(100, 2 * REF.size + 4))
    device = Device(tmp_path, monkeypatch)
    begin(device)
    report = device.reports[-1]
    assert (report.stage, report.cause, device.serves()) == (Stage.REFUSED, Cause.NO_SPACE, OLD)
    assert not any(isinstance(message, BlobRequest) for message in device.sent)
