"""`health.json` in a slot: counts of the processes that serve its model, and of their requests.

A process counts a start before it loads the model, and an end when it exits or serves another model. Since
processes start one after the other, a start without an end is a crash.
"""

import logging
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from edge_client.storage.atomic_files import write_synced
from schemas.base import Frozen
from schemas.names import Digest
from schemas.values import Count

log = logging.getLogger(__name__)

FILE = "health.json"


class Health(Frozen):
    """Counts for the model with that digest; `busy_ms` is the sum over its requests.

    `refusals` are starts whose model could not be loaded or is not trusted.
    """

    digest: Digest
    starts: Count = 0
    ends: Count = 0
    requests: Count = 0
    errors: Count = 0
    refusals: Count = 0
    busy_ms: Annotated[float, Field(ge=0, le=1e15)] = 0.0

    @property
    def crashes(self) -> int:
        """Number of starts without an end, except the last one, which may be serving now."""
        return max(0, self.starts - self.ends - 1)

    @property
    def error_rate(self) -> float:
        """Share of requests that failed."""
        return self.errors / self.requests if self.requests else 0.0

    @property
    def mean_ms(self) -> float | None:
        """Mean milliseconds per answered request."""
        answered = self.requests - self.errors
        return self.busy_ms / answered if answered > 0 else None

    def add(self, **counts: float) -> "Health":
        """Add to the fields of these names."""
        return self.model_copy(update={name: getattr(self, name) + more for name, more in counts.items()})


def read_health(folder: Path, digest: str) -> Health:
    """The health of the model in that slot; zeros if the file is invalid or of another model."""
    try:
        health = Health.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return Health(digest=digest)
    return health if health.digest == digest else Health(digest=digest)


def write_health(folder: Path, health: Health) -> None:
    """Replace the file, without a sync, since it is written often; a failure is only logged."""
    try:
        write_synced(folder / FILE, health.model_dump_json().encode(), durable=False)
    except OSError as error:
        log.warning("%s cannot be written: %s", folder / FILE, error)
