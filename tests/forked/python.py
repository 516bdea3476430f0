"""`python.py ...`: as the interpreter with `-c CODE`, `-m MODULE` or a script, but in a forked process.

This process passes signals on and waits for the other; if it is killed, so is the other. It is a script
without imports of ours, so that it starts fast. pytest-xdist starts its processes with it.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    """Start the process, wait for it, and return its exit code."""
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
    pid = int(server.recv(32))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: os.kill(pid, number))
    for descriptor in (0, 1, ended):
        os.close(descriptor)
    code = int(os.read(ending, 16) or b"-9")
    if code < 0:
        # Ended by a signal: so does this process.
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
