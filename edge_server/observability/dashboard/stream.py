"""Server-sent events: one text stream per page, until the page stops reading."""

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from edge_server.observability.dashboard.answers import json_text
from edge_server.observability.dashboard.events import Cursor, Event, PageState, events
from edge_server.observability.dashboard.feed import Feed

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
    return f"event: {event.name}\ndata: {json_text(event.data)}\n\n"
