"""Not tests: the pure state machines, each with a story that leads through its phases."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

from pydantic import BaseModel

from edge_client.agent.eligibility import machine as eligibility
from edge_client.agent.offers import machine as offers
from edge_client.agent.offers.trial import RolledBack, Withdrawn, Work, Worked
from edge_client.agent.remote import machine as remote
from edge_client.agent.session import machine as session
from edge_client.agent.session.events import (
    BlobChecked,
    BlobsDiscarded,
    ChunkArrived,
    ChunkLost,
    Connected,
    Disconnected,
    EpochReached,
    GivenBack,
    Received,
    SessionRestored,
    Tick,
    WorkDone,
    WorkFailed,
)
from edge_client.transport import chunk_transfer
from edge_server.coordinator.standby import following
from edge_server.fleet.alerts import machine as alerts
from edge_server.fleet.alerts.alert import Evaluation
from edge_server.fleet.diagnostics import inquiry
from edge_server.fleet.queue import machine as queue
from edge_server.fleet.queue import state as queue_events
from edge_server.releases.rollout import machine
from edge_server.releases.rollout import state as rollout_state
from edge_server.rounds import events as round_events
from edge_server.rounds import machine as rounds
from edge_server.rounds.gateway import events as gateway_events
from edge_server.rounds.gateway import machine as gateway
from edge_server.transport.lease import machine as lease
from edge_server.transport.lease import state as lease_state
from edge_server.transport.lease.phases import Looking
from schemas.errors import Reason
from schemas.messages import BlobRequest, StandbyEntry
from schemas.messages.remote import DiagnosticObstacle
from schemas.messages.rollout import Stage
from schemas.tensors.chunks import Chunk
from tests.edge_client.agent.client_update import test_trial as releases
from tests.edge_client.agent.eligibility import test_machine as boards
from tests.edge_client.agent.offers import by_hand as trials
from tests.edge_client.agent.remote import test_machine as diagnostics
from tests.edge_client.agent.rollout import test_trial as models
from tests.edge_client.agent.session import by_hand as sessions
from tests.edge_server.coordinator.standby import test_following as standbys
from tests.edge_server.fleet.alerts import boards as fleet
from tests.edge_server.fleet.alerts.test_machine import COLD, HOT
from tests.edge_server.fleet.diagnostics import test_inquiry as inquiries
from tests.edge_server.fleet.queue import jobs
from tests.edge_server.releases.rollout import fleet as rollouts
from tests.edge_server.rounds import by_hand as runs
from tests.edge_server.rounds.gateway import driven as sites
from tests.edge_server.transport.lease import in_memory as leases

NOBODY = "f" * 64
STRAY = Chunk(NOBODY[:16], 0, b"stray")


@dataclass(frozen=True)
class Moment:
    """One step of a story."""

    state: Any
    event: Any
    now: float


@dataclass(frozen=True)
class Machine:
    """`story` drives the machine by the `step` that it is given.

    A `tick` says that time has passed (None: each event does); `foreign` events are about others. `kept` is
    what a later process reads of a state. `core` is what a repeated event must leave alone: an answer that is
    asked for twice is sent twice, and may cost something.
    """

    step: Callable[[Any, Any, float], tuple[Any, Any]]
    story: Callable[[Callable[..., Any]], object]
    tick: Any = None
    foreign: tuple[Any, ...] = ()
    kept: Callable[[Any], Iterable[BaseModel]] = lambda state: ()
    core: Callable[[Any], Any] = lambda state: state


@cache
def moments(name: str) -> tuple[Moment, ...]:
    """The steps of a machine's story."""
    seen: list[Moment] = []

    def step(state: Any, event: Any, now: float) -> Any:
        after = MACHINES[name].step(state, event, now)
        seen.append(Moment(state, event, now))
        return after

    MACHINES[name].story(step)
    return tuple(seen)


def tell(step: Callable[..., Any], state: Any, *events: Any, every_s: float = 1.0) -> Any:
    """Tell a machine one event after the other."""
    for number, event in enumerate(events):
        state, _ = step(state, event, 1000.0 + number * every_s)
    return state


def driven(place: str, story: Callable[[], object]) -> Callable[[Callable[..., Any]], None]:
    """A story whose driver in tests calls the step that `place` names."""

    def drive(step: Callable[..., Any]) -> None:
        with mock.patch(place, step):
            story()

    return drive


