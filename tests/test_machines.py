"""What holds for every pure state machine, in each state of its story, for each of its events."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from schemas.errors import PeerError
from tests.machines import MACHINES, Machine, Moment, moments

AT_MOST = 60
"""States and events of a story that are tried with each other."""

pytestmark = pytest.mark.parametrize("name", MACHINES)


def thinned(values: list[Any]) -> list[Any]:
    """Some of the values, from the first to the last."""
    return values[:: -(-len(values) // AT_MOST)]


def pairs(name: str) -> Iterator[tuple[Machine, Moment]]:
    """Each state of the story, once what is due is done, with each of its events."""
    machine = MACHINES[name]
    ticks = () if machine.tick is None else (type(machine.tick),)
    story = thinned([moment for moment in moments(name) if type(moment.event) not in ticks])
    events: list[Any] = []
    for moment in story:
        if moment.event not in events:
            events.append(moment.event)
    for moment in story:
        for _ in range(3 if machine.tick is not None else 0):
            moment = Moment(step(machine, moment, machine.tick), moment.event, moment.now)
        for event in (*machine.foreign, *events):
            yield machine, Moment(moment.state, event, moment.now)


def step(machine: Machine, moment: Moment, event: Any) -> Any:
    """The state after the event; the same if it is refused."""
    with suppress(PeerError):
        return machine.step(moment.state, event, moment.now)[0]
    return moment.state


def test_a_story_has_several_states(name: str) -> None:
    states: list[Any] = []
    for moment in moments(name):
        if moment.state not in states:
            states.append(moment.state)
    assert len(states) > 3


def test_the_same_event_twice_is_harmless(name: str) -> None:
    for machine, moment in pairs(name):
        once = step(machine, moment, moment.event)
        twice = step(machine, Moment(once, moment.event, moment.now), moment.event)
        assert machine.core(twice) == machine.core(once), moment


def test_the_time_never_raises(name: str) -> None:
    for moment in moments(name):
        state, tick = moment.state, MACHINES[name].tick or moment.event
        for later_s in (0.0, 0.3, 5.0, 60.0, 3600.0, 1e6):
            state, _ = MACHINES[name].step(state, tick, moment.now + later_s)


def test_a_foreign_event_changes_nothing(name: str) -> None:
    for machine, moment in pairs(name):
        if moment.event in machine.foreign:
            assert step(machine, moment, moment.event) == moment.state, moment


def test_the_old_state_stays_as_it_was(name: str) -> None:
    before = [repr(moment.state) for moment in moments(name)]
    for machine, moment in pairs(name):
        step(machine, moment, moment.event)
    assert [repr(moment.state) for moment in moments(name)] == before


def test_what_is_kept_is_read_as_it_was_written(name: str) -> None:
    for moment in moments(name):
        for kept in MACHINES[name].kept(moment.state):
            assert type(kept).model_validate_json(kept.model_dump_json()) == kept
