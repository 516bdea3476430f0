"""The current page state, shared by all open pages; the run never waits for it.

The server's thread only stores its newest snapshot here. The dashboard's own threads read the folder and
compute the page state, once for all pages, and only while a page is open.
"""

import asyncio
import contextlib
import logging
import operator
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from edge_server.observability.dashboard import access, fleet_view, run_reader, run_view
from edge_server.observability.dashboard.events import (
    Cursor,
    Event,
    NewestEvent,
    PageState,
    events,
    fingerprint,
    next_page_state,
)
from edge_server.observability.snapshot import Snapshot
from edge_server.releases.registry.register import default_registry
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.run_folder import RunFolder
from schemas.errors import EdgeError

log = logging.getLogger(__name__)

T = TypeVar("T")
LOOK_S = 0.25  # Minimum seconds between two computations of the page state
LOOK_SHARE, SLOWEST_S = 20, 2.0
"""A computation may take at most 1/20 of the processor time, but happens at least every 2 seconds."""


class Feed:
    """The page state of the run in `path`; `live` says that this process runs it and shows its snapshots.

    `registry` holds the run's models; by default it lies next to the run folder.
    """

    def __init__(self, path: Path, *, live: bool, registry: Path | None = None) -> None:
        self.path, self.live = path, live
        self.registry = registry or default_registry(path)
        self._snapshot: Snapshot | None = None
        self._folder = FactsCache(path, live=live)
        self._newest_event = NewestEvent(RunFolder(path).events)
        self._sources: tuple[int, tuple[object, ...]] | None = None
        self._shown: PageState | None = None
        self._next_look = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._news, self._closed = asyncio.Event(), asyncio.Event()
        self.closing = False

    # --- the server's thread ---
    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._wake()

    def close(self) -> None:
        """Let every stream send its last events and end."""
        self.closing = True
        self._wake()

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(self._notify)

    # --- the dashboard's event loop ---
    def begin(self) -> None:
        """Wake streams from now on; called in their event loop."""
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        self._loop = None

    def _notify(self) -> None:
        if self.closing:
            self._closed.set()
        self._news.set()
        self._news = asyncio.Event()

    async def wait_for_change(self, seen: PageState, timeout_s: float) -> bool:
        """Wait until the state is newer than `seen` or the feed closes; False after `timeout_s` seconds."""
        ends = time.monotonic() + timeout_s
        while not self.closing:
            news = self._news
            shown = await self.read_state()
            if shown.version != seen.version or self.closing:
                return True
            left = ends - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                # Changes by another process send no notification, so its folder is polled.
                await asyncio.wait_for(news.wait(), left if self.live else min(left, 1.0))
            await self._pause()
        return True

    async def _pause(self) -> None:
        """Wait until the next computation is due or the feed closes."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), max(0.0, self._next_look - time.monotonic()))

    async def read_state(self) -> PageState:
        async with self._lock:
            now = time.monotonic()
            if self._shown is None or now >= self._next_look or self._is_last():
                shown, spent = await asyncio.to_thread(self._timed_look, now)
                self._next_look = time.monotonic() + min(max(LOOK_S, LOOK_SHARE * spent), SLOWEST_S)
                self._shown = shown
                return shown
            return self._shown

    async def facts(self) -> tuple[run_reader.FolderFacts, Snapshot | None]:
        await self.read_state()
        return self._folder.newest, self._snapshot

    async def journal(self, read: Callable[[JournalReader], T]) -> T | None:
        """The result of a query to the journal; None where there is no journal yet."""
        return await asyncio.to_thread(self._query, read)

    # --- its worker threads, one at a time ---
    def _is_last(self) -> bool:
        """Whether the end of the run is still to be shown, which does not wait for the next turn."""
        over = self._snapshot is not None and self._snapshot.summary is not None
        return (self.closing or over) and self._shown is not None and self._shown.outcome is None

    def _timed_look(self, monotonic: float) -> tuple[PageState, float]:
        began = time.thread_time()
        return self._look(monotonic), time.thread_time() - began

    def _look(self, monotonic: float) -> PageState:
        snapshot, now = self._snapshot, time.time()
        facts = self._folder.current(snapshot, monotonic)
        events = self._newest_event.number()
        sources = events, ((facts, snapshot) if self.live else (facts,))
        if self._shown is not None and self._sources is not None and _same(sources, self._sources):
            return self._shown
        self._sources = sources
        run = run_view.run_value(facts, snapshot, now=now, live=self.live or facts.at_work, events=events)
        rounds = self._rounds(facts, snapshot)
        return next_page_state(self._shown, run, fleet_view.fleet_rows(facts, snapshot), rounds, now=now)

    def _rounds(self, facts: run_reader.FolderFacts, snapshot: Snapshot | None) -> list[run_view.Json]:
        """The closed rounds; values that were already sent are kept, only new ones are computed."""
        history = run_view.history_of(facts, snapshot)
        known = list(self._shown.rounds) if self._shown else []
        stays = len(known) <= len(history) and all(line["cost_relative"] is not None for line in known)
        known = known if stays else []
        return known + run_view.round_values(facts, history[len(known) :])

    def _query(self, read: Callable[[JournalReader], T]) -> T | None:
        path = RunFolder(self.path).journal
        if not path.exists():
            return None
        with run_reader.open_journal(path, live=self.live or run_reader.is_at_work(self.path)) as reader:
            return read(reader)


def _same(sources: tuple[int, tuple[object, ...]], before: tuple[int, tuple[object, ...]]) -> bool:
    """Whether the events' number is equal and the facts and the snapshot are the same objects."""
    return sources[0] == before[0] and all(map(operator.is_, sources[1], before[1]))


