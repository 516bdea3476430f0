"""Tries to reach the broker: what is said of them, and which failures no further try will mend."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge_client.transport.broker_address import BrokerAddress
from edge_client.transport.link_events import LinkDown
from edge_client.transport.packet_size import fitting
from schemas.errors import ConfigError
from schemas.tensors.chunks import CHUNK_SIZES

ADVISE_AT = (3, 10, 30, 100, 300, 1000)
"""After so many failures in a row it is said what to check."""


@dataclass(frozen=True)
class Reaching:
    """How often in a row no connection came about; one that is to `keep_trying` never gives up."""

    address: BrokerAddress
    keep_trying: bool = False
    failures: int = 0

    def succeeded(self) -> Reaching:
        """There is a connection."""
        return replace(self, failures=0)

    def failed(self, down: LinkDown) -> tuple[Reaching, str]:
        """A try has failed: what to tell the user; `ConfigError` for what does not heal by itself."""
        counted = replace(self, failures=self.failures + 1)
        said = f"no connection to {self.address}: {down.reason}"
        if down.lasting and not self.keep_trying:
            raise ConfigError(
                f"{said}\nwaiting does not mend this: {self._doctor()}; --keep-trying goes on all the same"
            )
        if counted.failures not in ADVISE_AT:
            return counted, f"{said}; trying again"
        return counted, f"{said}; {counted.failures} tries have failed: {self._doctor()}; trying again"

    def chunk_bytes(self, max_packet: int | None) -> int:
        """The largest chunks that fit a broker's largest packet, in bytes; `ConfigError` where none do."""
        try:
            return fitting(max_packet)[0]
        except ConfigError:
            if not self.keep_trying:
                raise
            return CHUNK_SIZES[-1]

    def _doctor(self) -> str:
        options = f"--broker {self.address}" + (" --ca, --cert, --key as here" if self.address.tls else "")
        return f"`edge-client doctor {options}` looks at name, port, certificates and access one by one"


def same_name(device: str, detail: str) -> ConfigError:
    """Another device has this one's name, and had it first."""
    return ConfigError(
        f"another device is called {device}, and the two throw each other off the broker: {detail};"
        " give this one a name of its own (--device-id, with a state folder and a certificate of its own)"
    )
