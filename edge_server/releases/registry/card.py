"""A model card: Markdown with a YAML head, as model hubs read it (Mitchell et al. 2019, "Model Cards")."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from edge_client.data.tasks.registry import learning_task
from edge_server.config import units
from edge_server.releases.registry.registry import TierModel, Version
from schemas.base import fields_of

COLUMNS = ("tier", "pruned", "file", "parameters", "MACs", "test", "on devices", "ms/image")


def model_card(version: Version, described: Mapping[str, Any]) -> str:
    """The card of a version; `described` is the manifest of its global model, or empty."""
    head = "\n".join(yaml_lines(_head(version, described)))
    return f"---\n{head}\n---\n\n{model_card_body(version, described)}"


def _head(version: Version, described: Mapping[str, Any]) -> dict[str, Any]:
    """The YAML head for programs; digests are SHA-256 in hex."""
    return {
        "version": version.version,
        "library_name": "onnx",
        **_task_tag(described),
        **fields_of(version, "federation", "run", "round", "recipe"),
        "network": version.model,
        "created": datetime.fromtimestamp(version.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "state_sha256": version.state_sha256,
        "parents": list(version.parents),
        "started_from": version.started_from.stated if version.started_from else None,
        "signed_by": version.key,
        **fields_of(version, "epsilon", "delta"),
        "tiers": [
            {
                **fields_of(tier, "tier", "ratio"),
                "file": f"tier-{tier.tier}.onnx",
                **fields_of(tier, "sha256", "bytes"),
                "test": dict(tier.test_metrics),
                "on_devices": dict(tier.device_metrics),
                "devices_serving": tier.devices_serving,
            }
            for tier in version.tiers
        ],
    }


def _task_tag(described: Mapping[str, Any]) -> dict[str, str]:
    """What model hubs call the task, where they have a word for it."""
    model = described.get("model", {})
    task, pictures = model.get("task", "classification"), len(model.get("input_shape", ())) == 3
    tags = {"classification": "image-classification"} if pictures else {}
    tags |= {"forecasting": "time-series-forecasting"}
    return {"pipeline_tag": tags[task]} if task in tags else {}


def yaml_lines(values: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A mapping as YAML, with values as JSON, which is valid YAML and unambiguous."""
    for key, value in values.items():
        if isinstance(value, list) and value:
            yield f"{indent}{key}:"
            for item in value:
                yield from _item(item, indent)
        else:
            yield f"{indent}{key}: {json.dumps(value)}"


def _item(item: Any, indent: str) -> Iterator[str]:
    if not isinstance(item, Mapping):
        yield f"{indent}  - {json.dumps(item)}"
        return
    first, *rest = yaml_lines(item, f"{indent}    ")
    yield f"{indent}  - {first.strip()}"
    yield from rest


def model_card_body(version: Version, described: Mapping[str, Any], *, files: str = "") -> str:
    """The card's text for people; `files` is the folder of the ONNX files, ending in a slash."""
    metric = next(iter(version.test_metrics), "accuracy")
    return "\n".join(
        [
            f"# {version.version}",
            "",
            f"`{version.model}` ({units.count_text(version.parameters)} parameters) after "
            f"{units.counted_text(version.round, 'round')} of federation `{version.federation}`, "
            f"one compact file per capability tier.{_takes(described.get('model', {}))}",
            "",
            "## Files",
            "",
            *_table(COLUMNS, [_row(tier, files) for tier in version.tiers]),
            "",
            f"`test` is the {metric} on the server's own test data, `on devices` the mean of the devices of"
            " that tier, on data that they did not train on.",
            "",
            "## Where it comes from",
            "",
            *_origin(version),
            "",
            "## Use",
            "",
            *_use(version, files),
            "",
            "## Limits",
            "",
            "Trained on the devices' own data, which nobody else has seen: how well it does elsewhere is not"
            " known. Before a device serves it, `edge-server rollout` lets the device compare it with what it"
            " runs.",
            "",
        ]
    )


def _takes(model: Mapping[str, Any]) -> str:
    """What a network takes and gives, as a sentence; empty where it is not known."""
    shape = " x ".join(str(size) for size in model.get("input_shape", ()))
    if not shape:
        return ""
    task, outputs = learning_task(model.get("task", "classification")), model.get("num_classes")
    answers = {"classes": f"tells {outputs} classes apart", "boxes": f"finds objects of {outputs} classes"}
    gives = answers.get(task.labels, f"gives {outputs} numbers")
    return f" It takes inputs of {shape} and {gives}: {task.summary}."


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [columns, ("---",) * len(columns), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _row(tier: TierModel, files: str) -> tuple[str, ...]:
    return (
        f"[{tier.tier}]({files}tier-{tier.tier}.onnx)",
        units.ratio_text(tier.ratio),
        units.bytes_text(tier.bytes),
        units.count_text(tier.parameters),
        units.si_text(tier.macs),
        units.leading_text(tier.test_metrics),
        f"{units.leading_text(tier.device_metrics)} ({tier.devices}{_serving_text(tier)})",
        units.number_text(tier.device_latency_ms),
    )


def _serving_text(tier: TierModel) -> str:
    """How many of its devices serve it, if some kept their earlier model."""
    serving = tier.devices_serving
    return "" if serving in (None, tier.devices) else f", {serving or 'none'} of them serving it"


def _origin(version: Version) -> list[str]:
    lines = [f"- run `{version.run}`, which {version.outcome}; recipe {version.recipe or 'of its own'}"]
    if version.state_sha256:
        lines.append(f"- global model `{version.state_sha256}`, in `model/`")
    lines += [f"- made from `{parent}`" for parent in version.parents[:1]]
    if version.started_from is not None:
        first = version.started_from
        lines.append(f"- its run started from {first.in_words()}, `{first.state_sha256}`")
    if version.epsilon is not None:
        lines.append(f"- differential privacy: epsilon {version.epsilon:.3g} at delta {version.delta:.3g}")
    return lines


def _use(version: Version, files: str) -> list[str]:
    first = f"{files}tier-{version.tiers[0].tier}.onnx"
    if version.key is None:
        return [f"    edge-client infer {first} INPUT", "", "Not signed."]
    return [
        f"    edge-client infer {first} INPUT --trust signing.pub",
        "",
        f"Every file is signed with the key `{version.key}`; its manifest is the file next to it.",
    ]