REREAD_S = 2.0  # Minimum seconds between two reads of a folder that this process itself writes
WATCHED_FILES = ("history.jsonl", "summary.json", "journal.sqlite", "journal.sqlite-wal")


class FactsCache:
    """The newest facts of the run in `path`; `live` says that this process runs it."""

    def __init__(self, path: Path, *, live: bool) -> None:
        self._path, self._live = path, live
        self._facts: run_reader.FolderFacts | None = None
        self._read_at, self._read_for = 0.0, object()

    @property
    def newest(self) -> run_reader.FolderFacts:
        assert self._facts is not None
        return self._facts

    def current(self, snapshot: Snapshot | None, monotonic: float) -> run_reader.FolderFacts:
        """The folder's facts at `monotonic` seconds, where the run is at `snapshot`."""
        if self._live:
            version: object = (snapshot.round, snapshot.phase, len(snapshot.history)) if snapshot else None
            # A round's cost is sent once, so the size of the network must be known before that.
            complete = self._facts is not None and self._facts.parameters is not None
            over = snapshot is not None and snapshot.summary is not None
            late = monotonic >= self._read_at + REREAD_S or over or not complete
            due = version != self._read_for and late
        else:
            version = tuple(map(fingerprint, (self._path / name for name in WATCHED_FILES)))
            due = version != self._read_for
        if self._facts is None or due:
            self._facts = self._read()
            self._read_at, self._read_for = monotonic, version
        return self._facts

    def _read(self) -> run_reader.FolderFacts:
        """The facts of the folder; the previous ones where it cannot be read at the moment."""
        try:
            return run_reader.read_facts(self._path, live=self._live)
        except (EdgeError, OSError, sqlite3.Error) as error:
            log.debug("%s cannot be read at the moment: %s", self._path, error)
            return self._facts or run_reader.FolderFacts(self._path)


# Server-sent events: one text stream per page, until the page stops reading.
QUIET_S = 15.0
"""Seconds without an event after which a comment is sent, so that both ends detect a lost connection."""
STUCK_S = 30.0  # A page that accepts no data for this many seconds is disconnected


class EventStream(StreamingResponse):
    """A stream that disconnects a stuck reader; `ended` is called at its end."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[str], *, ended: Callable[[], None]) -> None:
        super().__init__(content)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()

    async def stream_response(self, send: Send) -> None:
        async def patiently(message: Message) -> None:
            await asyncio.wait_for(send(message), STUCK_S)

        try:
            await super().stream_response(patiently)
        except TimeoutError as error:
            raise ConnectionAbortedError("the page has stopped reading") from error


class EventWriter:
    """Writes the events of a feed for all pages; pages at the same cursor share the text."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._version = 0
        self._written: dict[Cursor, tuple[Cursor, list[str]]] = {}

    async def texts(self, since: int) -> AsyncIterator[str]:
        """The events for a page that has the rounds up to `since`, until the feed closes."""
        cursor, number = Cursor(round=since), 0
        while True:
            last = self._feed.closing
            shown = await self._feed.read_state()
            cursor, fresh = self._fresh(cursor, shown)
            for text in fresh:
                number += 1
                yield f"id: {number}\n{text}"
            if last:
                return
            if not await self._feed.wait_for_change(shown, QUIET_S):
                yield ": still here\n\n"

    def _fresh(self, cursor: Cursor, shown: PageState) -> tuple[Cursor, list[str]]:
        if shown.version != self._version:
            self._version, self._written = shown.version, {}
        if cursor not in self._written:
            after, new = events(cursor, shown)
            self._written[cursor] = after, [event_text(event) for event in new]
        return self._written[cursor]


def event_text(event: Event) -> str:
    """One event as sent; JSON has no line breaks, so that no text in it can begin another event."""
    return f"event: {event.name}\ndata: {access.json_text(event.data)}\n\n"
