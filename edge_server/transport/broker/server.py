"""The asyncio server around a `Broker`: where it may listen, its one-second tick, its end."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator

from edge_server.transport.broker.broker import Broker
from edge_server.transport.broker.connection import Connection
from edge_server.transport.broker.limits import Limits
from schemas.errors import ConfigError

_BACKLOG = 1024
_TICK_S = 1.0


@contextlib.asynccontextmanager
async def serving(host: str, port: int, limits: Limits) -> AsyncIterator[tuple[str, int]]:
    """Run a broker while the context lasts; yields its address. Port 0 takes a free one."""
    address = _loopback(host, port)
    broker = Broker(limits)
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(lambda: Connection(broker), *address, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error}") from error
    ticking = loop.create_task(_tick(broker))
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        ticking.cancel()
        server.close()
        broker.shut_down()
        # One turn of the loop, in which the sockets take the farewells.
        await asyncio.sleep(0)


async def _tick(broker: Broker) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        broker.tick()


def _loopback(host: str, port: int) -> tuple[str, int]:
    """Return the address behind `host`; ConfigError unless only this machine can reach it."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error}") from error
    address = str(found[0][4][0])
    if not ipaddress.ip_address(address).is_loopback:
        raise ConfigError(
            f"{host} can be reached from other machines, and this broker has neither TLS nor passwords: "
            "listen on 127.0.0.1, or use Mosquitto with deploy/mosquitto/mosquitto.conf"
        )
    return address, port
