"""Simulations from Python: `edge_server.simulate`."""

import contextlib
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import reduce
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from edge_server.config import load, own_networks
from edge_server.config.config import Config
from edge_server.config.test_data import merge_tables, override_table
from edge_server.coordinator.launch import print_notices, stopped_by_signals
from edge_server.coordinator.run_start import finished_run
from edge_server.observability.snapshot import WatcherGroup
from edge_server.simulation.inputs import as_simulated
from edge_server.simulation.library import run
from edge_server.simulation.simulator import simulate as run_simulation
from edge_server.storage.service_folder import run_folder
from schemas.errors import ConfigError, EdgeError

if TYPE_CHECKING:
    from torch import nn


Value = str | int | float | bool | list[object]


class RunFailed(EdgeError):
    """A simulation could not go on; the message says why, and names the run folder."""


def simulate(
    source: Config | str | Path = "fedavg",
    *overrides: str,
    data: Any = None,
    test_data: Any = None,
    model: "nn.Module | Callable[..., nn.Module] | str | None" = None,
    out: str | Path | None = None,
    resume: bool = False,
    export: bool = True,
    on_round: run.OnRound | None = None,
    progress: bool = True,
    **settings: Value,
) -> run.Run:
    """Simulate a federation to its end, and return the run.

    `source` is a recipe, a federation file or a `Config`. `overrides` are `key=value` words as on the command
    line, `settings` the same with underscores: `num_clients=10`.

    `data` is `(x, y)`, a dataset of such pairs, or the name of a source; arrays are written beside the run
    folder, as the source `npz:PATH`. Without `test_data` a fifth of them is for tests. `model` is a network's
    name, a `torch.nn.Module` whose weights the run starts from, or a function `(input_shape, num_classes)`
    that makes one. One that only this program has trains in this process.

    `on_round` is called with each round's `RoundRecord`; what it raises ends the run. `progress` shows a bar
    in a notebook and a line on a terminal. `resume` continues the run in the folder `out`; one that has
    finished there is returned as it is. `export` writes the tiers' ONNX files.

    Raises `ConfigError` for wrong settings and `RunFailed` for a run that cannot go on. SIGINT and SIGTERM
    close the run folder, then end the program as they do without a run.
    """
    if resume and out is None:
        raise ConfigError("resume needs out, the folder of the run to continue")
    with _network(model) as network:
        words = [*(f"{key.replace('_', '-')}={word(value)}" for key, value in settings.items()), *overrides]
        words += [] if network is None else [f"model.name={json.dumps(network)}"]
        config = _config(source, words)
        folder = _folder(source, config, out)
        if data is not None:
            words.append(f"data.source={json.dumps(data_source(data, test_data, folder.parent))}")
            config = _config(source, words)
        config = _in_this_process(config, network)
        if not resume and out is not None and finished_run(folder, as_simulated(config)) is not None:
            return run.load_run(folder)
        watchers = [run.progress_watcher(sys.stderr)] if progress else []
        if on_round is not None:
            watchers.append(run.EachRound(on_round, _rounds_in(folder) if resume else 0))
        received: list[signal.Signals] = []
        try:
            summary = run_simulation(
                config,
                out=folder,
                watcher=WatcherGroup(*watchers),
                resume=resume,
                export=export,
                stopped=lambda end: _stop_on_signals(end, received),
            )
        except run.CallbackFailed as failed:
            raise failed.error from None
    if received:
        if summary.outcome == "interrupted" and config.clients.mode == "rounds":
            print_notices([f"interrupted: simulate(..., out={str(folder)!r}, resume=True) continues"])
        _raise_again(received[0])
    if summary.outcome == "failed":
        raise RunFailed(f"{summary.detail}; the run is in {folder}")
    return run.load_run(folder)


def word(value: Value) -> str:
    """A value as in `key=value` words; numpy's numbers and paths are possible too."""
    return value if isinstance(value, str) else json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _config(source: Config | str | Path, words: list[str]) -> Config:
    if not isinstance(source, Config):
        return load.load_config(str(source), words)
    table = source.model_dump(mode="json", by_alias=True, exclude_none=True)
    return load.check_config(reduce(merge_tables, map(override_table, words), table), "the configuration")


def _network(model: Any) -> AbstractContextManager[str | None]:
    if model is None or isinstance(model, str):
        return contextlib.nullcontext(model)
    return own_networks.offer_network(model)


