"""Worker processes that end with the process that started them."""

import contextlib
import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """Exit as soon as the parent dies, since a killed parent cannot end its workers."""
    threading.Thread(target=_wait_for_parent, name="parent", daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        with contextlib.suppress(OSError, ValueError):
            parent.join()
        os._exit(1)
