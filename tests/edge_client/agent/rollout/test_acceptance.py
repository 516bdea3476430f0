"""When a new model counts as worse than the previous one; numbers calculated by hand."""

import pytest

from edge_client.agent.rollout.trial import Comparison, chance_of, judge_comparison, judge_service
from edge_client.inference.service.health import Health, read_health, write_health
from schemas.messages.rollout import Cause, TrialTerms
from schemas.tensors.chunks import digest_of
from tests.edge_server.releases.rollout.measured import measured

TERMS = TrialTerms(accuracy_drop=0.02, latency_ratio=1.5, error_rate=0.01, crashes=0)
OLD, NEW = digest_of(b"old"), digest_of(b"new")


def compared(
    lost: int, won: int, *, examples: int = 100, old_ms: float = 2.0, new_ms: float = 2.0
) -> Comparison:
    right = 90
    running = measured(right / 100, examples=examples, latency_ms=old_ms)
    accuracy = (right - lost + won) / 100
    return Comparison(running, measured(accuracy, examples=examples, latency_ms=new_ms), lost, won)


def cause_of(found: Comparison) -> Cause | None:
    objection = judge_comparison(found, TERMS)
    return None if objection is None else objection[0]


@pytest.mark.parametrize(
    ("lost", "won", "chance"),
    # 5 of 5 examples lost: 1/32. At least 3 of 4: (4 + 1)/16. 0 of 0: certain.
    [(5, 0, 1 / 32), (3, 1, 5 / 16), (0, 0, 1.0), (0, 5, 1.0)],
)
def test_the_probability_of_such_a_loss_by_chance_alone(lost: int, won: int, chance: float) -> None:
    assert chance_of(lost, won) == chance


@pytest.mark.parametrize(
    ("lost", "won", "examples", "cause"),
    [
        # 4 of 100 is more than 2%, but 4 of 4 are lost by chance once in 16 times.
        (4, 0, 100, None),
        # 5 of 5 are lost by chance once in 32 times: too rare.
        (5, 0, 100, Cause.ACCURACY),
        # 20 lost and 10 won make 10 of 100, which happens by chance in 4.9% of all cases.
        (20, 10, 100, Cause.ACCURACY),
        (20, 11, 100, None),
        # 15 lost of 1000 is within the permitted 2%, even if not by chance.
        (15, 0, 1000, None),
        (0, 9, 100, None),
    ],
)
def test_a_loss_counts_if_it_exceeds_the_permitted_drop_and_chance(lost, won, examples, cause) -> None:
    assert cause_of(compared(lost, won, examples=examples)) is cause


@pytest.mark.parametrize(
    ("old_ms", "new_ms", "cause"),
    # 1.5 times the latency, plus half a millisecond of clock tolerance.
    [
        (2.0, 3.5, None),
        (2.0, 3.51, Cause.LATENCY),
        (0.01, 0.5, None),
        (0.01, 0.52, Cause.LATENCY),
        (2.0, 0.1, None),
    ],
)
def test_a_model_may_be_slower_only_up_to_the_limit(
    old_ms: float, new_ms: float, cause: Cause | None
) -> None:
    assert cause_of(compared(0, 0, old_ms=old_ms, new_ms=new_ms)) is cause


def test_without_a_previous_model_there_is_no_objection() -> None:
    assert judge_comparison(Comparison(candidate=measured(0.1, examples=9, latency_ms=99.0)), TERMS) is None


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (None, Health(digest=NEW, starts=1), None),
        # Three processes started and one ended; the third is serving, so another one crashed.
        (None, Health(digest=NEW, starts=3, ends=1), Cause.CRASHES),
        (None, Health(digest=NEW, starts=2, ends=1), None),
        # Two errors are too few to count; three of ten are more than 1%.
        (None, Health(digest=NEW, requests=10, errors=2), None),
        (None, Health(digest=NEW, requests=10, errors=3), Cause.ERRORS),
        # 3 of 100 requests failed with the previous model as well.
        (Health(digest=OLD, requests=100, errors=3), Health(digest=NEW, requests=100, errors=3), None),
        # The mean was 1 ms and is 2.1 ms now: more than 1.5 + 0.5.
        (
            Health(digest=OLD, requests=50, busy_ms=50.0),
            Health(digest=NEW, requests=50, busy_ms=105.0),
            Cause.LATENCY,
        ),
        # 49 requests are too few for a mean.
        (Health(digest=OLD, requests=50, busy_ms=50.0), Health(digest=NEW, requests=49, busy_ms=200.0), None),
    ],
)
def test_the_objection_to_a_model_from_serving_it(before, after, cause) -> None:
    objection = judge_service(before, after, TERMS)
    assert (None if objection is None else objection[0]) is cause


def test_health_is_counted_and_read_back(tmp_path) -> None:
    health = Health(digest=NEW).add(starts=1, ends=1, requests=3, errors=1, busy_ms=6.0)
    assert (health.requests, health.errors, health.mean_ms, health.crashes) == (3, 1, 3.0, 0)
    write_health(tmp_path, health)
    assert read_health(tmp_path, NEW) == health


@pytest.mark.parametrize("text", ["", "{}", "[", '{"digest": "x"}'])
def test_the_health_of_another_model_or_an_invalid_file_is_ignored(tmp_path, text: str) -> None:
    write_health(tmp_path, Health(digest=OLD, starts=9))
    assert read_health(tmp_path, NEW) == Health(digest=NEW)
    (tmp_path / "health.json").write_text(text)
    assert read_health(tmp_path, NEW) == Health(digest=NEW)


def test_a_failed_write_of_the_health_file_is_ignored(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    write_health(tmp_path / "file", Health(digest=NEW))
    assert read_health(tmp_path / "file", NEW) == Health(digest=NEW)