def _in_this_process(config: Config, network: str | None) -> Config:
    """A network that no other process can have trains and is tested in this one; results are the same."""
    name = network or config.model.name
    if config.simulation.engine != "local" and own_networks.is_object(name):
        raise ConfigError(
            "other machines do not have this network", key="[simulation] engine", remedy="move it to a module"
        )
    why = own_networks.only_here(name)
    if not why:
        return config
    if config.simulation.workers != 1:
        print_notices([f"trains in this process: {why}; in a module of its own, it trains in several"])
    one = config.simulation.model_copy(update={"workers": 1})
    here = config.federation.model_copy(update={"testers": 0})
    return config.model_copy(update={"simulation": one, "federation": here})


def _folder(source: Config | str | Path, config: Config, out: str | Path | None) -> Path:
    """The folder `out`, or a new one that is named as the command names it."""
    stated = isinstance(source, Config) or "name" in config.federation.model_fields_set
    name = config.federation.name if stated else Path(source).stem  # type: ignore[arg-type]
    folder = run_folder(Path(out) if out is not None else None, name)
    if out is not None:
        return folder
    # Short runs may begin in the same second.
    further = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(path for path in chain([folder], further) if not path.exists())


def _rounds_in(folder: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(1 for _ in (folder / "history.jsonl").open("rb"))
    return 0


@contextlib.contextmanager
def _stop_on_signals(end: Callable[[], None], received: list[signal.Signals]) -> Iterator[None]:
    """SIGINT and SIGTERM end the run, and are noted."""

    def stop_for(number: signal.Signals) -> Callable[[], None]:
        def stop() -> None:
            received.append(number)
            end()

        return stop

    with stopped_by_signals(stop_for(signal.SIGINT), stop_for(signal.SIGTERM)):
        yield


def _raise_again(number: signal.Signals) -> None:
    """Let a signal do what it does without a run; the default of SIGTERM runs no `finally`."""
    if signal.getsignal(number) is signal.SIG_DFL:
        raise SystemExit(128 + number)
    signal.raise_signal(number)


def data_source(data: Any, test_data: Any, folder: Path) -> str:
    """The source that holds these examples; equal ones are written into `folder` once.

    Each is `(x, y)`, or a sequence of such pairs, as a torch Dataset is. Raises `ConfigError` for others.
    """
    if isinstance(data, str):
        if test_data is not None:
            raise ConfigError(
                "goes with arrays in data; a source has its test part (data.md)", place="test_data"
            )
        return data
    if test_data is None:
        arrays = _arrays(data, "data", "images", "labels")
    else:
        arrays = {
            **_arrays(data, "data", "x_train", "y_train"),
            **_arrays(test_data, "test_data", "x_test", "y_test"),
        }
    arrays = _with_numbers(arrays)
    path = folder.resolve() / f"data-{_digest(arrays)}.npz"
    if not path.exists():
        _write(path, arrays)
    return f"npz:{path}"


def _arrays(data: Any, what: str, images: str, labels: str) -> dict[str, NDArray[Any]]:
    if isinstance(data, LabelledData):
        raise ConfigError("pass (data.images, data.labels), or the name of the source", key=what)
    try:
        pair = data if isinstance(data, (tuple, list)) and len(data) == 2 else _stack_pairs(data)
        x, y = map(_array, pair)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ConfigError(f"{what}: pass (x, y), or a dataset of such pairs: {error}") from error
    if x.dtype == object:
        raise ConfigError("the examples are not numbers of one shape", place=what)
    return {images: x, labels: y}


def _stack_pairs(data: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """The examples of a sequence of pairs; a torch Dataset need not end by itself."""
    examples, labels = zip(*(data[place] for place in range(len(data))), strict=True)
    return np.stack([_array(example) for example in examples]), np.stack([_array(label) for label in labels])


def _array(value: Any) -> NDArray[Any]:
    """An array of numpy; a tensor may be on another device."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _with_numbers(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Labels that are words become places in `class_names`, as a source needs them."""
    words = {name: array.astype(str) for name, array in arrays.items() if array.dtype.kind in "OUS"}
    if not words:
        return dict(arrays)
    names = np.unique(np.concatenate(list(words.values())))
    numbers = {name: np.searchsorted(names, array) for name, array in words.items()}
    return {**arrays, **numbers, "class_names": names}


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    part = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(part, **arrays)  # type: ignore[arg-type]
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}", place="data") from error
    finally:
        part.unlink(missing_ok=True)
