"""An update of the client as a pure state machine.

    offered -> fetched -> installed -> checked -> switched -> (a new process, watched) -> kept
        |         |           |           |           |
        +---------+-----------+-----------+--> refused +------> rolled back

No socket, clock, file or thread: `step(state, event, now)` returns the next state and the commands to
execute. The state is saved before a command is executed, and executing a command twice does no harm: after a
power cut at any moment the next process, of whichever version, resumes. A process that cannot do that is
given up by the launcher.
"""

from collections.abc import Sequence
from dataclasses import replace

from edge_client.agent.client_update.events import (
    Check,
    Checked,
    Command,
    DiscardFiles,
    EndTrial,
    Event,
    Failed,
    Install,
    Installed,
    Objection,
    Offered,
    Restart,
    RollBack,
    RolledBack,
    Switch,
    Switched,
    UpdateRestored,
    Withdrawn,
)
from edge_client.agent.client_update.state import Update, UpdateState, report
from edge_client.agent.offers import download
from edge_client.agent.offers.download import FileEvent
from edge_client.agent.session.events import (
    BlobChecked,
    ChunkArrived,
    ChunkLost,
    Connected,
    Disconnected,
    Tick,
)
from schemas.messages.client_update import UpdateCause, UpdateStage

Step = tuple[UpdateState, Sequence[Command]]
MAX_RESTARTS = 3
"""An installation is given up after more restarts than this."""
UNDECIDED = frozenset({UpdateStage.CHECKED, UpdateStage.SWITCHED})
"""Stages in which the release may be in use, and is not kept."""


def step(state: UpdateState, event: Event, now: float) -> Step:
    """Apply one event; raises `PeerError` for a chunk that does not fit (the state is unchanged)."""
    match event:
        case Connected():
            there = state if state.connected else replace(state, connected=True, since=now)
            return download.resume(there, now)
        case Disconnected():
            return _cut_off(state, now), []
        case Offered():
            return _offered(state, event, now)
        case UpdateRestored():
            return _restored(state, event, now)
        case Withdrawn(message):
            return _withdrawn(state, message.rollout, message.detail)
        case Tick():
            return _tick(state, now)
        case ChunkArrived() | ChunkLost() | BlobChecked():
            return _file_changed(state, event, now)
        case _:
            return (state, []) if state.update is None else _ended(state, state.update, event)


def is_undecided(update: Update | None) -> bool:
    """Whether a switch is under way, so that another offer is not answered."""
    return update is not None and (update.going_back or update.stage in UNDECIDED)


def _cut_off(state: UpdateState, now: float) -> UpdateState:
    if not state.connected:
        return state
    return replace(state, connected=False, watched_s=state.watched_s + now - state.since, since=now)


# --- the offer ---
def _offered(state: UpdateState, event: Offered, now: float) -> Step:
    """Begin an update; answer a repeated offer with its stage."""
    offer, known = event.offer, state.update
    if known is not None and known.offer.rollout == offer.rollout:
        return state, [report(state)]
    if is_undecided(known):
        return state, []
    update = Update(offer=offer)
    fresh = replace(state, update=update, receiving=None, runs_it=False)
    if event.objection is not None:
        return _refuse(fresh, update, event.objection)
    if event.running == offer.blob.digest:
        return _over(fresh.with_update(update.at(UpdateStage.KEPT, had_it=True, detail="it runs already")))
    begun, commands = download.start(fresh, offer.blob, event.present, now)
    return begun, [report(begun), *commands]


def _restored(state: UpdateState, event: UpdateRestored, now: float) -> Step:
    """Resume the update of an earlier process, which may have been of the other version."""
    update = event.update
    known = state.with_update(update, runs_it=event.runs_it, watched_s=0.0, since=now)
    if update.final:
        return known, [EndTrial()]
    if update.stage in UNDECIDED or update.going_back:
        return _resumed_switch(known, update, event)
    if update.stage is UpdateStage.OFFERED:
        return download.start(known, update.offer.blob, event.present, now)
    again = update.restarted()
    known = known.with_update(again)
    if again.restarts > MAX_RESTARTS:
        why = f"the device has restarted {again.restarts} times while it was installed"
        return _refuse(known, again, (UpdateCause.CRASHES, why))
    return known, [Install(again.offer) if again.stage is UpdateStage.FETCHED else Check(again.offer)]


