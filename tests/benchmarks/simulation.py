"""Time of a simulation over its training alone and over Flower's engine; cost of very many devices.

AdaFL's MNIST set-up: 100 clients of 600 images, `mlp`, 5 local epochs of batch 10, a tenth of the clients per
round, which is 300 steps for each. Floor, our simulation and Flower take turns, and each turn gives one ratio
of each kind.

The floor is the same steps in plain torch in the same number of processes, and nothing else. Flower's engine
runs the loop of the floor in its clients, one core each; it does not test the model, we test it every round.
Only the rounds after the first are compared, since both start their processes in the first one. The floor and
Flower use torch's plain step; our step is recorded, including the optimizer's kernels, with bit-identical
results (`edge_client/training/step_capture.py`).
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.training.loop import single_thread, train
from edge_client.training.step_capture import Recorder
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.simulation.simulator import simulate
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec
from tests.benchmarks.bare_loop import bare_seconds
from tests.benchmarks.figure import Figure, paired
from tests.benchmarks.flower.environment import Environment, NotInstalled, default_folder, installed
from tests.benchmarks.flower_simulation.engine import FlowerFailed, round_seconds
from tests.benchmarks.options import Options
from tests.benchmarks.virtual_devices import Rounds, measure

AREA = "simulation"
WORKERS = 2
MB = 1e6


def settings(
    data_root: str, rounds: int, workers: int, *, source: str = "MNIST", clients: int = 100
) -> Config:
    """AdaFL section 3.1, with FedAvg's constant fraction, so that all rounds have equally many steps."""
    words = [
        f"data.source={source}",
        f'data.data-root="{data_root}"',
        'data.partition="shards"',
        "data.shards=2",
        "model.name=mlp",
        f"num-clients={clients}",
        "clients.fraction=0.1",
        f"rounds={rounds}",
        "training.optimizer=sgd",
        "learning-rate=0.01",
        "training.momentum=0.5",
        "local-epochs=5",
        "batch-size=10",
        f"workers={workers}",
    ]
    return load_config("fedavg", words)


def simulated_rounds(config: Config) -> tuple[float, list[float]]:
    """Wall seconds of a simulation (processes, data, tests, report, without ONNX files) and of its rounds."""
    watcher = Rounds()
    with tempfile.TemporaryDirectory(prefix="edge-bench-") as folder:
        started = time.perf_counter()
        summary = simulate(config, out=Path(folder) / "run", watcher=watcher, export=False)
        seconds = time.perf_counter() - started
    if summary.outcome != "finished":
        raise RuntimeError(f"the simulation has {summary.outcome}: {summary.detail}")
    return seconds, watcher.seconds


def figures(options: Options) -> list[Figure]:
    """Figures of steps, of rounds over the floor and Flower, and of very many devices."""
    mnist = (options.data_root / "MNIST").exists()
    source = "MNIST" if mnist and not options.quick else "digits"
    rounds, turns = (2, 1) if options.quick else (4, 2)
    config = settings(str(options.data_root), rounds, WORKERS, source=source, clients=100 if mnist else 20)
    return [
        recorded_step(config, pairs=1 if options.quick else 5),
        *over_others(config, turns=turns, quick=options.quick),
        *crowd(2_000 if options.quick else 100_000, options.folder),
    ]


def recorded_step(config: Config, pairs: int) -> Figure:
    """One client's epochs in this process, on one core: recorded steps over plain ones."""
    data = load_source(config.data.source or "digits", data_root=config.data.data_root).subset(range(600))
    plan = TrainingPlan(
        learning_rate=config.training.learning_rate,
        momentum=config.training.momentum,
        batch_size=config.training.batch_size,
        local_epochs=config.training.local_epochs,
        seed=0,
    )
    recorder = Recorder()
    with single_thread():
        seconds = _client(data, config.model.name, plan)
        # A process records once, so recording is not part of a step.
        seconds(recorder)
        ratios, taken = paired(pairs, lambda: seconds(None), lambda: seconds(recorder))
    return Figure(
        AREA,
        "a recorded step over a plain one",
        "",
        ratios,
        detail="bit-identical results; one client's 5 epochs of batch 10 on one core",
        raw={"seconds": taken},
    )


