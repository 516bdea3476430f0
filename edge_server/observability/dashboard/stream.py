"""Server-sent events: one page's stream, as text, for as long as the page reads it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from edge_server.observability.dashboard.events import Cursor, Event, PageState, events
from edge_server.observability.dashboard.feed import Feed

QUIET_S = 15.0
"""Where there is nothing to say, so often a comment is sent, so that both ends know of each other."""
STUCK_S = 30.0
"""Who takes nothing for so long has gone."""


class EventStream(StreamingResponse):
    """A stream that gives up on a reader who takes nothing; `ended` is called once it is over."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[str], *, ended: Callable[[], None]) -> None:
        super().__init__(content)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream to one page."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()

    async def stream_response(self, send: Send) -> None:
        """Send what there is, a piece at a time."""

        async def patiently(message: Message) -> None:
            await asyncio.wait_for(send(message), STUCK_S)

        try:
            await super().stream_response(patiently)
        except TimeoutError as error:
            raise ConnectionAbortedError("the page takes nothing more") from error


class EventWriter:
    """Tells all pages of a feed; what several are told at the same time is written out once."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._version = 0
        self._written: dict[Cursor, tuple[Cursor, list[str]]] = {}

    async def told(self, since: int) -> AsyncIterator[str]:
        """The events of one page that knows the rounds up to `since`, until the feed closes."""
        cursor, number = Cursor(round=since), 0
        while True:
            last = self._feed.closing
            shown = await self._feed.shown()
            cursor, fresh = self._fresh(cursor, shown)
            for text in fresh:
                number += 1
                yield f"id: {number}\n{text}"
            if last:
                return
            if not await self._feed.changed(shown, QUIET_S):
                yield ": still here\n\n"

    def _fresh(self, cursor: Cursor, shown: PageState) -> tuple[Cursor, list[str]]:
        if shown.version != self._version:
            self._version, self._written = shown.version, {}
        if cursor not in self._written:
            after, told = events(cursor, shown)
            self._written[cursor] = after, [event_text(event) for event in told]
        return self._written[cursor]


def event_text(event: Event) -> str:
    """One event as it is sent; JSON has no line breaks, so that nothing in it can begin another."""
    return f"event: {event.name}\ndata: {json_text(event.data)}\n\n"


def json_text(value: Any) -> str:
    """Compact JSON, with no character that a page could take for markup."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
