"""All generated pages, as {path: text}."""

from pathlib import Path

from deploy.docs.generator.commands import command_page
from deploy.docs.generator.components import components_page, recipes_page
from deploy.docs.generator.metrics import metrics_page
from deploy.docs.generator.python_page import python_page
from deploy.docs.generator.service_page import service_page
from deploy.docs.generator.settings import client_pages, federation_pages, protocol_page
from edge_client.cli.main import EDGE_CLIENT
from edge_server.cli.main import EDGE_SERVER

REFERENCE = Path(__file__).parents[1] / "reference"
BY_HAND = {REFERENCE / "index.md", REFERENCE / "run-folder.md"}


def pages() -> dict[Path, str]:
    """Every page of the reference that comes from the code."""
    texts = {
        "edge-server.md": command_page(EDGE_SERVER),
        "edge-client.md": command_page(EDGE_CLIENT),
        "recipes.md": recipes_page(),
        "components.md": components_page(),
        "python.md": python_page(),
        "metrics.md": metrics_page(),
        "protocol.md": protocol_page(),
        "service-toml.md": service_page(),
        **{f"federation-toml/{name}": text for name, text in federation_pages().items()},
        **{f"client-toml/{name}": text for name, text in client_pages().items()},
    }
    return {REFERENCE / name: text for name, text in texts.items()}
