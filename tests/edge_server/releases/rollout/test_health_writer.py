"""What `edge-client serve` notes of the models in the slots, as a watch reads it."""

from pathlib import Path

import pytest

from edge_client.inference.model_slots import Slots
from edge_client.inference.service.health import Health, read_health
from edge_client.inference.service.health_writer import HealthWriter
from tests.edge_server.releases.rollout.device import NEW, serving


@pytest.fixture
def slots(tmp_path: Path) -> Slots:
    serving(tmp_path)
    return Slots(tmp_path / "serving")


def noted(slots: Slots) -> Health:
    """Of the model in use."""
    now = slots.current()
    assert now is not None
    return read_health(now.folder, now.model.digest)


def served(slots: Slots) -> HealthWriter:
    notes = HealthWriter(slots)
    notes.loading()
    notes.loaded()
    return notes


def test_a_start_is_noted_before_the_model_is_loaded(slots: Slots) -> None:
    HealthWriter(slots).loading()
    assert (noted(slots).starts, noted(slots).ends) == (1, 0)


def test_requests_are_counted_and_written_when_asked_to(slots: Slots) -> None:
    notes = served(slots)
    notes.answered(0.002)
    notes.answered(0.004)
    notes.failed()
    assert noted(slots).requests == 0
    notes.save()
    assert (noted(slots).requests, noted(slots).errors, noted(slots).mean_ms) == (3, 1, 3.0)


def test_a_process_that_ends_well_is_no_crash_and_one_that_does_not_is(slots: Slots) -> None:
    served(slots).close()
    served(slots)
    assert noted(slots).crashes == 0
    # The second never ended, and a third begins.
    served(slots)
    assert noted(slots).crashes == 1


def test_going_over_to_another_model_ends_the_one_before(slots: Slots) -> None:
    notes, before = served(slots), slots.current()
    assert before is not None
    serving(slots.folder.parent, NEW)
    notes.loading()
    # Until the next one is loaded, requests are still those of the one before.
    notes.answered(0.001)
    notes.loaded()
    old = read_health(before.folder, before.model.digest)
    assert (old.requests, old.starts, old.ends) == (1, 1, 1)
    assert (noted(slots).requests, noted(slots).starts, noted(slots).ends) == (0, 1, 0)


def test_a_model_that_is_refused_is_noted_and_the_one_before_goes_on(slots: Slots) -> None:
    notes, before = served(slots), slots.current()
    assert before is not None
    serving(slots.folder.parent, NEW)
    notes.loading()
    notes.load_failed()
    notes.answered(0.001)
    notes.close()
    assert (noted(slots).refusals, noted(slots).crashes) == (1, 0)
    assert read_health(before.folder, before.model.digest).requests == 1


def test_without_a_model_there_is_nothing_to_note(tmp_path: Path) -> None:
    notes = served(Slots(tmp_path / "serving"))
    notes.answered(1.0)
    notes.close()
    assert not (tmp_path / "serving").exists()


def test_the_same_model_looked_at_again_is_no_new_start(slots: Slots) -> None:
    notes = served(slots)
    notes.loading()
    notes.loaded()
    assert noted(slots).starts == 1
