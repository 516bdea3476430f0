"""An announcer whose births are kept."""

from pathlib import Path
from typing import Any, cast

from edge_client.agent.announcer import Announcer
from edge_client.agent.eligibility.monitor import EligibilityMonitor
from edge_client.agent.presence import Presence
from edge_client.agent.server_contact import Messenger
from edge_client.agent.settings import AgentSettings
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.transport.broker_link import parse_address
from schemas.messages import Birth
from schemas.topics import Channel
from schemas.values import CapabilityProfile


def device_settings(state: Path, **stated: Any) -> AgentSettings:
    """A device that reaches no broker."""
    usual = {"federation": "home", "device": "pi", "source": "digits", "profile": CapabilityProfile()}
    usual |= {"address": parse_address("mqtt://127.0.0.1:1"), "state": state}
    return AgentSettings(**(usual | stated))


class Births:
    """An announcer's messenger that keeps the births."""

    def __init__(self, state: Path) -> None:
        settings = device_settings(state, labels={"site": "barn"})
        data = LocalData(load_source("digits"), load_source("digits"))
        monitor = EligibilityMonitor.of_board(settings.eligibility, cores=1, root=state)
        self.made: list[Birth] = []
        self.presence = Presence(settings, data)
        self.announcer = Announcer(settings, self.presence, cast(Messenger, self), monitor)

    def publish(self, channel: Channel, message: Any, *, retain: bool = False) -> None:
        assert (channel, retain) == (Channel.BIRTH, True)
        self.made.append(message)
