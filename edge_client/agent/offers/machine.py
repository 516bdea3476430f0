"""The trial of an offer as a pure state machine, for models and for releases of the client.

No socket, clock, file or thread: `step(state, event, now)` returns the next state and the commands to
execute. The state is saved before a command is executed, and executing a command twice does no harm: after a
power cut at any moment the next process resumes, with one of the two versions in use. A release of the client
that cannot do that is given up by the launcher.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from edge_client.agent.offers import trial as offers
from edge_client.agent.session import events
from edge_client.transport import chunk_transfer
from schemas.tensors.chunks import NO_CHUNKS, BlobRef, ChunkSet

State = TypeVar("State", bound=offers.TrialState)
Step = tuple[State, Sequence[offers.Command]]
MAX_RESTARTS = 3  # A trial is given up after more restarts than this


def step(state: State, event: offers.Event, now: float) -> Step[State]:
    """Apply one event; raises `PeerError` for a chunk that does not fit (the state is unchanged)."""
    match event:
        case events.Connected():
            return request_missing(state.with_link(now, connected=True), now)
        case events.Disconnected():
            return state.with_link(now, connected=False), []
        case offers.Offered():
            return _on_offer(state, event, now)
        case offers.Restored():
            return _on_restored(state, event, now)
        case offers.Withdrawn(message):
            return _on_withdrawal(state, message)
        case events.Tick():
            return _on_tick(state, now)
        case events.ChunkArrived() | events.ChunkLost() | events.BlobChecked():
            return _on_file_event(state, event, now)
        case _:
            return (state, []) if state.trial is None else _on_command_ended(state, state.trial, event, now)


# --- the offer ---
def _on_offer(state: State, event: offers.Offered, now: float) -> Step[State]:
    """Begin a trial; answer a repeated offer with its stage."""
    offer, previous = event.offer, state.trial
    if previous is not None and previous.offer.rollout == offer.rollout:
        return state, [_report(state)]
    if state.is_undecided:
        return state, []
    trial = state.make_trial(offer)
    begun = state.with_trial(trial, receiving=None, busy=False, runs_it=False)
    if event.objection is not None:
        return _refuse(begun, trial, event.objection)
    if event.in_use == offer.blob.digest:
        return finish(begun.with_trial(trial.at(offers.KEPT, had_it=True, detail="it is in use already")))
    begun, commands = start_download(begun, offer.blob, event.present, now)
    return begun, [_report(begun), *commands]


def _on_restored(state: State, event: offers.Restored, now: float) -> Step[State]:
    """Resume the trial of an earlier process by repeating its last step."""
    restored = state.with_restored(event, now)
    trial = restored.trial
    assert trial is not None
    if event.trial.is_final:
        return restored, [offers.CleanUp()]
    if trial.is_final:
        return finish(restored)
    if trial.going_back:
        return restored, [offers.RollBack(trial)]
    if trial.restarts > MAX_RESTARTS:
        crashes = trial.causes("crashes"), f"{trial.restarts} restarts while it was on trial"
        return object_to(restored, trial, crashes)
    if trial.stage == offers.OFFERED:
        return start_download(restored, trial.offer.blob, event.present, now)
    return restored.resume_watch(now) if trial.stage == offers.SWITCHED else _go_on(restored, trial)


def _on_withdrawal(state: State, message: offers.Withdrawal) -> Step[State]:
    trial = state.trial
    if trial is None or trial.offer.rollout != message.rollout:
        return state, []
    if trial.going_back or (trial.is_final and (trial.stage != offers.KEPT or trial.had_it)):
        return state, [_report(state)]
    return object_to(state, trial, (trial.causes("withdrawn"), message.detail))


# --- the way to the switch ---
def _on_file_event(state: State, event: offers.FileEvent, now: float) -> Step[State]:
    if not is_complete(state, event):
        return advance_download(state, event, now)
    assert state.trial is not None
    return _reach(replace(state, receiving=None), state.trial, offers.FETCHED)


def _reach(state: State, trial: offers.Trial, stage: str) -> Step[State]:
    """Report a stage before the switch, and begin what follows it."""
    reached, commands = _go_on(state, trial.at(stage))
    return reached, [_report(reached), *commands]


def _go_on(state: State, trial: offers.Trial) -> Step[State]:
    goal = trial.steps.get(trial.stage)
    if goal is None:
        return state.with_trial(trial), [offers.Switch(trial)]
    return state.with_trial(trial, busy=True), [offers.Work(trial.offer, goal)]


# --- the watch ---
def _on_tick(state: State, now: float) -> Step[State]:
    trial = state.trial
    if state.receiving is not None:
        return repeat_requests(state, now)
    if trial is None or trial.stage != offers.SWITCHED or trial.going_back or state.busy:
        return state, []
    return state.look(now)


# --- the end of what commands began ---
def _on_command_ended(state: State, trial: offers.Trial, event: offers.Event, now: float) -> Step[State]:
    match event:
        case offers.Worked(work) if work.offer.rollout == trial.offer.rollout:
            return _on_worked(state, trial, event, now)
        case offers.Switched(notes) if (
            trial.is_ready or trial.stage == offers.SWITCHED
        ) and not trial.going_back:
            noted = {name: value for name, value in notes.items() if value}
            watched, commands = state.with_trial(trial.at(offers.SWITCHED, **noted)).watch(now)
            return watched, [_report(watched), *commands]
        case offers.SwitchFailed(objection) if trial.is_ready:
            return _refuse(state, trial, objection)
        case offers.RolledBack(restarts=True) if trial.going_back:
            return state, [offers.Restart()]
        case offers.RolledBack(detail) if trial.going_back:
            details = "; ".join(text for text in (trial.detail, detail) if text)
            return finish(state.with_trial(trial.at(offers.ROLLED_BACK, going_back=False, detail=details)))
        case _:
            return state, []


def _on_worked(state: State, trial: offers.Trial, event: offers.Worked, now: float) -> Step[State]:
    """Take the result of the work that is under way; that of earlier work is late, or repeated."""
    goal, idle = event.work.goal, replace(state, busy=False)
    if goal == offers.KEPT and trial.stage == offers.SWITCHED and not trial.going_back:
        return idle.on_look(event, now)
    if trial.steps.get(trial.stage) != goal:
        return state, []
    judged, objection = idle.judge(event)
    return _reach(idle, judged, goal) if objection is None else _refuse(idle, judged, objection)


# --- the end ---
def object_to(state: State, trial: offers.Trial, objection: offers.Objection) -> Step[State]:
    """Refuse the version, or roll it back if it may be in use."""
    if trial.stage == offers.OFFERED or trial.stage in trial.steps:
        return _refuse(state, trial, objection)
    returning = trial.with_end(trial.stage, objection, going_back=True)
    return state.with_trial(returning, busy=False), [offers.RollBack(returning)]


def finish(state: State) -> Step[State]:
    """Report the end of the trial."""
    return state, [_report(state), offers.CleanUp()]


def _refuse(state: State, trial: offers.Trial, objection: offers.Objection) -> Step[State]:
    return finish(state.with_trial(trial.with_end(offers.REFUSED, objection), receiving=None, busy=False))


def _report(state: offers.TrialState) -> events.SendMessage:
    return events.SendMessage(state.report())


# --- the download of the offered file ---


def start_download(state: State, ref: BlobRef, present: ChunkSet, now: float) -> Step[State]:
    """Request the chunks that are not `present`."""
    return _with_download(state, *chunk_transfer.start_transfer(ref, now, present, pushed=False))


def is_complete(state: offers.TrialState, event: offers.FileEvent) -> bool:
    """Whether the event says that the whole file is stored."""
    receiving = state.receiving
    return receiving is not None and event == events.BlobChecked(receiving.ref.digest, sound=True)


def advance_download(state: State, event: offers.FileEvent, now: float) -> Step[State]:
    """Apply an event of the download; raises `PeerError` for a chunk that does not fit."""
    receiving = state.receiving
    if receiving is None:
        return state, []
    match event:
        case events.ChunkArrived(chunk) if state.expects(chunk):
            return _with_download(state, *chunk_transfer.accept(receiving, chunk, now))
        case events.ChunkLost(digest, index) if digest == receiving.ref.digest:
            return _with_download(state, chunk_transfer.on_lost_chunk(receiving, index, now), [])
        case events.BlobChecked(digest, sound=False) if digest == receiving.ref.digest:
            return start_download(state, receiving.ref, NO_CHUNKS, now)
        case _:
            return state, []


def repeat_requests(state: State, now: float) -> Step[State]:
    """Repeat requests that were not answered in time."""
    return _ask(state, chunk_transfer.tick, now)


def request_missing(state: State, now: float) -> Step[State]:
    """Request everything that is missing, after a reconnect."""
    return _ask(state, chunk_transfer.resume, now)


def _ask(
    state: State, ask: Callable[[chunk_transfer.Receiving, float], chunk_transfer.Step], now: float
) -> Step[State]:
    if state.receiving is None or not state.connected:
        return state, []
    return _with_download(state, *ask(state.receiving, now))


def _with_download(
    state: State, receiving: chunk_transfer.Receiving, commands: list[chunk_transfer.TransferCommand]
) -> Step[State]:
    """The state with the download, whose requests become messages."""
    sent = events.as_messages(commands, state.federation, state.device)
    return replace(state, receiving=receiving), sent
