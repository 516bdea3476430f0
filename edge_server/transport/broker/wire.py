"""MQTT's numbers and strings, read strictly and written back (MQTT 5.0, section 1.5)."""

from collections.abc import Iterator
from enum import IntEnum
from typing import Generic, TypeVar

from schemas.errors import PeerError


class Code(IntEnum):
    """The MQTT 5 reason codes that this broker says or understands."""

    SUCCESS = 0x00
    DISCONNECT_WITH_WILL = 0x04
    NO_SUBSCRIPTION = 0x11
    UNSPECIFIED = 0x80
    MALFORMED = 0x81
    PROTOCOL_ERROR = 0x82
    UNSUPPORTED_VERSION = 0x84
    BAD_CLIENT_ID = 0x85
    SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    TAKEN_OVER = 0x8E
    BAD_FILTER = 0x8F
    BAD_TOPIC = 0x90
    BAD_TOPIC_ALIAS = 0x94
    TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97
    QOS_NOT_SUPPORTED = 0x9B
    NO_SHARED_SUBSCRIPTIONS = 0x9E
    NO_SUBSCRIPTION_IDS = 0xA1


class MqttError(PeerError):
    """A peer broke the protocol; `code` is the reason code for an MQTT 5 client."""

    def __init__(self, message: str, code: Code = Code.MALFORMED) -> None:
        super().__init__(message)
        self.code = code


class Reader:
    """Takes values off the front of one packet's body; raises MqttError where it ends too early."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> memoryview:
        """Return the next `count` bytes as a view, not a copy."""
        end = self._at + count
        if end > len(self._data):
            raise MqttError(f"{count} bytes expected, {len(self._data) - self._at} left in the packet")
        view = self._data[self._at : end]
        self._at = end
        return view

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def varint(self) -> int:
        """Return a variable byte integer: at most four bytes, and no byte more than it needs."""
        value = 0
        for place in range(4):
            byte = self.number(1)
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                if place and not byte:
                    raise MqttError("a variable byte integer is longer than it need be")
                return value
        raise MqttError("a variable byte integer is longer than four bytes")

    def binary(self) -> bytes:
        return bytes(self.take(self.number(2)))

    def text(self) -> str:
        """Return a length-prefixed UTF-8 string without NUL."""
        raw = self.binary()
        try:
            value = raw.decode()
        except UnicodeDecodeError as error:
            raise MqttError("a string is not UTF-8") from error
        if "\0" in value:
            raise MqttError("a string contains NUL")
        return value

    def packet_id(self) -> int:
        """Return a packet identifier, which is never 0."""
        value = self.number(2)
        if not value:
            raise MqttError("packet identifier 0", Code.PROTOCOL_ERROR)
        return value

    @property
    def bytes_left(self) -> int:
        return len(self._data) - self._at

    def rest(self) -> memoryview:
        return self.take(self.bytes_left)

    def finish(self) -> None:
        """Raise MqttError when the packet says more than it should."""
        if self.bytes_left:
            raise MqttError(f"{self.bytes_left} bytes after the packet's end")


def varint(value: int) -> bytes:
    """Return `value` as a variable byte integer; `value` is below 2**28."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def binary(value: bytes | memoryview) -> bytes:
    """Return `value` with its two-byte length in front; at most 65,535 bytes."""
    return len(value).to_bytes(2, "big") + value


def text(value: str) -> bytes:
    """Return `value` as length-prefixed UTF-8."""
    return binary(value.encode())


# Topic names and filters: which filters cover a topic, and which topics a filter (MQTT 5.0, section 4.7).
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
