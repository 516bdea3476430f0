"""Processes that accept orders and answer in JSON lines, and the crowd of devices that they run."""

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
    """A process ended, or sent nothing for too long."""


class Child:
    """A child process."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self._process, self._name = process, name
        self.pid = process.pid

    def order(self, **fields: Any) -> None:
        """Send an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields).encode() + b"\n")

    async def hear(self, *events: str) -> dict[str, Any]:
        """Wait for the next of these events; others are dropped."""
        assert self._process.stdout is not None
        while True:
            line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S)
            if not line:
                raise Failed(f"the {self._name} ended before it sent {' or '.join(events)}")
            reported: dict[str, Any] = json.loads(line)
            if reported["event"] in events:
                return reported


@contextlib.asynccontextmanager
async def child(module: str, *words: str) -> AsyncIterator[Child]:
    """Run a module of this package as a process that ends with the block."""
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
    """All devices, spread evenly over the processes, as are those of each tier."""

    def __init__(self, children: Sequence[Child]) -> None:
        self.children = tuple(children)
        self.size = 0

    async def join(self, count: int) -> float:
        """Connect `count` more devices; return the seconds."""
        numbers = range(self.size, self.size + count)
        for index, process in enumerate(self.children):
            process.order(do="join", numbers=[n for n in numbers if n // 5 % len(self.children) == index])
        self.size += count
        return max([(await process.hear("joined"))["seconds"] for process in self.children])

    async def all_do(self, action: str, answer: str, **more: Any) -> list[dict[str, Any]]:
        """Send the same order to all processes, and wait for the answers."""
        for process in self.children:
            process.order(do=action, **more)
        return await self.all_answers(answer)

    async def all_answers(self, event: str) -> list[dict[str, Any]]:
        """Wait for an event of every process."""
        return [await process.hear(event) for process in self.children]

    async def counts(self) -> Counter[str]:
        """Counters of all devices since the last call, including `lost` connections."""
        total: Counter[str] = Counter()
        for reported in await self.all_do("counts", "counts"):
            total.update(reported["counts"])
            total["lost"] += reported["lost"]
            total["memory"] += reported["memory"]
        return total


@contextlib.asynccontextmanager
async def crowd(host: str, port: int, federation: str, *, processes: int = 2) -> AsyncIterator[Crowd]:
    """Start processes for devices of a federation, without any device yet."""
    async with contextlib.AsyncExitStack() as stack:
        words = (host, str(port), federation)
        yield Crowd([await stack.enter_async_context(child("process", *words)) for _ in range(processes)])
