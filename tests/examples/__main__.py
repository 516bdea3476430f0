"""Run the guides' examples on real data and print their table: `python -m tests.examples`.

Figures are mean and standard deviation over the seeds. Models are measured on each set's own test part, as a
user would with `edge-client infer`; figures of devices on data that they hold out.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import load_model
from edge_server.cli.demo import device_name
from edge_server.config.load import load_config
from edge_server.simulation.simulator import simulate
from edge_server.storage.records import RoundRecord
from tests.edge_server.simulation.small import Quiet
from tests.examples.arrivals import arrivals, simulated_arrivals

Figures = Mapping[str, float]
TIERS = (1, 5)
CO2 = "label=CO2&time=date&ignore=Occupancy&window=30&horizon=15&stride=3&change=yes"


def digits(data: Path, folder: Path, seed: int) -> Iterator[tuple[str, float]]:
    """Accuracy on the test part, of raw recordings; each device has one speaker."""
    fields = "name={label}_{speaker}_{index}&group=speaker&test=index<5&hop=none"
    source = f"wav:{data / 'fsdd' / 'recordings'}?{fields}"
    settings = {
        "model.name": "speech-cnn",
        "data.source": source,
        "data.partition": "blocks",
        "num-clients": 6,
        "rounds": 40,
        "learning-rate": 0.05,
        "batch-size": 16,
        "local-epochs": 3,
        "federation.seed": seed,
    }
    test = load_source(source, split="test")
    run(folder / "attending", "attending", settings)
    for tier in TIERS:
        found = load_model(onnx(folder / "attending", tier), threads=1).measure_examples(
            test.images, test.labels
        )
        yield f"digits, attending, tier {tier}: accuracy", found["accuracy"]
    for tier, path in over_broker(folder / "broker", settings).items():
        found = load_model(path, threads=1).measure_examples(test.images, test.labels)
        yield f"digits, attending over a broker, tier {tier}: accuracy", found["accuracy"]
    run(folder / "fedavg", "fedavg", settings)
    whole = load_model(onnx(folder / "fedavg", 1), threads=1).measure_examples(test.images, test.labels)
    yield "digits, fedavg: accuracy", whole["accuracy"]
    last = run(folder / "fedper", "fedper", settings)
    yield "digits, fedper, each speaker's own model, own data: accuracy", last.client_metrics["accuracy"]


def room(data: Path, folder: Path, seed: int) -> Iterator[tuple[str, float]]:
    """AUROC of whether somebody is in the room, on both test files; each device has a part of the week."""
    options = "label=Occupancy&ignore=date"
    settings = room_settings(data, options, seed)
    run(folder / "simulated", "attending", settings)
    simulated = {tier: onnx(folder / "simulated", tier) for tier in TIERS}
    ways = {"room": simulated, "room over a broker": over_broker(folder / "broker", settings)}
    for way, models in ways.items():
        for name in ("datatest", "datatest2"):
            test = load_source(f"csv:{data / 'occupancy' / name}.txt?{options}")
            for tier, path in models.items():
                found = load_model(path, threads=1).measure_examples(test.images, test.labels)
                yield f"{way}, {name}, tier {tier}: auroc", found["auroc"]


def forecast(data: Path, folder: Path, seed: int) -> Iterator[tuple[str, float]]:
    """Mean absolute error in ppm of CO2 in the next quarter of an hour, beside a forecast of no change."""
    settings = {
        **room_settings(data, CO2, seed),
        "model.task": "forecasting",
        "weight-decay": 0.0,
        "rounds": 20,
    }
    run(folder, "attending", settings)
    for name in ("datatest", "datatest2"):
        test = load_source(f"csv:{data / 'occupancy' / name}.txt?{CO2}")
        found = load_model(onnx(folder, 1), threads=1).measure_examples(test.images, test.labels)
        yield f"CO2, {name}, tier 1: mae", found["mae"]
        yield f"CO2, {name}, no change: mae", float(np.abs(test.labels).mean())


def unusual(data: Path, folder: Path, seed: int) -> Iterator[tuple[str, float]]:
    """AUROC of somebody in the room, by how badly an autoencoder repeats a minute; nothing has a label."""
    settings = room_settings(data, "ignore=date,Occupancy", seed)
    settings |= {"model.name": "autoencoder", "model.task": "anomaly", "weight-decay": 0.0, "rounds": 20}
    run(folder, "attending", settings)
    for name in ("datatest", "datatest2"):
        test = load_source(f"csv:{data / 'occupancy' / name}.txt?label=Occupancy&ignore=date")
        for tier in TIERS:
            found = load_model(onnx(folder, tier), threads=1).measure_examples(test.images, test.labels)
            yield f"unusual minutes, {name}, tier {tier}: auroc", found["auroc"]


def room_settings(data: Path, options: str, seed: int) -> dict[str, object]:
    """A federation of five devices with a fifth of the week each."""
    return {
        "model.name": "mlp",
        "data.source": f"csv:{data / 'occupancy' / 'datatraining.txt'}?{options}",
        "data.partition": "blocks",
        "num-clients": 5,
        "rounds": 10,
        "local-epochs": 1,
        "learning-rate": 0.05,
        "weight-decay": 0.03,
        "federation.seed": seed,
    }


def run(folder: Path, recipe: str, settings: Mapping[str, object]) -> RoundRecord:
    """Simulate, and return the last round."""
    config = load_config(recipe, [f"{key}={value}" for key, value in settings.items()])
    simulate(config, out=folder, watcher=Quiet())
    return RoundRecord.model_validate_json((folder / "history.jsonl").read_text().splitlines()[-1])


def onnx(folder: Path, tier: int) -> Path:
    """The file of a tier."""
    return folder / "onnx" / f"tier-{tier}.onnx"


def over_broker(folder: Path, settings: Mapping[str, object]) -> Mapping[int, Path]:
    """Train with a process for each device, and return a device's model file of each tier.

    As in the simulation devices hold out nothing.
    """
    words = ["attending", *(f"{key}={value}" for key, value in settings.items()), "simulation.hold-out=0"]
    command = [sys.executable, "-m", "edge_server.cli.main", "demo", *words, "--out", str(folder)]
    subprocess.run([*command, "--dashboard", "127.0.0.1:0"], check=True, stdout=subprocess.DEVNULL)
    return {tier: folder / "devices" / device_name(tier - 1) / "models" / "model.onnx" for tier in TIERS}


EXAMPLES: Sequence[Callable[[Path, Path, int], Iterator[tuple[str, float]]]] = (
    digits,
    room,
    forecast,
    unusual,
    simulated_arrivals,
    arrivals,
)


def main(words: Sequence[str] | None = None) -> int:
    """Print a Markdown table, a row per figure."""
    parser = argparse.ArgumentParser(prog="python -m tests.examples", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    names = [example.__name__ for example in EXAMPLES]
    parser.add_argument("--only", choices=names, nargs="+", default=names, help="examples (default: all)")
    args = parser.parse_args(words)
    data = args.data.resolve()
    print("| example | mean | standard deviation | seeds |\n| --- | ---: | ---: | ---: |")
    for example in (chosen for chosen in EXAMPLES if chosen.__name__ in args.only):
        found: dict[str, list[float]] = {}
        for seed in range(args.seeds):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                for name, value in example(data, Path(folder) / "run", seed):
                    found.setdefault(name, []).append(value)
        for name, values in found.items():
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            print(f"| {name} | {statistics.fmean(values):.4g} | {spread:.2g} | {len(values)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