def _client(data: LabelledData, name: str, plan: TrainingPlan) -> Callable[[Recorder | None], float]:
    spec = ModelSpec(name=name, input_shape=data.input_shape, num_classes=data.num_classes)
    module = build_model(spec, seed=0)

    def seconds(recorder: Recorder | None) -> float:
        started = time.perf_counter()
        train(module, data, plan, recorder=recorder)
        return time.perf_counter() - started

    return seconds


def over_others(config: Config, *, turns: int, quick: bool) -> list[Figure]:
    """A simulation over the bare loop, and a round of Flower's engine over a round of ours."""
    floors, ours, its = list[float](), list[tuple[float, list[float]]](), list[list[float]]()
    environment, why = _flower(quick)
    for _ in range(turns):
        floors.append(bare_seconds(config, workers=WORKERS))
        ours.append(simulated_rounds(config))
        if environment is not None and not why:
            try:
                its.append(round_seconds(config, Path(environment.program("python")), workers=WORKERS))
            except FlowerFailed as error:
                its, why = [], f"Flower: {error}"
    seconds, rounds = zip(*ours, strict=True)
    over_floor = Figure(
        AREA,
        "wall time over the training alone",
        "",
        tuple(mine / floor for mine, floor in zip(seconds, floors, strict=True)),
        target=1.1,
        detail=f"{config.federation.rounds} rounds of 10 x 300 steps, two cores, with process starts",
        raw={"floor": floors, "seconds": seconds},
    )
    return [over_floor, _over_flower(environment, its, rounds, why)]


def _flower(quick: bool) -> tuple[Environment | None, str]:
    """Flower's environment, or the reason why there is none."""
    if quick:
        return None, "left out of a quick run: starting Ray alone takes longer"
    try:
        return installed(default_folder()), ""
    except NotInstalled as error:
        return None, f"Flower: {error}"


def _over_flower(
    environment: Environment | None, its: Sequence[list[float]], ours: Sequence[list[float]], why: str
) -> Figure:
    name, target = "times faster per round than Flower's engine", 2.0
    if environment is None or not its:
        return Figure(AREA, name, "", (), target, "at least", reason=why)
    pairs = list(zip(its, ours, strict=True))
    versions = f"flwr {environment.version('flwr')}, ray {environment.version('ray')}"
    last, mine = pairs[-1]
    return Figure(
        AREA,
        name,
        "",
        tuple(statistics.median(flower[1:]) / statistics.median(own[1:]) for flower, own in pairs),
        target,
        "at least",
        detail=f"{versions}; last pair: {statistics.median(last[1:]):.2f} s per round after {last[0]:.1f} s "
        f"for the first, ours {statistics.median(mine[1:]):.2f} s after {mine[0]:.1f} s",
        reason="a round is mostly training on both sides: only recorded steps make ours shorter",
        raw={"flower": its, "ours": ours},
    )


def crowd(devices: int, folder: Path | None) -> list[Figure]:
    """Very many virtual devices, ten of which train per round."""
    few, many = measure(devices // 100, folder), measure(devices, folder)
    each = (many.peak_bytes - few.peak_bytes) / (many.devices - few.devices)
    found = f"{devices:,} virtual devices on one machine with the virtual clock; ten of them train per round"
    raw = {"rounds": many.rounds, "few": few.rounds}
    return [
        Figure(AREA, f"a round of {devices:,} devices", "s", many.rounds[1:], detail=found, raw=raw),
        Figure(AREA, f"memory of {devices:,} devices", "MB", (many.peak_bytes / MB,), detail=found),
        Figure(
            AREA, "memory of one idle device", "kB", (each / 1e3,), detail="from the difference of two crowds"
        ),
    ]
