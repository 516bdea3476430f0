"""The health that `edge-client serve` records for the models in the slots."""

from pathlib import Path

import pytest

from edge_client.inference.model_slots import Slots
from edge_client.inference.service.health import Health, HealthWriter, read_health
from tests.edge_client.agent.rollout.device import NEW, serving


@pytest.fixture
def slots(tmp_path: Path) -> Slots:
    serving(tmp_path)
    return Slots(tmp_path / "serving")


def health(slots: Slots) -> Health:
    """The recorded health of the model in use."""
    now = slots.current()
    assert now is not None
    return read_health(now.folder, now.model.digest)


def served(slots: Slots) -> HealthWriter:
    notes = HealthWriter(slots)
    notes.loading()
    notes.on_loaded()
    return notes


def test_a_start_is_recorded_before_the_model_is_loaded(slots: Slots) -> None:
    HealthWriter(slots).loading()
    assert (health(slots).starts, health(slots).ends) == (1, 0)


def test_counted_requests_are_written_on_save(slots: Slots) -> None:
    notes = served(slots)
    notes.count_answer(0.002)
    notes.count_answer(0.004)
    notes.count_failure()
    assert health(slots).requests == 0
    notes.save()
    assert (health(slots).requests, health(slots).errors, health(slots).mean_ms) == (3, 1, 3.0)


def test_only_a_process_that_does_not_end_normally_counts_as_a_crash(slots: Slots) -> None:
    served(slots).close()
    served(slots)
    assert health(slots).crashes == 0
    # The third process starts although the second never ended.
    served(slots)
    assert health(slots).crashes == 1


def test_switching_to_another_model_ends_the_previous_one(slots: Slots) -> None:
    notes, before = served(slots), slots.current()
    assert before is not None
    serving(slots.folder.parent, NEW)
    notes.loading()
    # Until the new model is loaded, requests count for the previous one.
    notes.count_answer(0.001)
    notes.on_loaded()
    old = read_health(before.folder, before.model.digest)
    assert (old.requests, old.starts, old.ends) == (1, 1, 1)
    assert (health(slots).requests, health(slots).starts, health(slots).ends) == (0, 1, 0)


def test_a_refused_model_is_recorded_and_the_previous_one_stays_in_use(slots: Slots) -> None:
    notes, before = served(slots), slots.current()
    assert before is not None
    serving(slots.folder.parent, NEW)
    notes.loading()
    notes.load_failed()
    notes.count_answer(0.001)
    notes.close()
    assert (health(slots).refusals, health(slots).crashes) == (1, 0)
    assert read_health(before.folder, before.model.digest).requests == 1


def test_without_a_model_nothing_is_recorded(tmp_path: Path) -> None:
    notes = served(Slots(tmp_path / "serving"))
    notes.count_answer(1.0)
    notes.close()
    assert not (tmp_path / "serving").exists()


def test_loading_the_same_model_again_is_not_a_new_start(slots: Slots) -> None:
    notes = served(slots)
    notes.loading()
    notes.on_loaded()
    assert health(slots).starts == 1
