"""Attempts to connect to the broker: their messages, and failures that a retry cannot mend."""

from dataclasses import dataclass, replace

from edge_client.transport.broker_address import BrokerAddress
from edge_client.transport.link_events import LinkDown
from edge_client.transport.packet_size import fitting
from schemas.errors import ConfigError
from schemas.tensors.chunks import CHUNK_SIZES

ADVISE_AT = (3, 10, 30, 100, 300, 1000)
"""Numbers of consecutive failures at which the message says what to check."""


@dataclass(frozen=True)
class ConnectionAttempts:
    """Counts consecutive failed attempts; with `keep_trying` no failure is final."""

    address: BrokerAddress
    keep_trying: bool = False
    failures: int = 0

    def on_success(self) -> "ConnectionAttempts":
        """Reset the count after a connection."""
        return replace(self, failures=0)

    def on_failure(self, down: LinkDown) -> "tuple[ConnectionAttempts, str]":
        """Count a failure and return the message for the user; `ConfigError` if no retry can succeed."""
        counted = replace(self, failures=self.failures + 1)
        message = f"no connection to {self.address}: {down.reason}"
        if down.lasting and not self.keep_trying:
            raise ConfigError(
                f"{message}\nwaiting does not mend this: {self._doctor()}; "
                "--keep-trying tries again all the same"
            )
        if counted.failures not in ADVISE_AT:
            return counted, f"{message}; trying again"
        return counted, f"{message}; {counted.failures} tries have failed: {self._doctor()}; trying again"

    def chunk_bytes(self, max_packet: int | None) -> int:
        """The largest chunk size in bytes that fits the broker's packets; `ConfigError` if none does."""
        try:
            return fitting(max_packet)[0]
        except ConfigError:
            if not self.keep_trying:
                raise
            return CHUNK_SIZES[-1]

    def _doctor(self) -> str:
        options = f"--broker {self.address}" + (" --ca, --cert, --key as here" if self.address.tls else "")
        return f"`edge-client doctor {options}` looks at name, port, certificates and access one by one"


def device_name_conflict(device: str, detail: str) -> ConfigError:
    """The error of a device whose name another device uses already."""
    return ConfigError(
        f"another device is called {device}, and the broker keeps only one of the two connected: {detail};"
        " give this one a name of its own (--device-id, with a state folder and a certificate of its own)"
    )
