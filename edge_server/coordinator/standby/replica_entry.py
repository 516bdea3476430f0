"""One step of a copied run folder: which files there are now, and what has changed in the journal."""

from collections.abc import Mapping

from schemas.base import Frozen
from schemas.names import Digest
from schemas.tensors.chunks import BlobRef

Value = None | int | float | str


class Entry(Frozen):
    """A step. `journal` is the whole file, in the first step; `changes` are made to it in the others.

    `files` are new or changed, by their paths in the run folder; those that are `gone` are deleted.
    """

    files: Mapping[str, BlobRef] = {}
    gone: tuple[str, ...] = ()
    journal: BlobRef | None = None
    changes: tuple[tuple[str, tuple[tuple[Value, ...], ...]], ...] = ()

    @property
    def blobs(self) -> Mapping[Digest, BlobRef]:
        """Every blob that the step needs."""
        refs = [*self.files.values(), *([self.journal] if self.journal else [])]
        return {ref.digest: ref for ref in refs}
