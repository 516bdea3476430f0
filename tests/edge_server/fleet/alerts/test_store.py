"""`alerts.sqlite` and the delivery threads: nothing is lost, nothing is delivered twice, nobody waits."""

import threading
from contextlib import closing

import pytest

from edge_server.fleet.alerts import delivery
from edge_server.fleet.alerts.alert import Notification
from edge_server.fleet.alerts.store import MAX_WAITING, AlertStore
from schemas.values import BoardState
from tests.edge_server.fleet.alerts.boards import board, make_plan, make_rule, run

NOW = 1_800_000_000.0
DEADLINE_S = 30


@pytest.fixture
def store(tmp_path):
    with closing(AlertStore(tmp_path / "alerts.sqlite")) as opened:
        yield opened


def note(rule: str = "hot", receiver: str = "hook", **values) -> Notification:
    return Notification(receiver=receiver, rule=rule, severity="info", at=NOW, **values)


def rules_waiting(store: AlertStore, receiver: str = "hook") -> list[str]:
    return [row.notification.rule for row in store.waiting(receiver)]


def test_alerts_and_notifications_survive_a_restart(tmp_path):
    plan = make_plan(make_rule("temperature-above", 80))
    with closing(AlertStore(tmp_path / "a.sqlite")) as store:
        after = run({}, plan, NOW, board("pi", board=BoardState(celsius=90)), board("pi-2"))
        store.save({}, after.alerts, after.notifications, now=NOW)
    with closing(AlertStore(tmp_path / "a.sqlite")) as store:
        assert store.alerts() == after.alerts
        assert [row.notification for row in store.waiting()] == list(after.notifications)
        store.save(after.alerts, {}, (), now=NOW)
        assert store.alerts() == {}


def test_a_notification_replaces_one_that_only_repeats(store):
    store.save({}, {}, [note(), note("other", resend=True)], now=NOW)
    store.save({}, {}, [note(resend=True)], now=NOW)
    store.save({}, {}, [note(resend=True), note("other")], now=NOW)
    assert rules_waiting(store) == ["hot", "hot", "other"]


def test_the_oldest_of_too_many_are_dropped(store):
    store.save({}, {}, [note(f"r{number}") for number in range(MAX_WAITING + 2)], now=NOW)
    waiting = rules_waiting(store)
    assert (len(waiting), waiting[0]) == (MAX_WAITING, "r2")


def test_silences_end(store):
    silence = store.silence("site=barn", "router", "local:me", now=NOW, until=NOW + 60)
    assert store.silences(NOW + 59) == (silence,)
    assert store.silences(NOW + 60) == ()
    assert store.end_silence(silence.number, now=NOW + 10)
    assert store.silences(NOW + 10) == ()
    assert not store.end_silence(silence.number, now=NOW + 11)


def test_the_delay_grows_to_a_limit():
    assert delivery.delay_s(1) == delivery.FIRST_DELAY_S
    assert delivery.delay_s(2) == 2 * delivery.FIRST_DELAY_S
    assert delivery.delay_s(1000) == delivery.LONGEST_DELAY_S


class Receiver:
    """Fails so many times, then takes what comes; `took` tells when there are `expected`."""

    def __init__(self, expected: int, failures: int = 0) -> None:
        self.rules: list[str] = []
        self.took, self._expected, self._failures = threading.Event(), expected, failures

    def __call__(self, notification: Notification) -> None:
        if self._failures:
            self._failures -= 1
            raise delivery.DeliveryError("hook: is down")
        self.rules.append(notification.rule)
        if len(self.rules) == self._expected:
            self.took.set()


def test_a_receiver_that_was_down_gets_everything_in_order_and_once(store):
    store.save({}, {}, [note("a"), note("b"), note("c")], now=NOW)
    receiver = Receiver(3, failures=4)
    thread = delivery.DeliveryThread("hook", receiver, store, clock=lambda: NOW, delay=lambda attempts: 0.0)
    thread.start()
    assert receiver.took.wait(DEADLINE_S)
    thread.end()
    assert receiver.rules == ["a", "b", "c"]
    assert rules_waiting(store) == []


def test_a_failed_attempt_is_kept_with_its_error_and_its_next_time(store):
    store.save({}, {}, [note("a")], now=NOW)
    failed, moment = threading.Event(), [NOW]

    def delay(attempts: int) -> float:
        failed.set()
        return 100.0

    thread = delivery.DeliveryThread(
        "hook", Receiver(1, failures=9), store, clock=lambda: moment[0], delay=delay
    )
    thread.start()
    assert failed.wait(DEADLINE_S)
    thread.end()
    (row,) = store.waiting()
    assert (row.attempts, row.error, row.due_at) == (1, "hook: is down", NOW + 100)


def test_a_notification_that_is_too_old_is_dropped(store):
    store.save({}, {}, [note("a")], now=NOW - delivery.GIVE_UP_S)
    store.save({}, {}, [note("b")], now=NOW)
    receiver = Receiver(1, failures=1)
    thread = delivery.DeliveryThread("hook", receiver, store, clock=lambda: NOW)
    thread.start()
    assert receiver.took.wait(DEADLINE_S)
    thread.end()
    assert receiver.rules == ["b"]


def test_a_faulty_receiver_is_not_tried_without_pause(store):
    store.save({}, {}, [note("a")], now=NOW)
    failed = threading.Event()

    def delay(attempts: int) -> float:
        failed.set()
        return 100.0

    def faulty(notification: Notification) -> None:
        raise ZeroDivisionError("oh")

    thread = delivery.DeliveryThread("hook", faulty, store, clock=lambda: NOW, delay=delay)
    thread.start()
    assert failed.wait(DEADLINE_S)
    thread.end()
    assert [row.error for row in store.waiting()] == ["ZeroDivisionError: oh"]


def test_what_waits_for_a_receiver_that_is_gone_is_forgotten(store):
    store.save({}, {}, [note("a", "old"), note("b", "hook")], now=NOW)
    store.keep_receivers(["hook"])
    assert [row.notification.receiver for row in store.waiting()] == ["hook"]


def test_a_receiver_that_hangs_delays_no_other(store):
    release, receiver = threading.Event(), Receiver(1)
    store.save({}, {}, [note("a", "stuck"), note("b", "hook")], now=NOW)
    deliveries = delivery.Deliveries({"stuck": lambda sent: release.wait() and None, "hook": receiver}, store)
    deliveries.start()
    assert receiver.took.wait(DEADLINE_S)
    release.set()
    deliveries.end()
