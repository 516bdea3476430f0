"""Retained messages: the last one of each topic, bounded in number and bytes, lost with the process."""

from __future__ import annotations

from collections.abc import Iterator

from edge_server.transport.broker.limits import Limits
from edge_server.transport.broker.session import Message
from edge_server.transport.broker.topics import TopicTree


class RetainedMessages:
    """The retained messages of a broker."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tree: TopicTree[Message] = TopicTree()
        self._count = 0
        self._bytes = 0

    def store(self, topic: str, message: Message) -> bool:
        """Replace the topic's message, or remove it if the new one is empty; False if there is no room."""
        self._forget(topic)
        if not message.payload:
            return True
        full = self._count >= self._limits.retained_messages
        if full or self._bytes + message.size > self._limits.retained_bytes:
            return False
        self._tree.put(topic, topic, message)
        self._count += 1
        self._bytes += message.size
        return True

    def covered(self, topic_filter: str, now: float) -> Iterator[Message]:
        """Yield the messages that a new subscription to `topic_filter` is sent."""
        for topic, message in list(self._tree.covered(topic_filter)):
            if message.expired(now):
                self._forget(topic)
            else:
                yield message

    def _forget(self, topic: str) -> None:
        if old := self._tree.pop(topic, topic):
            self._count -= 1
            self._bytes -= old.size
