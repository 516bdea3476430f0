"""Shared subscriptions: each message goes to one of a group's members, in turn (MQTT 5.0, section 4.8.2)."""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from edge_server.transport.broker.topics import TopicTree


@dataclass
class _Group:
    """The members' QoS by client identifier; the member of the last turn comes last."""

    members: dict[str, int] = field(default_factory=dict)

    def next(self, online: Container[str]) -> tuple[str, int]:
        """The next member in turn among those online, or else among all."""
        client_id = next((member for member in self.members if member in online), next(iter(self.members)))
        qos = self.members[client_id] = self.members.pop(client_id)
        return client_id, qos


class SharedSubscriptions:
    """All groups of shared subscriptions, by filter."""

    def __init__(self) -> None:
        self._groups: TopicTree[_Group] = TopicTree()

    def put(self, share: tuple[str, str], client_id: str, qos: int) -> None:
        """Add a member, or change its QoS."""
        name, inner = share
        group = self._groups.pop(inner, name) or _Group()
        group.members[client_id] = qos
        self._groups.put(inner, name, group)

    def pop(self, share: tuple[str, str], client_id: str) -> None:
        """Remove a member, and its group with the last one."""
        name, inner = share
        group = self._groups.pop(inner, name)
        if group is None:
            return
        group.members.pop(client_id, None)
        if group.members:
            self._groups.put(inner, name, group)

    def receivers(self, topic: str, online: Container[str]) -> Iterator[tuple[str, int]]:
        """One member of every group that wants this topic, with the QoS that it asked for."""
        for _, group in self._groups.matching(topic):
            yield group.next(online)
