"""The trial of an offered model as a pure state machine.

    offered -> fetched -> compared -> switched -> (watched) -> kept
                  |          |            |           |
                  +----------+--> refused +-----------+--> rolled back

No socket, clock, file or thread: `step(trials, event, now)` returns the next state and the commands to
execute. The state is saved before a command is executed, and executing a command twice does no harm: after a
power cut at any moment the next process resumes, with one of the two models in use.
"""

from collections.abc import Sequence
from dataclasses import replace

from edge_client.agent.offers import download
from edge_client.agent.offers.download import FileEvent
from edge_client.agent.rollout.acceptance import judge_comparison, judge_service
from edge_client.agent.rollout.events import (
    Command,
    Compare,
    Compared,
    Comparison,
    DiscardFiles,
    Event,
    Objection,
    Offered,
    Recheck,
    Rechecked,
    RollBack,
    RolledBack,
    Switch,
    Switched,
    SwitchFailed,
    TrialRestored,
    Withdrawn,
)
from edge_client.agent.rollout.state import Trial, TrialState, report
from edge_client.agent.session.events import (
    BlobChecked,
    ChunkArrived,
    ChunkLost,
    Connected,
    Disconnected,
    Tick,
)
from schemas.messages.rollout_terms import Cause, Stage, TrialTerms
from schemas.tensors.chunk_sets import ChunkSet

Step = tuple[TrialState, Sequence[Command]]
MAX_RESTARTS = 3
"""A trial is given up after more restarts than this."""
LOOKS = 10
SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.5, 60.0


def step(trials: TrialState, event: Event, now: float) -> Step:
    """Apply one event; raises `PeerError` for a chunk that does not fit (the state is unchanged)."""
    match event:
        case Connected():
            return download.resume(replace(trials, connected=True), now)
        case Disconnected():
            return replace(trials, connected=False), []
        case Offered():
            return _offered(trials, event, now)
        case TrialRestored(trial, present):
            return _remembered(trials, trial, present, now)
        case Withdrawn(message):
            return _withdrawn(trials, message.rollout, message.detail)
        case Tick():
            return _tick(trials, now)
        case ChunkArrived() | ChunkLost() | BlobChecked():
            return _file_changed(trials, event, now)
        case _:
            return (trials, []) if trials.trial is None else _ended(trials, trials.trial, event, now)


# --- the offer ---
def _offered(trials: TrialState, event: Offered, now: float) -> Step:
    """Begin a trial; answer a repeated offer with its stage."""
    offer = event.offer
    if trials.trial is not None and trials.trial.offer.rollout == offer.rollout:
        return trials, [report(trials)]
    trial = Trial(offer=offer)
    fresh = replace(trials, trial=trial, receiving=None, busy=False)
    if event.objection is not None:
        return _refuse(fresh, trial, event.objection)
    if event.serving == offer.blob.digest:
        return _reported(fresh.with_trial(trial.at(Stage.KEPT, had_it=True, detail="it serves it already")))
    begun, commands = download.start(fresh, offer.blob, event.present, now)
    return begun, [report(begun), *commands]


def _remembered(trials: TrialState, trial: Trial, present: ChunkSet, now: float) -> Step:
    """Resume the trial of an earlier process by repeating its last step."""
    if trial.final:
        return trials.with_trial(trial), []
    again = trial.restarted()
    known = trials.with_trial(again)
    if again.going_back:
        return known, [RollBack(trial.digest)]
    if again.restarts > MAX_RESTARTS:
        return _object(known, again, (Cause.CRASHES, f"{again.restarts} restarts while it was on trial"))
    match trial.stage:
        case Stage.OFFERED:
            return download.start(known, trial.offer.blob, present, now)
        case Stage.FETCHED:
            return replace(known, busy=True), [Compare(trial.offer)]
        case Stage.COMPARED:
            return replace(known, busy=True), [Switch(again)]
        case _:
            return _watched(known, again.offer.terms, now), []


def _withdrawn(trials: TrialState, rollout: str, detail: str) -> Step:
    trial = trials.trial
    if trial is None or trial.offer.rollout != rollout:
        return trials, []
    if trial.final and (trial.stage is not Stage.KEPT or trial.had_it):
        return trials, [report(trials)]
    return _object(trials, trial, (Cause.WITHDRAWN, detail))


