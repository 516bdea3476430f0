"""The words in which the progress of a rollout is written."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """How progress is written: what devices do with `thing`; `command` continues a rollout.

    `fetches` has a place for the tier, `watch` one for the seconds.
    """

    thing: str
    use: str
    uses: str
    fetches: str
    compares: str
    watch: str
    command: str
