"""Which boards the wheels of a release fit."""

import pytest
from pydantic import ValidationError

from schemas.security.client_release import ClientRelease, WheelFile, board_fit, fits_of, misfit, wheel_tags

OURS = "edge_federation-0.2.0-py3-none-any.whl"
NUMPY_ARM = "numpy-2.1.0-cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64.whl"
NUMPY_PC = "numpy-2.1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
ABI3 = "cryptography-43.0.0-cp39-abi3-manylinux_2_28_aarch64.whl"


def test_a_release_without_binary_wheels_fits_all_boards() -> None:
    assert fits_of([OURS, "paho_mqtt-2.1.0-py3-none-any.whl", "six-1.16.0-py2.py3-none-any.whl"]) == ("any",)


def test_a_release_fits_where_each_package_has_a_wheel() -> None:
    assert fits_of([OURS, NUMPY_ARM, ABI3]) == ("cp311-aarch64",)
    assert fits_of([OURS, NUMPY_ARM, NUMPY_PC]) == ("cp311-aarch64", "cp311-x86_64")
    assert fits_of([OURS, NUMPY_PC, ABI3]) == ()


def test_a_wheel_of_the_stable_abi_fits_later_pythons() -> None:
    assert fits_of([OURS, ABI3]) == tuple(f"cp3{minor}-aarch64" for minor in range(11, 17))


@pytest.mark.parametrize("name", ["notes.txt", "x.whl", "a-1-py3.whl", "../a-1-py3-none-any.whl"])
def test_other_files_are_no_wheels(name: str) -> None:
    assert wheel_tags(name) is None


def test_a_misfit_says_what_the_board_is() -> None:
    assert "this board has 3.11" in misfit(("any",), ">=3.12", "cp311-aarch64")
    assert "cp311-x86_64" in misfit(("cp311-x86_64",), ">=3.11", "cp311-aarch64")
    assert misfit(("any",), ">=3.11", "cp311-aarch64") == misfit((), "", board_fit()) == ""


@pytest.mark.parametrize(
    "more",
    [
        {"package": "--index-url"},
        {"version": "0.2; rm -rf /"},
        {"extras": ("trust] @ https://elsewhere/x.whl",)},
        {"wheels": ({"name": "../../x.whl", "sha256": "0" * 64, "bytes": 1},)},
    ],
)
def test_no_field_of_a_release_can_become_an_option_or_a_path(more: dict[str, object]) -> None:
    wheel = WheelFile(name=OURS, sha256="0" * 64, bytes=1)
    fields = {"version": "0.2.0", "fits": ("any",), "installed_bytes": 1, "wheels": (wheel,)}
    with pytest.raises(ValidationError):
        ClientRelease.model_validate({**fields, **more})
    assert ClientRelease.model_validate({**fields, "extras": ("client", "trust")}).requirement == (
        "edge-federation[client,trust]==0.2.0"
    )
