"""Become COMMAND, and die with the process that started it.

`python -m edge_server.transport.broker.die_with_parent PARENT COMMAND...`
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> None:
    """Replace this process by a command that Linux kills when the thread that started it ends.

    SIGKILL, because neither broker writes anything when it ends. Other systems do not tie the processes.
    """
    parent, *command = arguments
    # A preexec_fn would do this in Python between fork and exec of a threaded parent, which can deadlock.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("the starting process ended before its broker began")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
