"""The simulated gateways: the product's own, with its journal and its two links, driven event by event."""

from pathlib import Path
from typing import TYPE_CHECKING

from edge_server.coordinator.gateway.gateway import SiteGateway
from tests.storm.processes import FEDERATION, Process, address_of

if TYPE_CHECKING:
    from tests.storm.world import World


def around(name: str) -> str:
    """The site in which a device, or another site, is; empty for one at the server's broker."""
    return name.rpartition(".")[0]


class GatewayProcess(Process):
    """The gateway of the site whose name it has."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self.upstream = address_of(around(name))

    @property
    def out(self) -> Path:
        """The folder of the gateway."""
        return Path(self.machine.root) / "gateway"

    def boot(self) -> None:
        self.gateway = SiteGateway(
            self.upstream, address_of(self.name), federation=FEDERATION, site=self.name, folder=self.out
        )
        self.gateway.below.link.open()
        self.gateway.above.link.open()
        self._wait_for_tick()

    def turn(self) -> None:
        self.gateway.loop.turn()

    def close(self) -> None:
        if self.booted:
            self.gateway.close()

    @property
    def booted(self) -> bool:
        return hasattr(self, "gateway")

    @property
    def waiting(self) -> int:
        return self.gateway.inbox.qsize()

    @property
    def next_tick(self) -> float:
        return self.gateway.loop.next_tick