# --- devices ---
def _session(step: Callable[..., Any]) -> None:
    state = tell(
        step,
        session.Session(sessions.FEDERATION, sessions.DEVICE),
        Connected(),
        sessions.announcement(1),
        Received(sessions.task()),
        *sessions.chunks(sessions.STATE_DATA),
        BlobChecked(sessions.STATE.digest, False),
        *sessions.chunks(sessions.STATE_DATA),
        ChunkLost(sessions.STATE.digest, 1),
        Tick(),
        *sessions.chunks(sessions.STATE_DATA),
        BlobChecked(sessions.STATE.digest, True),
        EpochReached(sessions.task(), 1),
        Disconnected(),
        Connected(),
        WorkDone(sessions.update()),
        Tick(),
        sessions.ack(),
        Received(sessions.task(2, state=sessions.NEXT)),
        GivenBack("too hot"),
        Received(sessions.task(3, state=sessions.NEXT)),
        *sessions.chunks(sessions.NEXT_DATA),
        BlobChecked(sessions.NEXT.digest, True),
        BlobsDiscarded(frozenset({sessions.NEXT.digest})),
    )
    fresh = session.Session(sessions.FEDERATION, sessions.DEVICE, held=state.held)
    tell(
        step,
        fresh,
        SessionRestored(state.snapshot),
        Connected(),
        WorkDone(sessions.update(3)),
        sessions.end(),
    )


def _model() -> None:
    device = models.Device()
    device.switch()
    while device.stage is Stage.SWITCHED:
        device.look()
    device.do(Withdrawn(models.WITHDRAWAL))
    device.do(RolledBack())
    refused = models.Device()
    refused.fetch()
    refused.do(Worked(models.COMPARE, models.WORSE))


def _release() -> None:
    device = releases.Device()
    device.switch()
    device.restart(runs_it=True)
    device.do(Disconnected())
    device.do(Connected())
    device.wait(61.0)
    device.do(Withdrawn(releases.WITHDRAWAL))
    device.do(RolledBack(restarts=True))
    device.restart(runs_it=False)


def _diagnostics(step: Callable[..., Any]) -> None:
    first, second = diagnostics.request(), diagnostics.request(2)
    asked = [remote.Requested(request) for request in (first, second)]
    tell(
        step,
        diagnostics.IDLE,
        *asked,
        remote.Collected(first.request, "x" * 100_000),
        asked[0],
        asked[1],
        remote.Collected(second.request, failure="no log"),
        remote.Tick(),
    )
    slow = tell(step, diagnostics.IDLE, asked[0])
    step(slow, remote.Tick(), 1000.0 + remote.LONGEST_COLLECTION_S)


def _eligibility(step: Callable[..., Any]) -> None:
    seen = (boards.COOL, boards.HOT, boards.HOT, boards.HOT, boards.HOT_ON_BATTERY, boards.COOL)
    tell(step, eligibility.EligibilityState(), *seen, every_s=40.0)


def _eligibility_step(state: Any, event: Any, now: float) -> Any:
    return eligibility.step(state, boards.RULES, event, now, at_work=True)


def _blob_step(state: Any, event: Any, now: float) -> Any:
    if isinstance(event, Chunk):
        return chunk_transfer.accept(state, event, now)
    return event(state, now)


def _blob(step: Callable[..., Any]) -> None:
    arriving = [arrived.chunk for arrived in sessions.chunks(sessions.STATE_DATA)]
    begun, _ = chunk_transfer.start_transfer(sessions.STATE, 1000.0)
    tell(step, begun, arriving[1], chunk_transfer.tick, chunk_transfer.resume, arriving[0], arriving[2])


# --- the server ---
def _rounds() -> None:
    run = runs.training("a", "b", rounds=2)
    run.hear(runs.reply("a"))
    run.upload("a")
    run.upload("b")
    run.tell(round_events.RoundClosed(1))
    run.plan("a", "b")
    run.upload("a")
    run.wait(101.0)
    run.tell(round_events.RoundClosed(2))
    run.plan("a", deliver=True)
    run.hear(runs.delivery("a", 2, run.federation.attempt))
    run.tell(round_events.StopRequested())


def _gateway() -> None:
    site = sites.Driven(sites.A, sites.B)
    site.give(sites.A, sites.B)
    site.tell(sites.wanted(sites.A))
    site.fetch()
    updates = [site.upload(device) for device in (sites.A, sites.B)]
    request = sites.sum_request(*updates)
    site.tell(gateway_events.MessageForSite(request))
    site.tell(gateway_events.SumMade(request, runs.STATE))
    site.tell(gateway_events.CutAbove())
    site.tell(gateway_events.LinkedAbove(2))
    site.wait(30.0)


