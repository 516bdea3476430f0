"""Values of the contract are described to pydantic when they are needed, and their defaults are sound."""

import subprocess
import sys

import pytest

import schemas.messages
import schemas.strategy  # noqa: F401
from schemas.base import Frozen
from schemas.values import CapabilityProfile, Preprocessing


def every_kind(base: type[Frozen] = Frozen) -> list[type[Frozen]]:
    """All classes of values of the contract."""
    below = [kind for subclass in base.__subclasses__() for kind in every_kind(subclass)]
    return [base, *below] if base.__module__.startswith("schemas.") else below


DEFAULTS = {
    f"{kind.__name__}.{name}": field.default
    for kind in every_kind()
    for name, field in kind.model_fields.items()
    if isinstance(field.default, Frozen)
}


def test_the_defaults_that_are_values_are_found():
    assert DEFAULTS["Birth.profile"] == CapabilityProfile()
    assert DEFAULTS["TrainTask.preprocessing"] == Preprocessing()
    assert {"DeliverTask.spec", "Update.spec", "StrategySpec.combiner"} <= DEFAULTS.keys()


@pytest.mark.parametrize("where", sorted(DEFAULTS))
def test_a_default_is_the_same_as_one_that_was_checked(where):
    default = DEFAULTS[where]
    assert type(default).model_validate_json(default.model_dump_json()) == default


def test_the_import_describes_nothing():
    script = """
import schemas.messages, schemas.strategy
from schemas.base import Frozen

def below(base):
    return [kind for one in base.__subclasses__() for kind in (one, *below(one))]

print(sorted(kind.__name__ for kind in below(Frozen) if kind.__pydantic_complete__))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
