"""Processes that take orders and answer in JSON lines, and the crowd of devices that some of them are."""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

PATIENCE_S = 240.0
LINE_LIMIT = 1 << 20


class Failed(Exception):
    """A process ended, or said nothing for too long."""


class Child:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self._process, self._name = process, name
        self.pid = process.pid

    def order(self, **what: Any) -> None:
        """Tell it what to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")

    async def hear(self, *events: str) -> dict[str, Any]:
        """The next of these events; others are dropped."""
        assert self._process.stdout is not None
        while True:
            line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S)
            if not line:
                raise Failed(f"the {self._name} has ended before it said {' or '.join(events)}")
            reported: dict[str, Any] = json.loads(line)
            if reported["event"] in events:
                return reported


@contextlib.asynccontextmanager
async def child(module: str, *words: str) -> AsyncIterator[Child]:
    """A module of this package as a process that ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"tests.benchmarks.crowd.{module}",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
    )
    try:
        yield Child(process, module)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


class Crowd:
    """All devices, spread evenly over the processes; of each tier about as many in each."""

    def __init__(self, children: Sequence[Child]) -> None:
        self.children = tuple(children)
        self.size = 0

    async def join(self, count: int) -> float:
        """So many more devices connect; the seconds that it took."""
        numbers = range(self.size, self.size + count)
        for place, process in enumerate(self.children):
            process.order(do="join", numbers=[n for n in numbers if n // 5 % len(self.children) == place])
        self.size += count
        return max([(await process.hear("joined"))["seconds"] for process in self.children])

    async def all_do(self, what: str, answer: str, **more: Any) -> list[dict[str, Any]]:
        """Order the same of all processes, and hear from all."""
        for process in self.children:
            process.order(do=what, **more)
        return await self.all_say(answer)

    async def all_say(self, event: str) -> list[dict[str, Any]]:
        """Hear from all."""
        return [await process.hear(event) for process in self.children]

    async def counts(self) -> Counter[str]:
        """What all devices have seen since this was asked last; `lost` connections among it."""
        total: Counter[str] = Counter()
        for reported in await self.all_do("counts", "counts"):
            total.update(reported["counts"])
            total["lost"] += reported["lost"]
            total["memory"] += reported["memory"]
        return total


@contextlib.asynccontextmanager
async def crowd(host: str, port: int, federation: str, *, processes: int = 2) -> AsyncIterator[Crowd]:
    """Processes for devices of a federation, without any device yet."""
    async with contextlib.AsyncExitStack() as stack:
        words = (host, str(port), federation)
        yield Crowd([await stack.enter_async_context(child("process", *words)) for _ in range(processes)])
