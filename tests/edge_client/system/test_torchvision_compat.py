"""A user's own code may import torchvision, though its extension does not load with a CPU-only torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow import slow

IMPORTS = {
    "a module of a network or a data source": (
        "from edge_client.system.user_code import users_function\n"
        "users_function('own:pictures', what='data source')()"
    ),
    "a plugin": (
        "from importlib.metadata import EntryPoint\n"
        "import edge_client.system.plugins as plugins\n"
        "plugins.plugins = lambda _: {'own': EntryPoint('own', 'own:pictures', 'edge_federation.network')}\n"
        "plugins.Registry('network', {})['own']()"
    ),
    "a script that uses the library": "import edge_server, own; own.pictures()",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A module of a user's own, and a torchvision without its extension."""
    (tmp_path / "own.py").write_text("import torchvision\n\ndef pictures():\n    print(torchvision.there)\n")
    (tmp_path / "torchvision").mkdir()
    operators = "".join(f"torch.ops.torchvision.{name}.default\n" for name in ("nms", "qnms"))
    (tmp_path / "torchvision" / "__init__.py").write_text(
        f"import torch\ntry:\n    {operators.strip().replace(chr(10), chr(10) + '    ')}\n"
        "except AttributeError as error:\n"
        "    raise RuntimeError('operator torchvision::nms does not exist') from error\n"
        "there = True\n"
    )
    return tmp_path


def printed(code: str, folder: Path) -> str:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = ['.', {str(root)!r}]\n{code}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("what", [what if place == 0 else slow(what) for place, what in enumerate(IMPORTS)])
def test_torchvision_without_its_extension_is_imported_by(what: str, folder: Path) -> None:
    assert printed(IMPORTS[what], folder) == "True\n"


def test_the_guard_imports_nothing_and_lets_other_errors_through(folder: Path) -> None:
    heavy = "import edge_client, sys; print({'torch', 'torchvision', 'numpy'} & sys.modules.keys())"
    assert printed(heavy, folder) == "set()\n"
    (folder / "torchvision" / "__init__.py").write_text("raise RuntimeError('another error')")
    code = "import edge_client\ntry:\n    import torchvision\nexcept RuntimeError as error:\n    print(error)"
    assert printed(code, folder) == "another error\n"
