"""`edge-server models`: the registry of the runs' final models."""

import argparse
import shutil
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import RUNTIMES, Option, Subparsers, add_verbs
from edge_client.system.plain_text import print_json, print_result, print_rows, say
from edge_server.cli.commands.fleet.serve import SERVICE
from edge_server.storage.service_folder import RUNS
from schemas.errors import EdgeError, format_count

if TYPE_CHECKING:
    from edge_server.releases.registry.registry import Registry, Version

USUAL = RUNS / "registry"
COMPARED = 7  # random examples on which another runtime is tried
EXAMPLE = "home-20261121-180000"
EXAMPLES = """\
examples:
  edge-server models list
  edge-server models show home-20261121-180000
  edge-server models diff home-20261121-180000 home-20261122-180000
  edge-server models set-active home-20261121-180000
  edge-server models export home-20261121-180000 --for openvino
  edge-server models forget pi-kitchen runs/home-20261121-180000

A finished run registers its final models under its folder's name in the folder `registry` next to its run
folder (`runs/registry`, unless --out names another place). The registry holds each tier's ONNX file, its
signature, the global model and a model card, README.md; the run folder may be deleted.
The active version is the one that devices should serve: `edge-server rollout` brings it to them, and a
finished rollout makes its version the active one.
"""


REGISTRY = Option(
    "--registry",
    Path,
    "where the registry lies (default: that of the service which --service or $EDGE_SERVICE names, "
    f"else {USUAL})",
    metavar="DIR",
)


def register(subparsers: Subparsers) -> None:
    verbs = add_verbs(
        subparsers,
        "models",
        REGISTRY,
        SERVICE,
        help="the registry of models: list, compare, name the active one",
        description="The registry of what runs have ended with.",
        examples=EXAMPLES,
    )
    version = Option("version", metavar="VERSION")
    verbs.add("list", list_versions, help="every version, the newest first", example="list")
    verbs.add(
        "show",
        show_version,
        version,
        help="a version's model card",
        example=f"show {EXAMPLE} > card.md",
    )
    two = (Option("before", metavar="VERSION"), Option("after", metavar="VERSION"))
    example = f"diff {EXAMPLE} home-20261122-180000"
    verbs.add("diff", diff, *two, help="what two versions differ in", example=example)
    example = f"set-active {EXAMPLE} && edge-server rollout --broker mqtt://server:1883"
    about = "name the version that devices are meant to serve"
    verbs.add("set-active", set_active, version, help=about, example=example)
    about = "solve a finished run's heads without a device, and delete what the run keeps of it"
    device = Option("device", metavar="DEVICE")
    where = Option("run", Path, "run folder of a recipe that keeps sums: ridge, class-means", metavar="RUN")
    example = f"forget pi-kitchen runs/{EXAMPLE}"
    verbs.add("forget", forget, device, where, help=about, example=example)
    about = "write a version's tiers, or an ONNX file, as another runtime takes them"
    source = Option("model", Path, "a version of the registry, or an ONNX file", metavar="MODEL")
    runtime = Option("--for", help=RUNTIMES, metavar="RUNTIME", required=True, dest="runtime")
    out = Option("--out", Path, "folder for the files (default: exported)", Path("exported"), "DIR")
    example = f"export {EXAMPLE} --for ncnn --out ncnn"
    verbs.add("export", export, source, runtime, out, help=about, example=example)
    run = Option("run", Path, "run folder", metavar="RUN")
    name = Option("--name", help="(default: the run's name)", metavar="VERSION")
    about = "enter the models of a run that is over"
    verbs.add("add", add_run, run, name, help=about, example=f"add runs/{EXAMPLE}")


def registry_folder(args: argparse.Namespace) -> Path:
    """The folder of `--registry`, else the registry of the service that the user names, else `USUAL`."""
    from edge_server.storage.service_folder import named_service_folder

    named = named_service_folder(args.service)
    own = named and named.registry
    return args.registry or (own if own and own.is_dir() else USUAL)


def list_versions(args: argparse.Namespace) -> int:
    registry = _registry(args)
    versions, active = registry.versions(), registry.actives()
    document = [_document(version, active) for version in versions]
    columns = ("version", "active", "network", "recipe", "rounds", "tiers", "test", "signed", "entered")
    return print_rows(args, document, columns, [_line(version, active) for version in versions])


def _line(version: "Version", active: dict[str, str]) -> tuple[str, ...]:
    from edge_server.config.units import UNKNOWN, leading_text

    return (
        version.version,
        "active" if _is_active(version, active) else "",
        version.model,
        version.recipe or UNKNOWN,
        str(version.round),
        ",".join(str(tier.tier) for tier in version.tiers),
        leading_text(version.test_metrics),
        version.key[:16] if version.key else "no",
        f"{datetime.fromtimestamp(version.created_at, UTC):%Y-%m-%d %H:%M}",
    )


