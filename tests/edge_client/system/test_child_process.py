"""Questions to a process of its own; crashes and hangs are tested with the trials of providers."""

import sys

import pytest

from edge_client.system.child_process import NoAnswer, answer, ask
from schemas.base import Frozen


class Question(Frozen):
    word: str


class Reply(Frozen):
    length: int


def reply(question: Question) -> Frozen:
    """The word's length, among what a library prints; or something else than an answer."""
    print("loading kernels ...")
    if question.word == "fail":
        raise RuntimeError("no such\n device")
    return Question(word="?") if question.word == "evade" else Reply(length=len(question.word))


def test_an_answer_is_found_among_what_libraries_print() -> None:
    assert ask(__name__, Question(word="five!"), Reply, limit_s=100) == Reply(length=5)


@pytest.mark.parametrize(
    ("word", "reason"), [("fail", "failed: no such device"), ("evade", "has said nothing of use")]
)
def test_without_an_answer_the_reason_is_raised(word: str, reason: str) -> None:
    with pytest.raises(NoAnswer, match=f"^{reason}$"):
        ask(__name__, Question(word=word), Reply, limit_s=100)


if __name__ == "__main__":
    sys.exit(answer(Question, reply))
