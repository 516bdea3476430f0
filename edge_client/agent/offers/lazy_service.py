"""Forwards the agent's calls to a runtime that is imported with its first offer."""

from typing import Generic, Protocol, TypeVar

from edge_client.agent.service import Service
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.transport.link_events import Arrived, LinkDown, LinkUp
from schemas.tensors.chunks import Chunk, decode_chunk


class OfferRuntime(Protocol):
    """What feeds a machine and executes its commands."""

    def connected(self) -> None:
        """The broker has accepted the connection."""

    def disconnected(self) -> None:
        """The connection is lost."""

    def tick(self, *, training: bool) -> None:
        """Time has passed; `training`: a task is being worked on."""

    def take_chunk(self, chunk: Chunk) -> bool:
        """Take a chunk of the offered file; False: it belongs to something else."""

    def stop(self) -> None:
        """The process ends."""


Runtime = TypeVar("Runtime", bound=OfferRuntime)


class LazyOfferService(Service, Generic[Runtime]):
    """Does nothing until a subclass makes the runtime and hands it to `_use`."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self._connected = False

    def connected(self, up: LinkUp, now: float) -> None:
        self._connected = True
        if self._runtime is not None:
            self._runtime.connected()

    def disconnected(self, down: LinkDown) -> None:
        self._connected = False
        if self._runtime is not None:
            self._runtime.disconnected()

    def tick(self, now: float, session: Session) -> None:
        if self._runtime is not None:
            self._runtime.tick(training=session.phase is SessionPhase.WORKING)

    def stop(self) -> None:
        """End what the runtime does."""
        if self._runtime is not None:
            self._runtime.stop()

    def _take_chunk(self, arrived: Arrived) -> bool:
        return self._runtime is not None and self._runtime.take_chunk(decode_chunk(arrived.payload))

    def _use(self, runtime: Runtime) -> Runtime:
        self._runtime = runtime
        if self._connected:
            runtime.connected()
        return runtime
