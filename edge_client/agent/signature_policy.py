"""What a device does with the server's signatures: it lets signed tasks in, puts signed models in use."""

from __future__ import annotations

import logging
from pathlib import Path

from edge_client.inference import installed_model
from edge_client.security.task_verifier import TaskGate
from edge_client.security.trusted_key import TrustedKey, untrusted
from schemas.messages import Acknowledgement, AnyMessage, Task
from schemas.security.manifest import SignedManifest

log = logging.getLogger(__name__)


class SignaturePolicy:
    """Checks every message that comes; without a key a device takes part as if nothing was ever signed.

    Below `state` lie the models and the memory of the newest task.
    """

    def __init__(self, federation: str, device: str, state: Path, key: TrustedKey | None) -> None:
        self._federation, self._device = federation, device
        self._models = state / "models"
        self._key = key
        self._gate = None if key is None else TaskGate(key, federation, device, state / "newest-task.json")
        installed_model.repair(self._models)

    def check(self, message: AnyMessage) -> None:
        """Raises `PeerError` for a task, or a word on a model, that the trusted key does not vouch for."""
        if isinstance(message, Task) and self._gate is not None:
            self._gate.admit(message)
        if isinstance(message, Acknowledgement) and message.manifest is not None:
            self._take_signature(message.manifest)

    def _take_signature(self, signed: SignedManifest) -> None:
        manifest = signed.manifest if self._key is None else self._key.check(signed)
        said = (manifest.what, manifest.federation, manifest.device)
        if said != ("device-export", self._federation, self._device):
            raise untrusted(f"the manifest is of a {said[0]} for {said[2]} in {said[1]}, not of this model")
        if installed_model.take_signature(self._models, signed):
            log.info("the server has signed for the model of run %s", manifest.run)