def _is_active(version: "Version", active: dict[str, str]) -> bool:
    return active.get(version.federation) == version.version


def _document(version: "Version", active: dict[str, str]) -> dict[str, object]:
    return {**version.model_dump(mode="json"), "active": _is_active(version, active)}


def show_version(args: argparse.Namespace) -> int:
    registry = _registry(args)
    version = registry.version(args.version)
    if args.format == "json":
        document = _document(version, registry.actives())
        print_json({**document, "folder": str(registry.version_path(version.version))})
        return 0
    say((registry.version_path(version.version) / "README.md").read_text(), end="")
    return 0


def diff(args: argparse.Namespace) -> int:
    from edge_server.releases.registry.difference import differences, weight_distance

    registry = _registry(args)
    before, after = registry.version(args.before), registry.version(args.after)
    found = differences(before, after)
    apart = weight_distance(registry.version_path(before.version), registry.version_path(after.version))
    document = {"differences": [asdict(difference) for difference in found], "weights_apart": apart}
    rows = [(difference.what, difference.before, difference.after, difference.change) for difference in found]
    rows += [("weights apart (L2)", "", "", f"{apart:.3g} of the first")] if apart is not None else []
    return print_rows(args, document, ("", before.version, after.version, "change"), rows)


def set_active(args: argparse.Namespace) -> int:
    registry = _registry(args)
    version = registry.version(args.version)
    before = registry.active(version.federation)
    registry.set_active(version)
    document = {"federation": version.federation, "active": version.version, "before": before}
    was = f", before {before}" if before not in (None, version.version) else ""
    line = f"{version.federation}: active is {version.version}{was}"
    return print_result(args, document, line, "Devices get it with `edge-server rollout`.")


def add_run(args: argparse.Namespace) -> int:
    from edge_server.releases.registry.register import enter_run
    from edge_server.releases.registry.registry import Registry

    registry = registry_folder(args)
    version = enter_run(Registry(registry), args.run, name=args.name)
    line = f"{version.version}: {format_count(len(version.tiers), 'tier')}, in {registry / version.version}"
    return print_result(args, version.model_dump(mode="json"), line)


def export(args: argparse.Namespace) -> int:
    """Write files for another runtime if its answers are onnxruntime's; all of a version, or none."""
    from edge_client.inference import runtimes
    from edge_client.inference.benchmark import make_noise
    from edge_client.inference.onnx_model import load_model
    from edge_client.storage.atomic_files import usable_folder

    runtime, rows = runtimes.find_runtime(args.runtime), []
    with tempfile.TemporaryDirectory(prefix="edge-export-") as folder:
        for path in _exported_files(args):
            model = load_model(path, threads=1)
            noise = make_noise(model, COMPARED)
            apart = runtimes.compare_elsewhere(args.runtime, path, noise, model.session, Path(folder))
            if not apart <= runtimes.TOLERANCE:
                limit = f"at most {runtimes.TOLERANCE:g} is allowed"
                raise EdgeError(
                    f"{path.name}: {runtime.title} and onnxruntime are {apart:.2g} apart, {limit}"
                )
            rows.append((str(args.out / f"{path.stem}{runtime.suffix}"), f"{apart:.1g}"))
        shutil.copytree(folder, usable_folder(args.out, option="--out"), dirs_exist_ok=True)
    document = {"runtime": args.runtime, "files": [{"file": file, "apart": apart} for file, apart in rows]}
    return print_rows(args, document, ("file", "apart from onnxruntime"), rows)


def _exported_files(args: argparse.Namespace) -> list[Path]:
    """The ONNX file that the user names, or the tiers of a version."""
    if args.model.suffix == ".onnx":
        return [args.model]
    registry = _registry(args)
    return sorted(registry.version_path(registry.version(str(args.model)).version).glob("tier-*.onnx"))


def forget(args: argparse.Namespace) -> int:
    from edge_server.coordinator.removal import forget_device

    removal = forget_device(args.run, args.device)
    document = {**asdict(removal), "files": [str(path) for path in removal.files]}
    left = format_count(len(removal.left), "device")
    line = f"{args.device} is taken out: version {removal.round} has the heads of {left}"
    return print_result(
        args,
        document,
        line,
        f"Earlier versions of this run are deleted; `edge-server models add {args.run} --name NAME` enters "
        "this one. Models that were registered or delivered before still know the device.",
    )


def _registry(args: argparse.Namespace) -> "Registry":
    from edge_server.releases.registry.registry import Registry

    return Registry.existing(registry_folder(args))
