"""The command `edge-client`, also as `python -m edge_client`: Ctrl-C ends its imports in one line."""

import sys


def main() -> int:
    """Run one verb and return its exit code."""
    try:
        from edge_client.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("edge-client: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
