"""The lease topic as a register: everyone who listens agrees which message counts.

A broker passes the messages of one topic to all subscribers in one order. A message counts if its beat is
that of the last one that counts plus one. Of two servers that act on the same state, therefore only the one
whose message the broker takes first succeeds, and both see it. A last will counts for its own holder, with
a beat of its own, from which the next ones go on.
"""

from dataclasses import dataclass, replace

from schemas.messages import Lease

NEVER = float("-inf")


@dataclass(frozen=True)
class LeaseLog:
    """The `last` message that counts, heard at `heard_at` seconds; `beat` is the one to follow.

    `live`: heard since the connection was made, and not kept by the broker from before.
    """

    last: Lease | None = None
    beat: int = 0
    heard_at: float = NEVER
    live: bool = False

    def with_new_connection(self) -> "LeaseLog":
        """A new connection: the broker sends the retained message again, or none if it has forgotten it."""
        return replace(self, beat=0, live=False)

    def counts(self, lease: Lease, *, retained: bool) -> bool:
        if retained:
            return True
        if lease.state == "lost":
            return self.last is None or lease.holder.instance == self.last.holder.instance
        return lease.beat == self.beat + 1

    def hear(self, lease: Lease, now: float, *, retained: bool) -> "LeaseLog":
        """Take a message that counts."""
        if retained and self.last is not None and lease.epoch < self.last.epoch:
            # The broker was set back, or a will came late: what to follow is this, but nobody holds by it.
            return replace(self, beat=lease.beat)
        if lease.state == "lost" and self.last is not None and not retained:
            # A will says what was so when its connection was made.
            lease = self.last.model_copy(update={"state": "lost", "beat": lease.beat})
        return LeaseLog(lease, lease.beat, now, live=not retained)

    def based_on(self, lease: Lease, now: float) -> "LeaseLog":
        """Go on from a message that does not count, unless a later epoch is known."""
        if self.last is not None and lease.epoch < self.last.epoch:
            return self
        return LeaseLog(lease, lease.beat, now, live=True)
