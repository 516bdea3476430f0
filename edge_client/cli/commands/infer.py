"""`edge-client infer`: classify images, recordings or rows with an exported model."""

import argparse
import contextlib
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from edge_client.cli import device_options, options
from edge_client.system.plain_text import print_json, print_table, say
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_client.data.dataset import Inputs
    from edge_client.data.tasks.learning_task import Answers
    from edge_client.inference.onnx_model import LoadedModel
    from edge_client.inference.queries import NamedExamples

HELP = "classify images, recordings or rows with an exported model"
EXAMPLES = """\
inputs:
  image files (PNG, JPEG...) are converted to grey or colour and resized for the model
  recordings (WAV; with the extra `audio` FLAC, OGG, MP3...) are resampled for the model; each piece of its
    length has an answer
  a folder means the image files or recordings in it; if its sub-folders are named like the model's classes,
    accuracy is reported, too
  .npy holds raw examples: [N, C, H, W], [N, H, W, C], one image [C, H, W], or another shape of the model
  .npz holds images; if it also holds labels, accuracy is reported, too
  csv:PATH?label=COLUMN and other tables are read as in training, their columns by name; with a label the
    figures of the task are reported, too
  yolo:FOLDER, voc:FOLDER and coco:PATH are pictures with boxes, on which a detector is measured
  digits means the test part of the shipped handwritten digits
  - reads JSON lines from standard input and writes one line for each (with --format json a JSON object):
    {"image": "<base64 of an image file>"}, {"pixels": [...]}, {"values": {"temperature": 21.4, "co2": 480}},
    {"file": "photo.png"}, each with an optional "id" and "top"; any other line is reported as an error and
    leads to exit code 1

examples:
  edge-client infer tier-1.onnx photo.png
  edge-client infer tier-1.onnx *.png --top 3 --format json
  edge-client infer tier-1.onnx test-set.npz
  edge-client infer tier-1.onnx folder-of-photos
  camera | edge-client infer tier-1.onnx - --format json
  edge-client infer tier-1.onnx photo.png --runtime openvino
  edge-client infer detector.onnx folder-of-photos --draw found
  edge-client infer tier-1.onnx photo.png --trust signing.pub --exported-by server
"""


BATCH = 32  # examples with which providers are tried: folders and archives are what takes time
OPTIONS = (
    options.Option("model", Path, "a model of `run` or of the server", metavar="MODEL.onnx"),
    options.Option(
        "inputs",
        Path,
        "images, recordings, folders, .npy or .npz files, digits, or - for JSON lines",
        metavar="INPUT",
        nargs="+",
    ),
    options.Option("--top", int, "classes per example (default: 1)", 1, "K", options.AT_LEAST_1),
    options.count_option("--threads", "threads to use (default: as many as useful)"),
    device_options.PROVIDERS,
    options.TRUST,
    options.Option(
        "--runtime",
        help=f"run there, and say how far its answers are from onnxruntime's: {options.RUNTIMES}",
        metavar="NAME",
    ),
    options.Option("--draw", Path, "write each picture with its boxes there, as PNG", metavar="FOLDER"),
    options.Option(
        "--exported-by",
        help="with --trust: only an export by `server` itself, or by the device of that name",
        metavar="NAME",
    ),
)


def execute(args: argparse.Namespace) -> int:
    """Classify all inputs and print one result per example."""
    from edge_client.inference.providers.loading import load_on_provider
    from edge_client.inference.providers.table import ProviderSettings

    if args.exported_by is not None and args.trust is None:
        raise ConfigError(
            "--exported-by says what --trust KEY.pub shall vouch for", remedy="name the key too"
        )
    trust = options.read_trust_option(args)
    model = load_on_provider(
        args.model,
        ProviderSettings(tuple(args.providers)),
        threads=args.threads,
        batch=BATCH,
        trust=trust,
        exported_by=args.exported_by,
    )
    _tell_exporter(model)
    with contextlib.ExitStack() as stack:
        if args.runtime is not None:
            model = stack.enter_context(_elsewhere(args.runtime, model))
        return _answer(args, model)


@contextlib.contextmanager
def _elsewhere(name: str, model: "LoadedModel") -> Iterator["LoadedModel"]:
    """The model in another runtime; afterwards it is said how far its answers were from onnxruntime's."""
    from edge_client.inference.runtimes import session_elsewhere

    with session_elsewhere(name, model.path, model.input_shape, model.session) as session:
        yield replace(model, session=session)
    say(f"note: {name} and onnxruntime are {session.apart:.1g} apart", file=sys.stderr)


