"""Following a federation's server until this one takes over."""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from edge_client.system.watchdog import watchdog_of
from edge_client.transport.broker_address import BrokerAddress
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.launch import stopped_by_signals
from edge_server.coordinator.run_start import locked, recorded
from edge_server.coordinator.standby.follower import End, Standby
from edge_server.coordinator.standby.replica_copy import mark_as_copy
from edge_server.coordinator.standby.run_lease import lease_address
from edge_server.transport.lease.holder import this_process
from edge_server.transport.lease.keeper import LeaseKeeper
from schemas.errors import ConfigError


def follow(
    federation: str, address: BrokerAddress, out: Path, *, say: Callable[[str], None]
) -> tuple[End, LeaseKeeper | None]:
    """Follow the holder of the federation's lease in the folder `out`; with the lease, once it is held.

    Raises `ConfigError` for a folder with another run, and for a server that cannot be followed.
    """
    where = lease_address(address)
    if where is None:
        raise ConfigError(
            "a standby needs a certificate of its own besides the server's: copy AUTHORITY/standby and "
            "AUTHORITY/server, which `edge-server enroll` makes, to a folder of this machine"
        )
    mark_as_copy(out, federation)
    with locked(out), contextlib.ExitStack() as undo:
        run, epoch = recorded(out)
        lease = LeaseKeeper(
            where, federation, this_process(out), follows=True, first_epoch=epoch, run=run
        ).open()
        undo.callback(lease.close, over=False)
        threading.Thread(target=preload, name="preload", daemon=True).start()
        standby = Standby(
            federation,
            out,
            lease,
            check=lambda run: check_copy(run, federation),
            goes_on=is_pass,
            say=say,
            alive=watchdog_of(os.environ).alive,
        )
        with stopped_by_signals(standby.stop):
            end = standby.run()
        if end != "taken over":
            return end, None
        standby.take_over()
        undo.pop_all()
        return end, lease


def copied_config(run: Path) -> Config:
    """The configuration of a copied run."""
    return load_config(str(run / "federation.toml"), [])


def is_pass(run: Path) -> bool:
    """Whether the copied run only asks for statistics, after which the federation's own run begins."""
    return copied_config(run).make_strategy().statistics is not None


def check_copy(run: Path, federation: str) -> None:
    """Raise `ConfigError` if this machine could not serve the copied run."""
    from edge_server.security.signing_key import public_key_text

    config = copied_config(run)
    if config.federation.name != federation:
        raise ConfigError(f"{run} is a run of '{config.federation.name}', not of '{federation}'")
    key = config.federation.signing_key or run / "signing.key"
    if not key.exists() or public_key_text(key) != (run / "signing.pub").read_text():
        raise ConfigError(
            f"{key} must be the key that the server signs with, which is never sent: copy it from the server "
            "(mode 0600), and start the standby again"
        )


def preload() -> None:
    """Import what a server needs as it starts: seconds that a takeover should not take."""
    import edge_server.coordinator.assembly
    import edge_server.coordinator.object_store
    import edge_server.coordinator.scaling
    import edge_server.coordinator.server
    import edge_server.observability.integrations.open
    import edge_server.observability.report.report
    import edge_server.releases.registry.register  # noqa: F401
