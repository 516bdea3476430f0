"""Pydantic models of the contract are built only when needed, and their defaults are valid."""

import subprocess
import sys

import pytest

import schemas.messages
import schemas.strategy  # noqa: F401
from schemas.base import Frozen
from schemas.values import CapabilityProfile, Preprocessing


def every_kind(base: type[Frozen] = Frozen) -> list[type[Frozen]]:
    """All value classes of the contract."""
    below = [kind for subclass in base.__subclasses__() for kind in every_kind(subclass)]
    return [base, *below] if base.__module__.startswith("schemas.") else below


DEFAULTS = {
    f"{kind.__name__}.{name}": field.default
    for kind in every_kind()
    for name, field in kind.model_fields.items()
    if isinstance(field.default, Frozen)
}


def test_defaults_that_are_models_are_found():
    assert DEFAULTS["Birth.profile"] == CapabilityProfile()
    assert DEFAULTS["TrainTask.preprocessing"] == Preprocessing()
    assert {"DeliverTask.spec", "Update.spec", "StrategySpec.combiner"} <= DEFAULTS.keys()


@pytest.mark.parametrize("where", sorted(DEFAULTS))
def test_a_default_equals_its_validated_copy(where):
    default = DEFAULTS[where]
    assert type(default).model_validate_json(default.model_dump_json()) == default


def test_importing_the_contract_builds_no_model():
    script = """
import schemas.messages, schemas.strategy
from schemas.base import Frozen

def below(base):
    return [kind for child in base.__subclasses__() for kind in (child, *below(child))]

print(sorted(kind.__name__ for kind in below(Frozen) if kind.__pydantic_complete__))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