def _lease() -> None:
    broker = leases.Broker()
    leases.synced(broker)
    broker.kill("a")
    broker.run(10.0)
    broker.cut("b", will=True)
    broker.run(0.5)
    broker.connect("b")
    broker.add("c")
    broker.run(3.0)
    broker.cut("b", will=True)
    broker.add("d")
    broker.run(10.0)
    broker.connect("b")
    broker.run(1.0)
    mute = leases.Broker(delay=1e9)
    mute.add("a")
    mute.run(12.0)


def _lease_core(state: lease_state.LeaseState) -> Any:
    """What is heard again as retained answers a question; a renewal that ended a claim is a sign of life."""
    phase = replace(state.phase, lives=True) if isinstance(state.phase, Looking) else state.phase
    return replace(state, log=replace(state.log, live=False), reading=None, phase=phase)


def _following() -> None:
    standbys.Edge(1, 0.3).run()


def _rollout() -> None:
    world = rollouts.World().begin("a", "b", "c", "d")
    for stage in (Stage.OFFERED, Stage.FETCHED, Stage.COMPARED, Stage.SWITCHED, Stage.KEPT):
        world.say("a", stage)
    world.wait(1.0)
    world.lost("b")
    world.wait(30.0)
    world.do(rollout_state.Withdrawn("by hand"))
    world.wait(100.0)


def _queue() -> None:
    driver = jobs.Driver.of(jobs.job("a"), jobs.job("b"), jobs.job("c"), at_once=2)
    for run in driver.queue.on():
        driver.apply(queue_events.RunEnded(run.name, run.attempt, -9, over=False))
    driver.tick(10.0)
    driver.want("a", jobs.Wanted.PAUSED)
    driver.tick(1.0)
    driver.want("b", jobs.Wanted.STOPPED)
    driver.tick(600.0)
    driver.apply(queue_events.Closing())


def _alerts_step(state: Any, event: Any, now: float) -> Any:
    plan = fleet.make_plan(fleet.make_rule("temperature-above", 80, for_s=60.0), gather_s=10.0)
    after = alerts.step(state, event(plan, now), plan, now)
    return after.alerts, after.notifications


def _boards(*devices: Any) -> Callable[[Any, float], Evaluation]:
    return lambda plan, now: fleet.evaluate(tuple(plan.rules.values()), fleet.gather(devices, ()), now)


def _alerts(step: Callable[..., Any]) -> None:
    hot, cold = (_boards(fleet.board("a", board=state)) for state in (HOT, COLD))
    tell(step, {}, cold, hot, hot, hot, cold, cold, cold, every_s=40.0)


def _inquiry() -> None:
    state = inquiries.asked()
    for number, event in enumerate(
        [
            inquiries.receipt(),
            inquiries.part("{", 0, 2),
            inquiry.Connected(),
            inquiry.Tick(),
            inquiries.part("}", 1, 2, digest=NOBODY),
        ]
    ):
        state, _ = inquiries.step(state, event, 5.0 * number)
    inquiries.step(inquiries.asked(), inquiries.refusal(DiagnosticObstacle.BUSY, 5.0), 1.0)
    inquiries.step(inquiries.asked(), inquiry.Gone("pi-3"), 1.0)


def _of_other(entry: StandbyEntry) -> StandbyEntry:
    return entry.model_copy(update={"standby": "other"})


MODEL, RELEASE = (case.OFFER.model_copy(update={"rollout": "r-9"}) for case in (models, releases))
CHUNKS = (ChunkArrived(STRAY), BlobChecked(NOBODY, False), ChunkLost(NOBODY, 0))

