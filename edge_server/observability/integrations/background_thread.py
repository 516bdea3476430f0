"""A thread that handles an inbox's events and takes a regular turn; errors are logged and end nothing."""

import logging
import threading
from collections.abc import Callable
from typing import Any

from edge_client.transport.broker_link import Inbox
from edge_client.transport.event_loop import EventLoop

log = logging.getLogger(__name__)

END_S = 10


class BackgroundThread:
    """Calls `handle` with each event of the inbox and `turn` with the time every `every_s` seconds."""

    def __init__(
        self,
        name: str,
        inbox: Inbox,
        *,
        every_s: float,
        turn: Callable[[float], None],
        handle: Callable[[Any], None],
    ) -> None:
        self._name = name
        self._loop = EventLoop(inbox, every_s, tick=turn, handle=handle, name=name)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop the thread and wait up to `END_S` seconds for it."""
        self._ending.set()
        self._thread.join(timeout=END_S)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._loop.run(until=self._ending.is_set)
            except Exception:
                log.exception("%s: an update was not sent", self._name)
