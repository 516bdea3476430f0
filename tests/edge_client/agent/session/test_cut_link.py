"""Lost and restored connections, and messages that are not for a device."""

import pytest

from edge_client.agent.session.events import Connected, Disconnected, Received, SendMessage, Tick, WorkDone
from edge_client.agent.session.machine import RESEND_S, SessionPhase, step
from tests.edge_client.agent.session import by_hand


@pytest.mark.parametrize("phase", by_hand.PHASES)
def test_a_lost_connection_only_stops_messages(phase):
    session, commands = step(by_hand.PHASES[phase], Disconnected(), 0.0)
    assert commands == []
    assert step(session, Tick(), 1000.0) == (session, [])
    assert (session.phase, session.task, session.result) == (
        by_hand.PHASES[phase].phase,
        by_hand.PHASES[phase].task,
        by_hand.PHASES[phase].result,
    )


def test_work_continues_offline_and_its_result_is_sent_after_reconnecting():
    session = by_hand.after(by_hand.WORKING, Disconnected(), WorkDone(by_hand.update()))
    assert session.phase is SessionPhase.REPORTING
    session, commands = step(session, Connected(), 50.0)
    assert commands == [SendMessage(by_hand.update())]
    assert step(session, Tick(), 50.0 + RESEND_S)[1] == [SendMessage(by_hand.update())]


def test_only_missing_chunks_are_requested_after_reconnecting():
    session = by_hand.after(by_hand.FETCHING, by_hand.chunks(by_hand.STATE_DATA)[1], Disconnected())
    assert step(session, Connected(), 50.0)[1] == [
        by_hand.request(by_hand.STATE, 0, 1),
        by_hand.request(by_hand.STATE, 2, 1),
    ]


@pytest.mark.parametrize("phase", ["idle", "working", "settled"])
def test_nothing_is_sent_after_reconnecting_if_nothing_is_pending(phase):
    assert step(by_hand.after(by_hand.PHASES[phase], Disconnected()), Connected(), 50.0)[1] == []


@pytest.mark.parametrize("message", [by_hand.update(), by_hand.delivery(), by_hand.accepted().message])
@pytest.mark.parametrize("phase", by_hand.PHASES)
def test_messages_not_meant_for_devices_change_nothing(phase, message):
    assert step(by_hand.PHASES[phase], Received(message), 0.0) == (by_hand.PHASES[phase], [])
