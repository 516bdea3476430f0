"""Accepts only tasks and models that the server has signed, if the device trusts a key."""

import logging
from pathlib import Path

from edge_client.inference import installed_model
from edge_client.security.task_verifier import TaskVerifier
from edge_client.security.trusted_key import TrustedKey, untrusted
from schemas.messages import Acknowledgement, AnyMessage, Task
from schemas.security.manifest import SignedManifest

log = logging.getLogger(__name__)


class SignaturePolicy:
    """Checks each message of the server; without a key every task is accepted.

    The folder `state` holds the models, and the newest task seen, which excludes replays.
    """

    def __init__(self, federation: str, device: str, state: Path, key: TrustedKey | None) -> None:
        self._federation, self._device = federation, device
        self._models = state / "models"
        self._key = key
        self._verifier = (
            None if key is None else TaskVerifier(key, federation, device, state / "newest-task.json")
        )
        installed_model.repair(self._models)

    def check(self, message: AnyMessage) -> None:
        """Raises `PeerError` for a task or a model's manifest that the trusted key has not signed."""
        if isinstance(message, Task) and self._verifier is not None:
            self._verifier.admit(message)
        if isinstance(message, Acknowledgement) and message.manifest is not None:
            self._take_signature(message.manifest)

    def _take_signature(self, signed: SignedManifest) -> None:
        manifest = signed.manifest if self._key is None else self._key.check(signed)
        named = (manifest.what, manifest.federation, manifest.device)
        if named != ("device-export", self._federation, self._device):
            raise untrusted(
                f"the manifest is of a {named[0]} for {named[2]} in {named[1]}, not of this model"
            )
        if installed_model.take_signature(self._models, signed):
            log.info("the server has signed the model of run %s", manifest.run)
