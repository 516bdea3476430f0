"""JSON Schemas of the contract, for implementations in other languages."""

from typing import Any

from schemas import strategy, submodel
from schemas.base import Frozen
from schemas.messages import MESSAGES
from schemas.security.manifest import SignedManifest

VALUES: dict[str, type[Frozen]] = {
    "channel-map": submodel.ChannelMap,
    "signed-manifest": SignedManifest,
    "sub-model-spec": submodel.SubModelSpec,
    "strategy-spec": strategy.StrategySpec,
}


def json_schemas() -> dict[str, dict[str, Any]]:
    """Return `{name: JSON Schema}` of every message and of the values in blobs and files."""
    return {
        name: model.model_json_schema(by_alias=False)
        for name, model in sorted({**MESSAGES, **VALUES}.items())
    }
