"""What a server says waits until its standby has what it follows from."""

from collections import deque
from collections.abc import Callable

Action = Callable[[], None]


class OutputGate:
    """Holds back actions until the entry that was the newest when they were asked for is confirmed, in order.

    `newest` returns that entry's number. An open gate holds nothing back.
    """

    def __init__(self, newest: Callable[[], int]) -> None:
        self._newest = newest
        self._waiting: deque[tuple[int, Action]] = deque()
        self._confirmed = 0
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def __call__(self, action: Action) -> None:
        """Do it now or later."""
        if not self.closed:
            action()
            return
        self._waiting.append((self._newest(), action))
        self.confirm(self._confirmed)

    def confirm(self, number: int) -> None:
        """Entries up to this number are in the copy."""
        self._confirmed = number
        while self._waiting and self._waiting[0][0] <= number:
            self._waiting.popleft()[1]()

    def open(self) -> None:
        """Hold nothing back from now on."""
        self.closed = False
        while self._waiting:
            self._waiting.popleft()[1]()
        self._confirmed = 0
