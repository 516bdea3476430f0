"""One device's work in its own process, which reports the cost: `client_work WORK FOLDER`.

Each work is done once on something small first, so that libraries have loaded everything they load once; the
figure is the growth of the resident set after that. Chunks, files and training are those of a device; only
its connection is missing.
"""

import ctypes
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import nn

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.local import LocalData
from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.index_sets import extract
from edge_client.pruning.surgery import arrays_of
from edge_client.storage.blob_store import BlobStore
from edge_client.system.process_memory import keep_freed_memory
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.tensors.chunks import BlobRef, decode_chunk, encode_json
from schemas.values import ModelSpec
from tests.benchmarks.resident import forget_peak, peak_rss, rss

LARGE = {"large": (2048, 6), "small": (64, 2), "tiny": (1024, 2)}
"""Width and number of the inner layers: 101 MB, 40 kB and 8.5 MB of float32."""


def _tower(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    width, count = LARGE[name]
    inner = [nn.Linear(width, width) for _ in range(count)]
    return nn.Sequential(
        nn.Flatten(), nn.Linear(int(np.prod(input_shape)), width), *inner, nn.Linear(width, num_classes)
    )


def large(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A network of 25.2 M parameters."""
    return _tower("large", input_shape, num_classes)


def small(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A small network for the warm-up."""
    return _tower("small", input_shape, num_classes)


def tiny(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A network of 2.1 M parameters for quick runs."""
    return _tower("tiny", input_shape, num_classes)


def prepare(folder: Path, name: str) -> None:
    """Store a server's blobs of the network in `folder`, and the task that refers to them."""
    model = ModelSpec(name=f"{__name__}:{name}", input_shape=(1, 4, 4), num_classes=10)
    _offer(folder, model, SubModelSpec(), TrainingPlan(learning_rate=0.1, batch_size=4, local_epochs=0))


def _offer(folder: Path, model: ModelSpec, spec: SubModelSpec, plan: TrainingPlan) -> None:
    store, module = BlobStore(folder / "server", durable=False), build_model(model)
    channel_map = trace_channels(module, model.input_shape)
    state = store.put_groups({"model": extract(arrays_of(module), spec, channel_map)})
    task = TrainTask(
        federation="home", run="run-1", round=1, attempt=1, tier=1, ratio=0, model=model,
        spec=spec, training=plan, blobs={"state": state,
        "channel-map": store.put_blob(encode_json(channel_map))},
    )  # fmt: skip
    (folder / "task.json").write_text(task.model_dump_json())


def travel(folder: Path) -> dict[str, int]:
    """Receive the task's blobs chunk by chunk, answer without training, read every chunk of the answer."""
    task = TrainTask.model_validate_json((folder / "task.json").read_bytes())
    server, place = BlobStore(folder / "server", durable=False), _place(folder, _examples((1, 4, 4), 8))
    for ref in task.blobs.values():
        _carry(server, place.store, ref)
    update = do_training(task, place, on_epoch=lambda _: None, should_stop=lambda: False)
    _carry(place.store, BlobStore(folder / "arrived", durable=False), update.blob)
    return {"model": task.blobs["state"].size}


def _carry(sender: BlobStore, receiver: BlobStore, ref: BlobRef) -> None:
    for index in range(ref.chunks):
        chunk = decode_chunk(sender.read_frame(ref, index))
        receiver.write_chunk(ref, chunk.index, chunk.data)
    if not receiver.verify(ref):
        raise RuntimeError(f"{ref.digest} did not arrive")


def _place(folder: Path, data: LabelledData) -> TaskContext:
    code = frozenset(f"{__name__}:{name}" for name in LARGE)
    store = BlobStore(folder / "blobs", durable=False)
    return TaskContext("pi", store, LocalData(data, data.subset([0])), folder / "models", model_code=code)


def _examples(shape: tuple[int, ...], count: int) -> LabelledData:
    rng = np.random.default_rng(0)
    return make_labelled_data(rng.integers(0, 255, (count, *shape), dtype=np.uint8), np.arange(count) % 10)


def measured(work: Callable[[], dict[str, int]]) -> dict[str, int]:
    """The result of `work`, and `growth`: the peak resident set minus that before it, in bytes."""
    gc.collect()
    # Memory that was freed but not given back would hide the same amount of growth.
    ctypes.CDLL(None).malloc_trim(0)
    forget_peak()
    before = rss() or 0
    reported = work()
    return {**reported, "growth": (peak_rss() or 0) - before}


def main() -> None:
    """Do one work and print its figures as JSON."""
    work, folder, *more = sys.argv[1:]
    # `edge-client run` does this first; the cost model assumes it.
    keep_freed_memory()
    if work == "prepare":
        prepare(Path(folder), more[0])
    else:
        travel(Path(folder) / "first")
        print(json.dumps(measured(lambda: travel(Path(folder) / "then"))))


if __name__ == "__main__":
    main()
