"""Why a server stops in the middle of a run."""

from schemas.errors import EdgeError


class Suspended(EdgeError):
    """The server has stopped in the middle of a run, on request or `failed`; started again, it resumes."""

    def __init__(self, message: str, *, failed: bool = False) -> None:
        super().__init__(message)
        self.failed = failed


class Deposed(EdgeError):
    """Another server has taken over: this one must not write any more."""
