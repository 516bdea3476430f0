"""How serving a model goes: a note beside it, `health.json`. Whoever serves it writes, a watch reads.

Counted are processes that began to serve it (before they load it), and those that ended well or went over to
another model: one that began and never ended has crashed, for another begins only after it.
"""

from __future__ import annotations

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
    """Of the model with that digest: `starts` and `ends` of what serves it, requests, milliseconds in all.

    `refusals` are starts that ended before they served it: the file could not be loaded, or is not trusted.
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
        """How many have begun and not ended, but for the last, which may be serving now."""
        return max(0, self.starts - self.ends - 1)

    @property
    def error_rate(self) -> float:
        """The share of requests that failed."""
        return self.errors / self.requests if self.requests else 0.0

    @property
    def mean_ms(self) -> float | None:
        """Milliseconds for a request, in the mean."""
        answered = self.requests - self.errors
        return self.busy_ms / answered if answered > 0 else None

    def started(self) -> Health:
        """A process begins to serve it."""
        return self.model_copy(update={"starts": self.starts + 1})

    def ended(self) -> Health:
        """A process has ended well, or serves another model now."""
        return self.model_copy(update={"ends": self.ends + 1})

    def refused(self) -> Health:
        """It could not be served."""
        return self.model_copy(update={"refusals": self.refusals + 1})

    def answered(self, milliseconds: float) -> Health:
        """A request was answered."""
        more = {"requests": self.requests + 1, "busy_ms": self.busy_ms + milliseconds}
        return self.model_copy(update=more)

    def failed(self) -> Health:
        """A request that was in order was not answered."""
        return self.model_copy(update={"requests": self.requests + 1, "errors": self.errors + 1})


def read_health(folder: Path, digest: str) -> Health:
    """The health of the model in that slot; of another model, or a file that is none, a fresh one."""
    try:
        health = Health.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return Health(digest=digest)
    return health if health.digest == digest else Health(digest=digest)


def write_health(folder: Path, health: Health) -> None:
    """Write it all at once; where the disk takes nothing the model is served all the same.

    It need not survive a power cut, and is written often.
    """
    try:
        write_synced(folder / FILE, health.model_dump_json().encode(), durable=False)
    except OSError as error:
        log.warning("%s cannot be written: %s", folder / FILE, error)
