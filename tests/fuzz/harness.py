"""One decoder under atheris: `python -m tests.fuzz.harness TARGET CORPUS [libFuzzer's options]`."""

from __future__ import annotations

import sys

import atheris

OURS = ["schemas", "edge_client.slicing", "edge_server.broker", "edge_server.firewall"]


def main() -> None:
    """Fuzz until the time is over; what is raised but `PeerError` ends it with the input kept."""
    with atheris.instrument_imports(include=OURS):
        from tests.fuzz.targets import TARGETS, decoded
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], lambda data: decoded(target, data) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
