"""`edge-client doctor` as a process of its own: a check that crashes or hangs ends nothing else."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge_client.agent.settings import AgentSettings

LONGEST_S = 240.0
NICENESS = 10


class DoctorProcess:
    """Runs the checks; `end` may be called from another thread, and ends the process and its children."""

    def __init__(self, command: Sequence[str], *, longest_s: float = LONGEST_S) -> None:
        self._command, self._longest_s = list(command), longest_s
        self.process: subprocess.Popen[bytes] | None = None
        self._lock, self._ended = threading.Lock(), False

    def findings(self) -> list[dict[str, Any]]:
        """The findings as documents; a crash or the deadline is a finding, too."""
        try:
            with self._lock:
                if self._ended:
                    return [_failure("the checks were ended: the device stops")]
                self.process = process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            # Let the checks have what training leaves, and be the first to go when memory is short.
            with contextlib.suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
            with contextlib.suppress(OSError):
                Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
            output, errors = process.communicate(timeout=self._longest_s)
        except subprocess.TimeoutExpired:
            self.end()
            process.communicate()
            return [_failure(f"not done after {self._longest_s:.0f} s", "look at the card and at memory")]
        except OSError as error:
            return [_failure(f"the checks cannot be started: {error}")]
        return _read(output, errors, process.returncode)

    def end(self) -> None:
        """Kill the process with all that it has started."""
        with self._lock:
            self._ended = True
            process = self.process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def doctor_command(settings: AgentSettings) -> list[str]:
    """The command of the checks that need no connection in this device's name."""
    address = settings.address
    words = ["--format", "json", "--beside-agent", "--broker", str(address)]
    words += ["--federation", settings.federation, "--device-id", settings.device]
    words += ["--state-dir", str(settings.state)]
    if files := address.tls:
        for option, path in (("--ca", files.ca), ("--cert", files.certificate), ("--key", files.key)):
            words += [option, str(path)] if path else []
    return [sys.executable, "-m", "edge_client.cli.main", "doctor", *words]


def _read(output: bytes, errors: bytes, code: int) -> list[dict[str, Any]]:
    with contextlib.suppress(ValueError):
        found = json.loads(output)
        if isinstance(found, list) and all(isinstance(finding, dict) for finding in found):
            return found
    said = (errors.decode(errors="replace").strip().splitlines() or [""])[-1][:300]
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return [_failure(f"the checks ended with {name}", "run `edge-client doctor` on the board itself")]
    return [_failure(f"the checks ended with exit code {code}: {said}")]


def _failure(detail: str, remedy: str = "") -> dict[str, Any]:
    return {"check": "doctor", "level": "failure", "detail": detail, "remedy": remedy}
