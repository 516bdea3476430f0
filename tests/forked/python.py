"""`python.py -c CODE`: as the interpreter, but forked from the process that has imported everything.

pytest-xdist starts its processes so. This one only waits for the other; if it is killed, so is the other.
It is a script without imports of ours, so that it starts fast.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    """Start the process, wait for it, and return its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(os.environ["EDGE_TESTS_FORKED_FROM"])
    ending, ended = os.pipe()
    request = {
        "program": "python",
        "words": sys.argv[1:],
        "cwd": str(Path.cwd()),
        "environ": dict(os.environ),
    }
    socket.send_fds(server, [json.dumps([request, [0, 1, 2]]).encode()], [ended, 0, 1, 2])
    server.recv(32)
    for descriptor in (0, 1, ended):
        os.close(descriptor)
    return abs(int(os.read(ending, 16) or b"9"))


if __name__ == "__main__":
    sys.exit(main())
