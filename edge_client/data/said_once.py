"""What a user may not expect of the data, said once: a device reads its source again and again."""

import logging
from functools import lru_cache

log = logging.getLogger(__name__)


@lru_cache(maxsize=256)
def say_once(words: str, level: int = logging.INFO) -> None:
    """Log a line, once in a process."""
    log.log(level, words)
