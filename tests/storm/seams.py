"""What is simulated instead of real: clocks, threads, randomness, the MQTT client, training and exports.

Everything else that runs is the product's own. The stand-ins are put into the modules that use them, and
taken out again.
"""

import concurrent.futures
import gc
import hashlib
import itertools
import os
import queue
import random
import secrets
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import edge_client.agent.agent
import edge_client.agent.announcer
import edge_client.agent.presence
import edge_client.agent.session_runner
import edge_client.agent.worker
import edge_client.storage.blob_store
import edge_client.transport.packet_size
import edge_client.transport.paho_client
import edge_server.coordinator.aggregators.pool
import edge_server.coordinator.aggregators.worker
import edge_server.coordinator.gateway.command_runner
import edge_server.coordinator.gateway.gateway
import edge_server.coordinator.gateway.links
import edge_server.coordinator.jobs
import edge_server.coordinator.launch
import edge_server.coordinator.reception
import edge_server.coordinator.round_driver
import edge_server.coordinator.run_storage
import edge_server.coordinator.server
import edge_server.coordinator.standby.takeover
import edge_server.security.signing_key
import edge_server.storage.disk
import edge_server.storage.run_files
import edge_server.transport.broker_connection
import edge_server.transport.lease.keeper
from edge_server.coordinator import run_context
from edge_server.coordinator.device_graphs import DeviceGraphs
from edge_server.coordinator.exporter import EarlyGraphs, Exporter
from edge_server.coordinator.reporter import RunReporter
from edge_server.coordinator.validation import checker
from edge_server.observability.counters import Durations, RunCounters
from schemas.values import BoardState

PRODUCT = ("edge_client", "edge_server", "schemas")
TICK_S = 1.0
CHUNK_SIZES = (2048, 1792, 1536, 1024)
"""The supported chunk sizes, as small as the blobs here."""


class InstantQueue:
    """An inbox that never blocks; `wake` is called for each event."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._waiting: deque[Any] = deque()
        self._wake = wake

    def put(self, event: Any) -> None:
        self._waiting.append(event)
        self._wake()

    def get(self, timeout: float | None = None) -> Any:
        if not self._waiting:
            raise queue.Empty
        return self._waiting.popleft()

    get_nowait = get

    def qsize(self) -> int:
        return len(self._waiting)


class InlineExecutor:
    """A pool of threads that does everything at once, in order."""

    def __init__(self, *args: Any, **more: Any) -> None:
        pass

    def map(self, do: Callable[..., Any], *each: Iterable[Any]) -> list[Any]:
        return list(map(do, *each))

    def submit(self, do: Callable[..., Any], *args: Any) -> None:
        do(*args)

    def shutdown(self, **more: Any) -> None:
        pass

    def __enter__(self) -> "InlineExecutor":
        return self

    def __exit__(self, *why: Any) -> None:
        pass


class LaterExecutor:
    """A thread of the running process: each job is done later, one after the other."""

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        self._jobs: deque[tuple[concurrent.futures.Future[Any], Callable[[], Any]]] = deque()
        self._later = later

    def submit(self, do: Callable[..., Any], *args: Any) -> "concurrent.futures.Future[Any]":
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._jobs.append((future, lambda: do(*args)))
        if len(self._jobs) == 1:
            self._later(self._do_next)
        return future

    def _do_next(self) -> None:
        if not self._jobs:
            return
        future, do = self._jobs[0]
        _carry_out(future, do)
        self._jobs.popleft()
        if self._jobs:
            self._later(self._do_next)

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        while self._jobs:
            future, do = self._jobs.popleft()
            if cancel_futures:
                future.cancel()
            else:
                _carry_out(future, do)


def _carry_out(future: "concurrent.futures.Future[Any]", do: Callable[[], Any]) -> None:
    try:
        result = do()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class NoThread:
    """A thread whose work is done by the process that it belongs to."""

    def __init__(self, **more: Any) -> None:
        pass

    def start(self) -> None:
        pass

    join = start


class NumberedKeys:
    """Makes new signing keys, each from its number."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def __call__(self) -> Ed25519PrivateKey:
        seed = hashlib.sha256(f"key {next(self._numbers)}".encode()).digest()
        return Ed25519PrivateKey.from_private_bytes(seed)


class NoEvents:
    """The list of events, which is not part of what is tested."""

    def __init__(self, path: Any) -> None:
        pass

    def record(self, event: Any) -> None:
        pass

    def close(self) -> None:
        pass


def over(module: ModuleType, **names: Any) -> SimpleNamespace:
    """A module in which some names mean something else."""
    return SimpleNamespace(**{**vars(module), **names})


_traced: dict[Any, Any] = {}


def _trace_once(module: Any, shape: Any) -> Any:
    """The trace of the network, the same for every server."""
    if shape not in _traced:
        _traced[shape] = REAL_TRACE(module, shape)
    return _traced[shape]


REAL_TRACE = run_context.trace


