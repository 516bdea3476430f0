"""The process from which others are forked: it has imported torch and the packages once, for all of them."""

import contextlib
import ctypes
import os
import select
import signal
import socket
from dataclasses import dataclass

from tests.forked.child import become
from tests.forked.preparation import prepare
from tests.forked.request import Request

MAX_BYTES = 1 << 18
"""A request has all environment variables."""
MAX_DESCRIPTORS = 16
CLONE_NEWPID = 0x20000000


@dataclass(frozen=True)
class Child:
    """A forked process, the pipe for its exit code, and whose connection has asked for it."""

    pid: int
    ended: int
    caller: socket.socket
    ends_with_caller: bool


def serve(listener: int, lifeline: int, *, tests: bool) -> None:
    """Fork a process for each request until the other end of `lifeline` is closed.

    With `tests` children that run tests or draw graphs are quicker, and the first one starts later.
    """
    # Ctrl-C reaches this process too, and is a matter of those that ask. A child unblocks it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    prepare(tests=tests)
    _Server(socket.socket(fileno=listener), lifeline).run()


class _Server:
    def __init__(self, listener: socket.socket, lifeline: int) -> None:
        self._listener, self._lifeline = listener, lifeline
        self._callers: dict[int, socket.socket] = {}
        self._children: dict[int, Child] = {}

    def run(self) -> None:
        """Serve until the lifeline is closed; children end with this process."""
        while True:
            own = [self._lifeline, self._listener.fileno()]
            ready = select.select([*own, *self._callers, *self._children], [], [])[0]
            if self._lifeline in ready:
                return
            for number in ready:
                self._handle(number)

    def _handle(self, number: int) -> None:
        if number == self._listener.fileno():
            caller = self._listener.accept()[0]
            self._callers[caller.fileno()] = caller
        elif number in self._callers:
            self._hear(self._callers[number])
        elif number in self._children:
            self._report(number)

    def _hear(self, caller: socket.socket) -> None:
        request, descriptors = b"", []
        with contextlib.suppress(ConnectionError):
            request, descriptors, _, _ = socket.recv_fds(caller, MAX_BYTES, MAX_DESCRIPTORS)
        if not request:
            self._leave(caller)
            return
        pid = self._fork(caller, request, descriptors)
        with contextlib.suppress(ConnectionError):
            caller.send(str(pid).encode())

    def _fork(self, caller: socket.socket, sent: bytes, descriptors: list[int]) -> int:
        request, numbers = Request.from_bytes(sent)
        ended, *others = descriptors
        if request.own_pids:
            ctypes.CDLL(None).unshare(CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            self._forget()
            os.close(ended)
            become(request, dict(zip(numbers, others, strict=True)))
        if request.own_pids:
            _share_pids_again()
        for descriptor in others:
            os.close(descriptor)
        self._children[os.pidfd_open(pid)] = Child(pid, ended, caller, request.ends_with_caller)
        return pid

    def _leave(self, caller: socket.socket) -> None:
        """Kill the children of a caller that has ended."""
        del self._callers[caller.fileno()]
        for handle, child in self._children.items():
            if child.caller is caller and child.ends_with_caller:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        caller.close()

    def _report(self, handle: int) -> None:
        child = self._children.pop(handle)
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            os.write(child.ended, str(code).encode())
        os.close(child.ended)
        os.close(handle)

    def _forget(self) -> None:
        """Close in a child what is this process's."""
        self._listener.close()
        os.close(self._lifeline)
        for caller in self._callers.values():
            caller.close()
        for handle, child in self._children.items():
            os.close(handle)
            os.close(child.ended)


def _share_pids_again() -> None:
    """Let the next child have process ids of this process's own namespace."""
    descriptor = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        ctypes.CDLL(None).setns(descriptor, CLONE_NEWPID)
    finally:
        os.close(descriptor)
