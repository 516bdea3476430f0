"""The file in which an update is kept; another version of the client may have written it."""

import json
from pathlib import Path

from edge_client.agent.client_update.state import Update
from edge_client.agent.offers.progress_file import ProgressFile
from schemas.messages import ClientOffer


def update_file(path: Path) -> ProgressFile[Update]:
    return ProgressFile(path, _update_in)


def _update_in(data: bytes) -> Update:
    """The update in a file that another version may have written: fields that this one lacks are left out."""
    stored = json.loads(data)
    offer = {name: value for name, value in stored["offer"].items() if name in ClientOffer.model_fields}
    return Update.model_validate_json(json.dumps({**stored, "offer": offer}))
