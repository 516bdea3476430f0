"""Lost and restored connections, and messages that are not for a device."""

import pytest

from edge_client.agent.session.events import Connected, Disconnected, Received, SendMessage, Tick, WorkDone
from edge_client.agent.session.machine import RESEND_S, SessionPhase, step
from tests.edge_client.agent.session.by_hand import (
    FETCHING,
    PHASES,
    STATE,
    STATE_DATA,
    WORKING,
    accepted,
    after,
    chunks,
    delivery,
    request,
    update,
)


@pytest.mark.parametrize("phase", PHASES)
def test_a_lost_connection_only_stops_messages(phase):
    session, commands = step(PHASES[phase], Disconnected(), 0.0)
    assert commands == []
    assert step(session, Tick(), 1000.0) == (session, [])
    assert (session.phase, session.task, session.result) == (
        PHASES[phase].phase,
        PHASES[phase].task,
        PHASES[phase].result,
    )


def test_work_continues_offline_and_its_result_is_sent_after_reconnecting():
    session = after(WORKING, Disconnected(), WorkDone(update()))
    assert session.phase is SessionPhase.REPORTING
    session, commands = step(session, Connected(), 50.0)
    assert commands == [SendMessage(update())]
    assert step(session, Tick(), 50.0 + RESEND_S)[1] == [SendMessage(update())]


def test_only_missing_chunks_are_requested_after_reconnecting():
    session = after(FETCHING, chunks(STATE_DATA)[1], Disconnected())
    assert step(session, Connected(), 50.0)[1] == [request(STATE, 0, 1), request(STATE, 2, 1)]


@pytest.mark.parametrize("phase", ["idle", "working", "settled"])
def test_nothing_is_sent_after_reconnecting_if_nothing_is_pending(phase):
    assert step(after(PHASES[phase], Disconnected()), Connected(), 50.0)[1] == []


@pytest.mark.parametrize("message", [update(), delivery(), accepted().message])
@pytest.mark.parametrize("phase", PHASES)
def test_messages_not_meant_for_devices_change_nothing(phase, message):
    assert step(PHASES[phase], Received(message), 0.0) == (PHASES[phase], [])
