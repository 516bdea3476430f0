"""One decoder under atheris: `python -m tests.fuzz.harness TARGET CORPUS [libFuzzer's options]`."""

import sys

import atheris

OURS = [
    "schemas",
    "edge_client.data.sounds.sound_files",
    "edge_client.pruning.index_sets",
    "edge_server.transport.broker",
    "edge_server.coordinator.validation",
]


def main() -> None:
    """Fuzz until the time limit; an exception other than `PeerError` ends the run and saves the input."""
    with atheris.instrument_imports(include=OURS):
        from tests.fuzz.targets import TARGETS, decoded
    target = TARGETS[sys.argv[1]]

    def one_input(data: bytes) -> None:
        decoded(target, data)

    atheris.Setup([sys.argv[0], *sys.argv[2:]], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