def _resumed_switch(state: UpdateState, update: Update, event: UpdateRestored) -> Step:
    if event.runs_it:
        if update.going_back:
            return state, [RollBack(update)]
        # A process that ended before saving it may have switched; switching again notes what it left out.
        return state, [Switch(update.offer)]
    if update.going_back:
        return _over(state.with_update(update.at(UpdateStage.ROLLED_BACK, going_back=False)), EndTrial())
    if event.back is not None:
        cause, detail = event.back
        gone = update.at(UpdateStage.ROLLED_BACK, cause=cause, detail=detail)
        return _over(state.with_update(gone), EndTrial())
    if update.stage is UpdateStage.CHECKED:
        return state, [Switch(update.offer)]
    why = "another environment was put in its place"
    gone = update.at(UpdateStage.ROLLED_BACK, cause=UpdateCause.SUPERSEDED, detail=why)
    return _over(state.with_update(gone), EndTrial())


def _withdrawn(state: UpdateState, rollout: str, detail: str) -> Step:
    update = state.update
    if update is None or update.offer.rollout != rollout:
        return state, []
    if update.going_back or (update.final and (update.stage is not UpdateStage.KEPT or update.had_it)):
        return state, [report(state)]
    return _object(state, update, (UpdateCause.WITHDRAWN, detail))


# --- the archive ---
def _file_changed(state: UpdateState, event: FileEvent, now: float) -> Step:
    if not download.is_complete(state, event):
        return download.advance(state, event, now)
    assert state.update is not None
    fetched = state.with_update(state.update.at(UpdateStage.FETCHED), receiving=None)
    return fetched, [report(fetched), Install(state.update.offer)]


# --- the watch ---
def _tick(state: UpdateState, now: float) -> Step:
    update = state.update
    if state.receiving is not None:
        return download.tick(state, now)
    if update is None or not state.watching:
        return state, []
    terms, passed = update.offer.terms, now - state.since
    if not state.connected and passed >= terms.connect_s:
        return _object(state, update, (UpdateCause.NO_CONNECTION, f"no connection for {passed:.0f} s"))
    if state.connected and state.watched_s + passed >= terms.watch_s:
        return _over(state.with_update(update.at(UpdateStage.KEPT)), EndTrial())
    return state, []


# --- the end of what commands began ---
def _ended(state: UpdateState, update: Update, event: Event) -> Step:
    if isinstance(event, Installed | Checked | Failed) and event.rollout != update.offer.rollout:
        return state, []
    match event:
        case Installed() if update.stage is UpdateStage.FETCHED:
            installed = state.with_update(update.at(UpdateStage.INSTALLED))
            return installed, [report(installed), Check(update.offer)]
        case Checked() if update.stage is UpdateStage.INSTALLED:
            checked = state.with_update(update.at(UpdateStage.CHECKED))
            return checked, [report(checked), Switch(update.offer)]
        case Failed(_, objection) if update.stage is not UpdateStage.SWITCHED and not update.final:
            return _refuse(state, update, objection)
        case Switched(slot, former) if update.stage in UNDECIDED and not update.going_back:
            places = {"slot": update.slot or slot, "former": update.former or former}
            switched = state.with_update(update.at(UpdateStage.SWITCHED, **places))
            return switched, [report(switched), *([] if state.runs_it else [Restart()])]
        case RolledBack(detail, restarts) if update.going_back:
            details = "; ".join(text for text in (update.detail, detail) if text)
            if restarts:
                return state, [Restart()]
            gone = update.at(UpdateStage.ROLLED_BACK, going_back=False, detail=details)
            return _over(state.with_update(gone), EndTrial())
        case _:
            return state, []


# --- the end ---
def _object(state: UpdateState, update: Update, objection: Objection) -> Step:
    """Refuse the release, or go back if it may be in use."""
    if update.stage not in UNDECIDED and update.stage is not UpdateStage.KEPT:
        return _refuse(state, update, objection)
    gone = update.returning(*objection)
    return state.with_update(gone), [RollBack(gone)]


def _refuse(state: UpdateState, update: Update, objection: Objection) -> Step:
    refused = update.at(UpdateStage.REFUSED, cause=objection[0], detail=objection[1])
    return _over(state.with_update(refused, receiving=None))


def _over(state: UpdateState, *first: Command) -> Step:
    return state, [*first, report(state), DiscardFiles()]
