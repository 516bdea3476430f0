"""Which filter covers which topic; the cases follow MQTT 5.0, section 4.7."""

import pytest

from edge_server.transport.broker import wire

TABLE = [
    # filter, topic, covered
    ("a/b", "a/b", True),
    ("a/b", "a/b/c", False),
    ("a/b", "a", False),
    ("a/b", "A/b", False),
    ("a/+", "a/b", True),
    ("a/+", "a/", True),
    ("a/+", "a", False),
    ("a/+", "a/b/c", False),
    ("+", "a", True),
    ("+", "/a", False),
    ("+/+", "/a", True),
    ("/+", "/a", True),
    ("a/+/c", "a/b/c", True),
    ("a/+/c", "a//c", True),
    ("a/+/c", "a/b/d", False),
    ("+/b/+", "a/b/c", True),
    ("#", "a", True),
    ("#", "a/b/c", True),
    ("#", "/", True),
    ("a/#", "a", True),
    ("a/#", "a/b", True),
    ("a/#", "a/b/c", True),
    ("a/#", "ab", False),
    ("a/+/#", "a", False),
    ("a/+/#", "a/b", True),
    ("a/b/#", "a/c/b", False),
    ("#", "$SYS/x", False),
    ("+/x", "$SYS/x", False),
    ("$SYS/#", "$SYS/x", True),
    ("$SYS/+", "$SYS/x", True),
    ("#", "a/$SYS", True),
    ("a/+", "a/$SYS", True),
    ("a b/ü", "a b/ü", True),
]


@pytest.mark.parametrize(("topic_filter", "topic", "covered"), TABLE)
def test_a_filter_covers_the_topics_of_the_standard(topic_filter: str, topic: str, covered: bool) -> None:
    filters: wire.TopicTree[str] = wire.TopicTree()
    filters.put(topic_filter, "client", "value")
    assert list(filters.matching(topic)) == ([("client", "value")] if covered else [])
    topics: wire.TopicTree[str] = wire.TopicTree()
    topics.put(topic, "client", "value")
    assert list(topics.find_covered(topic_filter)) == ([("client", "value")] if covered else [])


def test_every_covering_filter_of_every_client_is_found() -> None:
    tree: wire.TopicTree[int] = wire.TopicTree()
    for number, topic_filter in enumerate(["a/b", "a/+", "#", "+/b", "x"]):
        tree.put(topic_filter, f"c{number % 2}", number)
    assert sorted(tree.matching("a/b")) == [("c0", 0), ("c0", 2), ("c1", 1), ("c1", 3)]


def test_a_removed_path_leaves_nothing_behind() -> None:
    tree: wire.TopicTree[int] = wire.TopicTree()
    assert tree.put("a/b/c", "one", 1) is None
    assert tree.put("a/b/c", "one", 2) == 1
    tree.put("a", "one", 3)
    assert tree.pop("a/b/c", "two") is None
    assert tree.pop("a/b/c", "one") == 2
    assert tree.pop("a/b", "one") is None
    assert list(tree.find_covered("#")) == [("one", 3)]
    assert tree.pop("a", "one") == 3
    assert not tree._root.children


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a+b", "a#", "/" * wire.MAX_LEVELS])
def test_a_topic_with_a_wildcard_without_levels_or_with_too_many_is_refused(topic: str) -> None:
    with pytest.raises(wire.MqttError) as refused:
        wire.check_topic(topic)
    assert refused.value.code is wire.Code.BAD_TOPIC


MISPLACED = ["", "a/#/b", "#/a", "a#", "a+", "+a/b", "a/b#", "/" * wire.MAX_LEVELS]
INCOMPLETE = ["$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/g/a+"]


@pytest.mark.parametrize("topic_filter", MISPLACED + INCOMPLETE)
def test_a_misplaced_wildcard_or_a_shared_filter_without_group_or_filter_is_refused(
    topic_filter: str,
) -> None:
    with pytest.raises(wire.MqttError) as refused:
        wire.check_filter(topic_filter)
    assert refused.value.code is wire.Code.BAD_FILTER


def test_a_shared_filter_is_valid() -> None:
    wire.check_filter("$share/group/a/+/#")