# --- the file ---
def _file_changed(trials: TrialState, event: FileEvent, now: float) -> Step:
    if not download.is_complete(trials, event):
        return download.advance(trials, event, now)
    assert trials.trial is not None
    fetched = trials.with_trial(trials.trial.at(Stage.FETCHED), receiving=None, busy=True)
    return fetched, [report(fetched), Compare(trials.trial.offer)]


def _tick(trials: TrialState, now: float) -> Step:
    trial = trials.trial
    if trials.receiving is not None:
        return download.tick(trials, now)
    watched = trial is not None and trial.stage is Stage.SWITCHED and not trial.going_back
    if trial is None or not watched or trials.busy or now < trials.look_at:
        return trials, []
    return replace(trials, busy=True), [Recheck(trial.offer)]


# --- the end of what commands began ---
def _ended(trials: TrialState, trial: Trial, event: Event, now: float) -> Step:
    if isinstance(event, Compared | Rechecked) and event.rollout != trial.offer.rollout:
        return trials, []
    idle = replace(trials, busy=False)
    match event:
        case Compared(_, found) if trial.stage is Stage.FETCHED:
            measured = _measured(trial, found)
            if (objection := judge_comparison(found, trial.offer.terms)) is not None:
                return _refuse(idle, measured, objection)
            compared = idle.with_trial(measured.at(Stage.COMPARED), busy=True)
            return compared, [report(compared), Switch(measured.at(Stage.COMPARED))]
        case Switched() if trial.stage is Stage.COMPARED:
            watched = _watched(idle.with_trial(trial.at(Stage.SWITCHED)), trial.offer.terms, now)
            return watched, [report(watched)]
        case SwitchFailed(cause, detail) if trial.stage is Stage.COMPARED:
            return _refuse(idle, trial, (cause, detail))
        case Rechecked() if trial.stage is Stage.SWITCHED and not trial.going_back:
            return _looked(idle, trial, event, now)
        case RolledBack(detail) if trial.going_back:
            back = {"going_back": False, "detail": "; ".join(text for text in (trial.detail, detail) if text)}
            return _reported(idle.with_trial(trial.at(Stage.ROLLED_BACK, **back)))
        case _:
            return idle, []


def _measured(trial: Trial, found: Comparison) -> Trial:
    """The trial with the measurements, and the variant to serve."""
    seen = {"running": found.running, "candidate": found.candidate}
    made = {} if found.made is None else {"variant": found.made.variant, "made": found.made.digest}
    return trial.model_copy(update={**seen, **made})


def _watched(trials: TrialState, terms: TrialTerms, now: float) -> TrialState:
    return replace(trials, look_at=now + _interval(terms), watch_until=now + terms.watch_s)


def _interval(terms: TrialTerms) -> float:
    return min(max(terms.watch_s / LOOKS, SHORTEST_LOOK_S), LONGEST_LOOK_S)


def _looked(trials: TrialState, trial: Trial, seen: Rechecked, now: float) -> Step:
    terms = trial.offer.terms
    if seen.serving != trial.digest:
        over = (Cause.SUPERSEDED, "another model has taken its place")
        return _reported(trials.with_trial(trial.at(Stage.ROLLED_BACK, cause=over[0], detail=over[1])))
    objection = judge_service(seen.before, seen.after, terms) or judge_comparison(seen.comparison, terms)
    if objection is not None:
        return _object(trials, trial, objection)
    if now < trials.watch_until:
        return replace(trials, look_at=min(now + _interval(terms), trials.watch_until)), []
    kept = trials.with_trial(trial.at(Stage.KEPT))
    return kept, [report(kept), DiscardFiles()]


# --- the end ---
def _object(trials: TrialState, trial: Trial, objection: Objection) -> Step:
    """Refuse the model, or roll it back if it may be in use."""
    if trial.stage in (Stage.OFFERED, Stage.FETCHED):
        return _refuse(trials, trial, objection)
    # After `compared` a switch may be under way, or was made by a process that ended before saving it.
    return trials.with_trial(trial.returning(*objection), busy=False), [RollBack(trial.digest)]


def _refuse(trials: TrialState, trial: Trial, objection: Objection) -> Step:
    refused = trial.at(Stage.REFUSED, cause=objection[0], detail=objection[1])
    return _reported(trials.with_trial(refused, receiving=None, busy=False))


def _reported(trials: TrialState) -> Step:
    return trials, [report(trials), DiscardFiles()]