def _answer(args: argparse.Namespace, model: "LoadedModel") -> int:
    """Classify all inputs with the model."""
    from edge_client.inference.onnx_model import said_in_one_line
    from edge_client.inference.queries import read_input

    if model.provider != "cpu":
        say(f"note: {args.model} runs on {model.provider}", file=sys.stderr)
    if Path("-") in args.inputs:
        return _answer_lines(args, model)
    answers: list[dict[str, Any]] = []
    known: list[Answers] = []
    with _drawing(args.draw, model) as pictures:
        for named in (read_input(path, model) for path in args.inputs):
            with said_in_one_line(model.path):
                predicted = model.predict(named.images)
                known += [model.answers(named.images, named.labels)] if named.labels is not None else []
            frames = named.frames or (None,) * len(predicted)
            for name, row, frame in zip(named.names, predicted, frames, strict=True):
                answers.append({"input": name, **model.result(row, top=args.top, frame=frame)})
            if pictures is not None:
                _draw(pictures, model, replace(named, frames=frames), predicted)
            for note in named.notes:
                say(f"note: {note}", file=sys.stderr)
    labelled = sum(len(part.labels) for part in known)
    metrics = model.measured_on(known)
    _print(args, model, answers, metrics=metrics, labelled=labelled)
    return 0


@contextlib.contextmanager
def _drawing(folder: Path | None, model: "LoadedModel") -> Iterator[Path | None]:
    """A folder for pictures, which come into `folder` if all inputs are answered; None without one.

    `ConfigError` for a model that finds no boxes.
    """
    from edge_client.storage.atomic_files import usable_folder

    if folder is None:
        yield None
        return
    if model.task.labels != "boxes":
        raise ConfigError(
            f"--draw is for boxes, and {model.path.name} is of the task '{model.task.name}'",
            remedy="leave --draw out",
        )
    usable_folder(folder, option="--draw")
    with TemporaryDirectory(prefix=".", dir=folder) as pictures:
        yield Path(pictures)
        for picture in Path(pictures).iterdir():
            picture.replace(folder / picture.name)


def _draw(folder: Path, model: "LoadedModel", named: "NamedExamples", answers: "Inputs") -> None:
    """Write the pictures of an input with their boxes; the second of a name is `NAME-2.png`."""
    from edge_client.inference.queries import draw_boxes

    for name, picture, row, frame in zip(named.names, named.images, answers, named.frames, strict=True):
        made = draw_boxes(picture, model.preprocessing.scale, model.boxes(row, frame), frame)
        stem = Path(name).stem
        names = (f"{stem}-{number}" if number > 1 else stem for number in itertools.count(1))
        path = next(path for each in names if not (path := folder / f"{each}.png").exists())
        path.write_bytes(made)


def _answer_lines(args: argparse.Namespace, model: "LoadedModel") -> int:
    """Classify lines of standard input; a line with an error is reported and skipped."""
    from edge_client.inference.service.json_lines import answer_line

    if len(args.inputs) > 1:
        raise ConfigError("infer: - stands for standard input, and stands alone")
    if args.draw is not None:
        raise ConfigError("--draw is for files, and - stands for standard input", remedy="leave --draw out")
    failed = False
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            answer = answer_line(line, number, model, top=args.top)
            failed = failed or "error" in answer
            say(json.dumps(answer) if args.format == "json" else _as_text(answer), flush=True)
    return 1 if failed else 0


def _as_text(answer: dict[str, Any]) -> str:
    """The result of one line for people: its id and the classes of each image, or the error."""
    if "error" in answer:
        return f"{answer['id']}  error: {answer['error']}"
    images = [_on_one_line(result) for result in answer["results"]]
    return f"{answer['id']}  {' | '.join(images)}"


def _on_one_line(result: Mapping[str, Any]) -> str:
    from edge_client.inference.queries import answer_in_words

    return "  ".join(answer_in_words(result))


def _tell_exporter(model: "LoadedModel") -> None:
    """Warn that the device, not the server, exported this signed model."""
    if model.signed is not None and model.signed.device is not None:
        says = f"exported by device {model.signed.device}, on whose word the server has signed it"
        say(f"note: {model.path}: {says}", file=sys.stderr)


def _print(
    args: argparse.Namespace,
    model: "LoadedModel",
    answers: list[dict[str, Any]],
    *,
    metrics: Mapping[str, float],
    labelled: int,
) -> None:
    if args.format == "json":
        print_json(
            {
                "model": str(args.model),
                "provenance": dict(model.provenance),
                "signed": None if model.signed is None else model.signed.model_dump(mode="json"),
                "results": answers,
                "labelled": labelled,
                "accuracy": metrics.get("accuracy"),
                "metrics": metrics,
            }
        )
        return
    rows = [(answer["input"], _on_one_line(answer)) for answer in answers]
    title = {"classes": "class", "flags": "class", "boxes": "boxes"}.get(model.task.labels, "output")
    print_table(("input", title), rows)
    known = (metric for metric in model.task.figures if metric.name in metrics)
    figures = {metric.name: f"{metric.name} {metric.text(metrics[metric.name])}" for metric in known}
    if "accuracy" in figures:
        say(f"{figures['accuracy']} on {labelled} labelled {model.examples}")
    elif figures:
        say(f"{', '.join(figures.values())} on {labelled} labelled examples")
