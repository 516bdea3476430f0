"""Topic names and filters: which filters cover a topic, and which topics a filter (MQTT 5.0, section 4.7)."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from edge_server.transport.broker.wire import Code, MqttError

# Each level is a node of a tree, so a client must not create a topic of 65,535 levels.
MAX_LEVELS = 32

SHARE = "$share/"

T = TypeVar("T")


def check_topic(topic: str) -> None:
    """Raise MqttError unless `topic` is a name to publish under."""
    if not topic or "+" in topic or "#" in topic or topic.count("/") >= MAX_LEVELS:
        raise MqttError(f"not a topic to publish under: {topic[:80]!r}", Code.BAD_TOPIC)


def split_share(topic_filter: str) -> tuple[str, str] | None:
    """Group and filter of `$share/group/filter`; None for a filter that is not shared."""
    if not topic_filter.startswith(SHARE):
        return None
    group, _, inner = topic_filter.removeprefix(SHARE).partition("/")
    return group, inner


def check_filter(topic_filter: str) -> None:
    """Raise MqttError unless `topic_filter` is one to subscribe with, alone or shared."""
    if share := split_share(topic_filter):
        group, inner = share
        if not group or "+" in group or "#" in group or inner.startswith(SHARE):
            raise MqttError(f"not a shared filter: {topic_filter[:80]!r}", Code.BAD_FILTER)
        topic_filter = inner
    levels = topic_filter.split("/")
    wild_inside = any(len(level) > 1 and ("+" in level or "#" in level) for level in levels)
    if not topic_filter or wild_inside or "#" in levels[:-1] or len(levels) > MAX_LEVELS:
        raise MqttError(f"not a topic filter: {topic_filter[:80]!r}", Code.BAD_FILTER)


class _Node(Generic[T]):
    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.values: dict[str, T] = {}


class TopicTree(Generic[T]):
    """Values by path and key, found from a topic (paths are filters) or from a filter (paths are topics)."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def put(self, path: str, key: str, value: T) -> T | None:
        """Store `value`; return the one that it replaces."""
        node = self._root
        for level in path.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        old = node.values.get(key)
        node.values[key] = value
        return old

    def pop(self, path: str, key: str) -> T | None:
        """Remove and return a value, and the branch that it leaves bare."""
        node, way = self._root, []
        for level in path.split("/"):
            child = node.children.get(level)
            if child is None:
                return None
            way.append((node, level))
            node = child
        old = node.values.pop(key, None)
        for parent, level in reversed(way):
            child = parent.children[level]
            if child.children or child.values:
                break
            del parent.children[level]
        return old

    def matching(self, topic: str) -> Iterator[tuple[str, T]]:
        """Yield key and value of every stored filter that covers `topic`."""
        levels = topic.split("/")
        todo = [(self._root, 0)]
        while todo:
            node, depth = todo.pop()
            wild = depth > 0 or not topic.startswith("$")
            if wild and "#" in node.children:
                yield from node.children["#"].values.items()
            if depth == len(levels):
                yield from node.values.items()
                continue
            for level in (levels[depth], "+") if wild else (levels[depth],):
                if child := node.children.get(level):
                    todo.append((child, depth + 1))

    def find_covered(self, topic_filter: str) -> Iterator[tuple[str, T]]:
        """Yield key and value of every stored topic that `topic_filter` covers."""
        levels = topic_filter.split("/")
        todo = [(self._root, 0)]
        while todo:
            node, depth = todo.pop()
            level = levels[depth] if depth < len(levels) else ""
            if depth == len(levels) or level == "#":
                yield from node.values.items()
            if depth == len(levels):
                continue
            if level not in ("+", "#"):
                if child := node.children.get(level):
                    todo.append((child, depth + 1))
                continue
            ahead, inside = depth + (level == "+"), node is not self._root
            todo += [(c, ahead) for name, c in node.children.items() if inside or not name.startswith("$")]
