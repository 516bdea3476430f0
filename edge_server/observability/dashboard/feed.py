"""What there is to show, kept up to date for every page at once; who runs the federation never waits for it.

The server's thread only leaves its newest snapshot here. Everything is looked up and compared by the
dashboard's own threads, once for all pages, and only while somebody looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from edge_server.observability.dashboard.event_view import NewestEvent, fingerprint
from edge_server.observability.dashboard.events import PageState, next_page_state
from edge_server.observability.dashboard.fleet_view import fleet_rows
from edge_server.observability.dashboard.journal_file import opened_journal
from edge_server.observability.dashboard.run_reader import FolderFacts, is_at_work, read_facts
from edge_server.observability.dashboard.run_view import Json, history_of, round_values, run_value
from edge_server.observability.snapshot import Snapshot
from edge_server.releases.registry.register import default_registry
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.run_folder import RunFolder
from schemas.errors import EdgeError

log = logging.getLogger(__name__)

T = TypeVar("T")
LOOK_S = 0.25
"""So often at most there is something new to show."""
LOOK_SHARE, SLOWEST_S = 20, 2.0
"""A look at a large fleet may take a twentieth of the time: the server wants the processor, too. But so often
there is one."""
FACTS_S = 2.0
"""So often at most a folder is read anew while its run goes on in this process."""
LOOKED_AT = ("history.jsonl", "summary.json", "journal.sqlite", "journal.sqlite-wal")


class Feed:
    """Of one run in `path`; `live` says that this very process runs it, and shows snapshots of it.

    The `registry` is that of its models; beside the run unless it is named.
    """

    def __init__(
        self,
        path: Path,
        *,
        live: bool,
        registry: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path, self.live = path, live
        self.registry = registry or default_registry(path)
        self._clock = clock
        self._snapshot: Snapshot | None = None
        self._facts: FolderFacts | None = None
        self._newest_event, self._events = NewestEvent(RunFolder(path).events), 0
        self._facts_at, self._facts_of = 0.0, object()
        self._seen: tuple[object, ...] | None = None
        self._shown: PageState | None = None
        self._next_look = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._news, self._closed = asyncio.Event(), asyncio.Event()
        self.closing = False

    # --- the server's thread ---
    def show(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot."""
        self._snapshot = snapshot
        self._wake()

    def close(self) -> None:
        """Let every stream say what is still to be said, and end."""
        self.closing = True
        self._wake()

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(self._tell)

    # --- the dashboard's loop ---
    def begin(self) -> None:
        """From now on streams are woken: called in the loop that they live in."""
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """The loop is about to end."""
        self._loop = None

    def _tell(self) -> None:
        if self.closing:
            self._closed.set()
        self._news.set()
        self._news = asyncio.Event()

    async def changed(self, seen: PageState, timeout_s: float) -> bool:
        """Wait until there is more than `seen`, or the feed is closing; False when the time was up before."""
        ends = time.monotonic() + timeout_s
        while not self.closing:
            news = self._news
            shown = await self.shown()
            if shown.version != seen.version or self.closing:
                return True
            left = ends - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                # A folder that another process writes to tells nobody: it is looked at now and then.
                await asyncio.wait_for(news.wait(), left if self.live else min(left, 1.0))
            await self._pause()
        return True

    async def _pause(self) -> None:
        """Wait until it is time for another look, or the feed is closing."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), max(0.0, self._next_look - time.monotonic()))

    async def shown(self) -> PageState:
        """What there is to show, as of just now."""
        async with self._lock:
            now = time.monotonic()
            if self._shown is None or now >= self._next_look or self._is_last():
                shown, spent = await asyncio.to_thread(self._timed_look, now)
                self._next_look = time.monotonic() + min(max(LOOK_S, LOOK_SHARE * spent), SLOWEST_S)
                self._shown = shown
                return shown
            return self._shown

    async def facts(self) -> tuple[FolderFacts, Snapshot | None]:
        """What the run's folder says, and the newest snapshot."""
        await self.shown()
        assert self._facts is not None
        return self._facts, self._snapshot

    async def journal(self, read: Callable[[JournalReader], T]) -> T | None:
        """Ask the journal something; None where there is none yet."""
        return await asyncio.to_thread(self._asked, read)

    # --- its worker threads, one at a time ---
    def _is_last(self) -> bool:
        """Whether there is an end to tell of: that does not wait for its time."""
        over = self._snapshot is not None and self._snapshot.summary is not None
        return (self.closing or over) and self._shown is not None and self._shown.outcome is None

    def _timed_look(self, monotonic: float) -> tuple[PageState, float]:
        """What there is to show, and the processor's time that it took."""
        began = time.thread_time()
        return self._look(monotonic), time.thread_time() - began

    def _look(self, monotonic: float) -> PageState:
        snapshot, now = self._snapshot, self._clock()
        facts = self._current_facts(snapshot, monotonic)
        events = self._newest_event.number()
        seen = (facts, snapshot) if self.live else (facts,)
        same = self._seen is not None and all(map(_is, seen, self._seen)) and events == self._events
        if self._shown is not None and same:
            return self._shown
        self._seen, self._events = seen, events
        run = run_value(facts, snapshot, now=now, live=self.live or facts.at_work, events=events)
        rounds = self._rounds(facts, snapshot)
        return next_page_state(self._shown, run, fleet_rows(facts, snapshot), rounds, now=now)

    def _rounds(self, facts: FolderFacts, snapshot: Snapshot | None) -> list[Json]:
        """Lines that were told stay as they were; only new ones are made."""
        history = history_of(facts, snapshot)
        known = list(self._shown.rounds) if self._shown else []
        stays = len(known) <= len(history) and all(line["cost_relative"] is not None for line in known)
        known = known if stays else []
        return known + round_values(facts, history[len(known) :])

    def _current_facts(self, snapshot: Snapshot | None, monotonic: float) -> FolderFacts:
        """The folder's facts, read anew when something in it may have changed."""
        if self.live:
            of: object = (snapshot.round, snapshot.phase, len(snapshot.history)) if snapshot else None
            # What a round has cost is told once: before that the folder must have told of the network.
            complete = self._facts is not None and self._facts.parameters is not None
            over = snapshot is not None and snapshot.summary is not None
            late = monotonic >= self._facts_at + FACTS_S or over or not complete
            due = of != self._facts_of and late
        else:
            of = tuple(map(fingerprint, (self.path / name for name in LOOKED_AT)))
            due = of != self._facts_of
        if self._facts is None or due:
            self._facts = self._read()
            self._facts_at, self._facts_of = monotonic, of
        return self._facts

    def _read(self) -> FolderFacts:
        """What the folder says; what it said before, where just now it cannot be read."""
        try:
            return read_facts(self.path, live=self.live)
        except (EdgeError, OSError, sqlite3.Error) as error:
            log.debug("%s cannot be read just now: %s", self.path, error)
            return self._facts or FolderFacts(self.path)

    def _asked(self, read: Callable[[JournalReader], T]) -> T | None:
        path = RunFolder(self.path).journal
        if not path.exists():
            return None
        with opened_journal(path, live=self.live or is_at_work(self.path)) as reader:
            return read(reader)


def _is(one: object, other: object) -> bool:
    return one is other
