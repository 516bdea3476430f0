"""What the page needs of the service: actions, and lists to read."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from edge_server.fleet.people.values import Actor

Json = dict[str, Any]


class FleetActions(Protocol):
    """The actions that people may do."""

    def forms(self, actor: Actor) -> list[Json]:
        """The actions that somebody may do, as the page shows them."""
        ...

    def perform(self, name: str, given: Mapping[str, Any], actor: Actor, now: float) -> Json:
        """Do an action; raises `NotAllowed`, or `ConfigError` with nothing changed."""
        ...


class FleetLists(Protocol):
    """The lists of the page; each raises `EdgeError` for a file that cannot be read."""

    def devices(self, asked: Mapping[str, str], actor: Actor, now: float) -> Json:
        """One page of the device list; raises `ConfigError` for a wrong selector."""
        ...

    def device(self, federation: str, device: str, actor: Actor, now: float) -> Json | None:
        """One device; None if there is none within the actor's selector."""
        ...

    def job(self, name: str, actor: Actor, now: float) -> Json | None:
        """One job; None if there is none."""
        ...

    def audit(self, asked: Mapping[str, str]) -> Json:
        """The newest entries of the audit log."""
        ...

    def users(self, now: float) -> Json:
        """Users and tokens."""
        ...

    def others(self) -> Sequence[str]:
        """The names of further lists (`jobs`, `rollouts`, `alerts`)."""
        ...

    def other(self, name: str, now: float) -> Json:
        """A further list."""
        ...