MACHINES = {
    "session": Machine(
        session.step,
        _session,
        Tick(),
        foreign=(
            *CHUNKS,
            sessions.ack(run="run-9"),
            sessions.refusal(attempt=9, digest=NOBODY),
            sessions.end("run-9"),
            WorkFailed(sessions.task(run="run-9"), Reason.TASK_FAILED, "out of memory"),
            EpochReached(sessions.task(run="run-9"), 1),
        ),
        kept=lambda state: [state.snapshot],
    ),
    "trial of a model": Machine(
        offers.step,
        driven(f"{trials.__name__}.step", _model),
        Tick(),
        foreign=(
            *CHUNKS,
            BlobChecked(NOBODY, True),
            Worked(Work(MODEL, Stage.COMPARED), models.WORSE),
            Withdrawn(models.WITHDRAWAL.model_copy(update={"rollout": "r-9"})),
        ),
        kept=lambda state: [state.trial] if state.trial else [],
    ),
    "trial of a release": Machine(
        offers.step,
        driven(f"{trials.__name__}.step", _release),
        Tick(),
        foreign=(
            *CHUNKS,
            BlobChecked(NOBODY, True),
            Worked(Work(RELEASE, "installed")),
            Withdrawn(releases.WITHDRAWAL.model_copy(update={"rollout": "r-9"})),
        ),
        kept=lambda state: [state.trial] if state.trial else [],
    ),
    "diagnostics of a device": Machine(
        remote.step,
        _diagnostics,
        remote.Tick(),
        foreign=(remote.Collected(f"{9:016x}", "{}"),),
        core=lambda state: replace(state, limits=remote.Limits()),
    ),
    "eligibility": Machine(_eligibility_step, _eligibility, core=lambda state: state.verdict),
    "blob": Machine(_blob_step, _blob, chunk_transfer.tick, foreign=(STRAY,)),
    "rounds": Machine(
        rounds.step,
        driven("edge_server.rounds.machine.step", _rounds),
        round_events.Tick(),
        foreign=(
            round_events.ChunkReceived("nobody", STRAY),
            round_events.UpdateChecked("nobody", NOBODY, None),
            round_events.UpdateStored("nobody"),
            round_events.RoundPlanned(99, {}, None),
            round_events.RoundClosed(99),
            round_events.MessageReceived(runs.reply("a", run="run-9")),
        ),
    ),
    "gateway": Machine(
        gateway.step,
        driven("edge_server.rounds.gateway.machine.step", _gateway),
        round_events.Tick(),
        foreign=(
            gateway_events.ChunkFromAbove(STRAY),
            round_events.ChunkReceived(sites.A, STRAY),
            round_events.SiteChunkReceived("b.n", STRAY),
            gateway_events.BlobVerified(NOBODY, True),
            gateway_events.BlobVerified(NOBODY, False),
            round_events.SumChecked("b.n", NOBODY),
            gateway_events.UpdateExamined(runs.update("nobody")),
            gateway_events.SumMade(sites.sum_request(runs.update("nobody"))),
        ),
        kept=lambda state: [*state.tasks.values(), *state.updates.values()],
    ),
    "lease": Machine(
        lease.step,
        driven("edge_server.transport.lease.machine.step", _lease),
        lease_state.Tick(),
        core=_lease_core,
    ),
    "standby": Machine(
        following.step,
        driven("edge_server.coordinator.standby.following.step", _following),
        following.Tick(),
        foreign=(
            following.Announced(_of_other(standbys.announcement(1).message)),
            following.ChunkArrived(STRAY),
            following.Checked(standbys.ref_of(b"stray"), True),
            following.Checked(standbys.ref_of(b"stray"), False),
            following.Opened(99, standbys.CONTENTS[0]),
            following.Applied(99),
        ),
    ),
    "rollout": Machine(
        machine.step,
        driven(f"{rollouts.__name__}.step", _rollout),
        rollout_state.Tick(),
        foreign=(
            rollout_state.MessageReceived(
                BlobRequest(federation="home", device="nobody", digest=NOBODY, first=0, count=1)
            ),
        ),
        kept=lambda state: [
            state.rules,
            *(target.report for target in state.targets.values() if target.report is not None),
        ],
    ),
    "queue": Machine(
        queue.step,
        driven(f"{jobs.__name__}.step", _queue),
        queue_events.Tick(),
        foreign=(queue_events.RunEnded("nobody", 1, 0),),
        kept=lambda state: [*state.jobs.values(), *state.runs.values(), *state.progress.values()],
    ),
    "alerts": Machine(_alerts_step, _alerts, kept=lambda state: state.values()),
    "inquiry": Machine(
        inquiry.step,
        driven(f"{inquiries.__name__}.step", _inquiry),
        inquiry.Tick(),
        foreign=(
            inquiry.Gone("nobody"),
            inquiries.receipt(request=f"{9:016x}"),
            inquiries.receipt(device="nobody"),
        ),
    ),
}
