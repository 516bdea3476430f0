"""The interface of the agent's parts."""

from typing import Any

from edge_client.agent.session.state import Session
from edge_client.transport.broker_link import Arrived, LinkDown, LinkUp
from schemas.topics import DeviceTopic, EnrolTopic, SharedTopic, SiteTopic, StateTopic

Topic = DeviceTopic | SiteTopic | StateTopic | SharedTopic | EnrolTopic


class Service:
    """A part of the agent, called from the agent's thread; each method does nothing by default.

    `now` is in seconds of the monotonic clock.
    """

    def on_connected(self, up: LinkUp, now: float) -> None:
        """The broker has accepted the connection."""

    def on_disconnected(self, down: LinkDown) -> None:
        """The connection is lost, or an attempt to connect has failed."""

    def tick(self, now: float, session: Session) -> None:
        """Time has passed; called a few times a second."""

    def before_wait(self, session: Session) -> None:
        """The agent is about to wait for its next event; called often, so it must be cheap."""

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        """Handle a message from the broker; False: the topic is another service's. Raises `PeerError`."""
        return False

    def handle(self, event: Any) -> None:
        """Handle any other event of the agent's inbox, such as the end of work in another thread."""

    def stop(self) -> None:
        """The process ends."""