class Around(Protocol):
    """What the stand-ins need of the world; the functions refer to the process that runs."""

    time: Any
    draw: random.Random
    small_chunks: bool

    def make_client(self, *args: Any, **more: Any) -> Any:
        """Instead of paho's client."""

    def make_queue(self) -> InstantQueue:
        """Instead of an inbox."""

    def make_executor(self, *args: Any, **more: Any) -> LaterExecutor:
        """Instead of a pool of threads for jobs."""

    def make_aggregator(self, begin: Any) -> Any:
        """Instead of an aggregator process."""

    def runs_here(self, holder: Any) -> bool | None:
        """Instead of a look at the processes of this machine."""

    def assemble_agent(self, settings: Any, data: Any, inbox: Any, **more: Any) -> Any:
        """Instead of `edge_client.agent.assembly.assemble`."""


@contextmanager
def in_place(around: Around) -> Iterator[None]:
    """Put the stand-ins into the product's modules."""
    put = _stand_ins(around)
    undo = [(where, name, getattr(where, name)) for where, name, _ in put]
    for where, name, value in put:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in reversed(undo):
            setattr(where, name, value)


def _stand_ins(around: Around) -> list[tuple[Any, str, Any]]:
    draw = around.draw
    hexes = over(secrets, token_hex=lambda n=8: f"{draw.getrandbits(8 * n):0{2 * n}x}")
    modules = [m for name, m in sorted(sys.modules.items()) if name.partition(".")[0] in PRODUCT]
    clocks = [(m, "time", around.time) for m in modules if vars(m).get("time") is time]
    luck = [(m, "random", draw) for m in modules if vars(m).get("random") is random]
    tokens = [(m, "secrets", hexes) for m in modules if vars(m).get("secrets") is secrets]
    # A default argument was read before its module's clock was exchanged.
    defaults = [(f.__init__, "__defaults__", (around.time.monotonic,)) for f in (RunCounters, Durations)]
    return [*clocks, *defaults, *luck, *tokens, *_threads(around), *_network(around), *_work(around)]


def _threads(around: Around) -> list[tuple[Any, str, Any]]:
    queues = over(queue, SimpleQueue=around.make_queue)
    inline = (
        checker,
        edge_server.storage.run_files,
        edge_server.storage.disk,
        edge_client.storage.blob_store,
    )
    return [
        (edge_server.coordinator.reception, "queue", queues),
        (edge_client.agent.agent, "queue", queues),
        (edge_server.coordinator.gateway.gateway, "queue", queues),
        (edge_server.transport.lease.keeper, "queue", queues),
        (edge_server.transport.lease.keeper, "threading", over(threading, Thread=NoThread)),
        (edge_server.transport.lease.keeper, "runs_here", around.runs_here),
        (edge_server.coordinator.standby.takeover, "queue", queues),
        (edge_server.coordinator.jobs, "ThreadPoolExecutor", around.make_executor),
        (edge_server.coordinator.gateway.command_runner, "ThreadPoolExecutor", around.make_executor),
        *((module, "ThreadPoolExecutor", InlineExecutor) for module in inline),
        (edge_server.coordinator.run_storage, "EventRecorder", NoEvents),
        (edge_server.coordinator.server, "TICK_S", TICK_S),
        (edge_server.coordinator.gateway.gateway, "TICK_S", TICK_S),
        (edge_client.agent.agent, "TICK_S", TICK_S),
    ]


def _network(around: Around) -> list[tuple[Any, str, Any]]:
    mqtt = edge_client.transport.paho_client.mqtt
    draw = around.draw
    changed: list[tuple[Any, str, Any]] = [
        (edge_client.transport.paho_client, "mqtt", over(mqtt, Client=around.make_client)),
        (edge_client.agent.presence, "origin", lambda broker: "storm"),
        (edge_client.agent.announcer, "board_state", lambda **where: BoardState()),
        (edge_server.security.signing_key, "generate_key", NumberedKeys()),
        (edge_server.transport.broker_connection, "os", over(os, urandom=draw.randbytes)),
        (edge_client.agent.session_runner, "os", over(os, urandom=draw.randbytes)),
    ]
    if around.small_chunks:
        changed += [
            (edge_client.transport.packet_size, "CHUNK_SIZES", CHUNK_SIZES),
            (edge_server.coordinator.round_driver, "CHUNK_SIZES", CHUNK_SIZES),
            (edge_server.coordinator.gateway.gateway, "CHUNK_SIZES", CHUNK_SIZES),
            (edge_server.coordinator.gateway.links, "CHUNK_SIZES", CHUNK_SIZES),
        ]
    return changed


def _work(around: Around) -> list[tuple[Any, str, Any]]:
    return [
        (run_context, "trace", _trace_once),
        (edge_client.agent.agent, "assemble", around.assemble_agent),
        (Exporter, "export_tiers", lambda self: {}),
        (EarlyGraphs, "begin", lambda self: None),
        (DeviceGraphs, "draw_delivered", lambda self, *args, **more: {}),
        (RunReporter, "show_if_due", lambda self: None),
        (RunReporter, "show", lambda self, summary=None: None),
        *_aggregators(around),
    ]


def _aggregators(around: Around) -> list[tuple[Any, str, Any]]:
    worker = edge_server.coordinator.aggregators.worker
    return [
        (edge_server.coordinator.aggregators.pool, "AggregatorProcess", around.make_aggregator),
        # Frozen objects of a federation that is over would stay in memory.
        (worker, "gc", over(gc, freeze=lambda: None)),
        (worker, "signal", over(signal, signal=lambda *args: None)),
        (worker, "end_with_parent", lambda: None),
        (worker, "begin_inherited_log", lambda *args, **more: None),
    ]
