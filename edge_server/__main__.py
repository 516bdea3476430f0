"""The command `edge-server`, also as `python -m edge_server`: Ctrl-C ends its imports in one line."""

import sys


def main() -> int:
    """Run one verb and return its exit code."""
    try:
        from edge_server.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("edge-server: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
