"""Collects what an operator may ask for, as JSON text that is masked and bounded."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from edge_client.agent.remote.masking import Hidden, Masker
from edge_client.agent.settings import AgentSettings
from edge_client.data.sources import has_path
from edge_client.system.child_process import Commands, last_line, signal_name
from edge_client.system.crash_record import last_crash
from edge_client.system.hardware.sysfs import ROOT
from edge_client.system.logging.setup import recent_lines
from schemas.messages import DiagnosticRequest
from schemas.messages.remote import MAX_ANSWER_CHARS, Diagnostic

# `edge-client doctor` as a process of its own: a check that crashes or hangs ends nothing else.

LONGEST_S = 240.0
NICENESS = 10


class DoctorProcess:
    """Runs the checks; `end` may be called from another thread, and ends the process and its children."""

    def __init__(self, command: Sequence[str], *, longest_s: float = LONGEST_S) -> None:
        self._command, self._longest_s = list(command), longest_s
        self.commands = Commands()

    def findings(self) -> list[dict[str, Any]]:
        """The findings as documents; a crash or the deadline is a finding, too."""
        try:
            return _read(self.commands.run(self._command, self._longest_s, prepare=_put_last))
        except subprocess.TimeoutExpired:
            return [_failure(f"not done after {self._longest_s:.0f} s", "look at the card and at memory")]
        except OSError as error:
            return [_failure(f"the checks cannot be started: {error}")]

    def end(self) -> None:
        self.commands.end()


def _put_last(pid: int) -> None:
    """Let the checks have what training leaves, and be the first to go when memory is short."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


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


def _read(ended: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    with contextlib.suppress(ValueError):
        found = json.loads(ended.stdout)
        if isinstance(found, list) and all(isinstance(finding, dict) for finding in found):
            return found
    if (code := ended.returncode) < 0:
        name, remedy = signal_name(-code), "run `edge-client doctor` on the board itself"
        return [_failure(f"the checks ended with {name}", remedy)]
    return [_failure(f"the checks ended with exit code {code}: {last_line(ended.stderr)[:300]}")]


def _failure(detail: str, remedy: str = "") -> dict[str, Any]:
    return {"check": "doctor", "level": "failure", "detail": detail, "remedy": remedy}


LEVELS = ("debug", "info", "warning", "error", "critical")
LONGEST_TEXT = 8_000  # characters; of a longer one the end is kept, where a stack names its error
LIBRARIES = ("edge-federation", "torch", "torchvision", "onnxruntime", "onnx", "numpy", "paho-mqtt",
             "pydantic", "cryptography", "safetensors", "pillow", "zstandard")  # fmt: skip


class Collector:
    """Collects diagnostics of one device, in a thread of its own; `root` is above `/proc` and `/sys`."""

    def __init__(
        self, settings: AgentSettings, *, root: Path = ROOT, doctor: DoctorProcess | None = None
    ) -> None:
        self._settings, self._root = settings, root
        self._doctor = doctor or DoctorProcess(doctor_command(settings))

    def collect(self, request: DiagnosticRequest) -> str:
        """The answer as ASCII JSON, at most `MAX_ANSWER_CHARS` long."""
        now, bundle = time.time(), request.what is Diagnostic.BUNDLE
        every = (Diagnostic.DOCTOR, Diagnostic.PROFILE, Diagnostic.CRASH, Diagnostic.LOGS)
        document = {
            "device": self._settings.device,
            "federation": self._settings.federation,
            "what": str(request.what),
            "at": now,
            **{str(what): self._part(what, request, now) for what in (every if bundle else (request.what,))},
        }
        if bundle:
            document |= {"versions": self._versions(), "settings": self._list_settings()}
        return encode_bounded(Masker(hidden_by(self._settings)).document(document))

    def end(self) -> None:
        self._doctor.end()

    def _part(self, what: Diagnostic, request: DiagnosticRequest, now: float) -> Any:
        collect: Mapping[Diagnostic, Callable[[], Any]] = {
            Diagnostic.DOCTOR: self._findings,
            Diagnostic.LOGS: lambda: select_lines(recent_lines(self._settings.state), request, now),
            Diagnostic.PROFILE: self._profile,
            Diagnostic.CRASH: lambda: last_crash(self._settings.state),
        }
        return collect[what]()

    def _findings(self) -> list[dict[str, Any]]:
        connected = {"check": "mqtt", "level": "ok", "detail": "connected: this answer came by it"}
        return [*self._doctor.findings(), {**connected, "remedy": ""}]

    def _profile(self) -> dict[str, Any]:
        from edge_client.system.hardware.profile import describe_board, look, speeds_file

        state = self._settings.state
        board = look(state, self._root)
        profile = describe_board(board, tier=self._settings.profile.tier, measured=speeds_file(state))
        return {"profile": profile.model_dump(mode="json"), "board": asdict(board)}

    def _versions(self) -> dict[str, str]:
        import platform

        from edge_client.system.libraries import releases

        return {"python": platform.python_version(), "system": platform.platform(), **releases(LIBRARIES)}

    def _list_settings(self) -> dict[str, Any]:
        """Settings that explain what the device does; none of them is a path or a key."""
        settings = self._settings
        return {
            "broker": str(settings.address),
            "source": settings.source.partition(":")[0],
            "trainers": list(settings.profile.trainers),
            "signed_only": settings.trust is not None,
            "only_masked": settings.only_masked,
            "veto": settings.veto.model_dump(mode="json", exclude_defaults=True),
            "keep_trying": settings.keep_trying,
            "telemetry_every_s": settings.telemetry_every_s,
            "labels": dict(settings.labels),
        }


def select_lines(lines: list[dict[str, Any]], request: DiagnosticRequest, now: float) -> list[dict[str, Any]]:
    """The newest lines of the wanted level and age."""
    since = None if request.since_s is None else now - request.since_s
    least = LEVELS.index(request.level)
    chosen = [line for line in lines if _level(line) >= least and (since is None or _time(line) >= since)]
    return chosen[-request.lines :]


def _level(line: Mapping[str, Any]) -> int:
    level = line.get("level")
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


def _time(line: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(line.get("time"))).timestamp()
    except ValueError:
        return 0.0


def encode_bounded(document: dict[str, Any]) -> str:
    """The document as text of at most `MAX_ANSWER_CHARS`: texts are cut, then old log lines left out."""
    fitting = _with_newest_lines(_cut(document))
    text = json.dumps(fitting, default=str)
    head = {key: fitting[key] for key in ("device", "federation", "what", "at") if key in fitting}
    return text if len(text) <= MAX_ANSWER_CHARS else json.dumps({**head, "left_out": "it is too large"})


def _with_newest_lines(document: dict[str, Any]) -> dict[str, Any]:
    lines = document.get(str(Diagnostic.LOGS))
    if not isinstance(lines, list) or len(json.dumps(document, default=str)) <= MAX_ANSWER_CHARS:
        return document
    room = MAX_ANSWER_CHARS - len(json.dumps({**document, "logs": [], "left_out": len(lines)}, default=str))
    kept: list[Any] = []
    for line in reversed(lines):
        room -= len(json.dumps(line, default=str)) + 2
        if room < 0:
            break
        kept.append(line)
    return {**document, "logs": kept[::-1], "left_out": len(lines) - len(kept)}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else "..." + value[-LONGEST_TEXT:]
    if isinstance(value, dict):
        return {key: _cut(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_cut(part) for part in value]
    return value


# Names of data files that are looked for one by one, and files whose endings are: an index takes memory.
MAX_NAMES, MAX_FILES = 10_000, 200_000
LONGEST_SUFFIX = 6


def hidden_by(settings: AgentSettings) -> Hidden:
    """What to hide, by the device's settings and the files of its data now."""
    kind, _, stated = settings.source.partition(":")
    root = settings.remote.data_root
    path = _path_of(stated, root) if has_path(settings.source) else None
    names: list[str] = []
    suffixes: set[str] = set()
    for name in islice(_names(path), MAX_FILES) if path is not None else ():
        suffixes.add(_suffix(name))
        if len(names) < MAX_NAMES:
            names.append(name)
    address = settings.address
    return Hidden(
        data=tuple(_data_paths(kind, stated, path, root)),
        places=dict(_places(settings.state)),
        secrets=tuple(secret for secret in (address.username, address.password) if secret),
        names=tuple(names),
        suffixes=frozenset(suffixes - {""}),
    )


def _places(state: Path) -> Iterator[tuple[str, str]]:
    yield str(state), "<state>"
    yield str(state.absolute()), "<state>"
    # A service's user may have no home folder.
    with contextlib.suppress(RuntimeError):
        yield str(Path.home()), "~"


def _path_of(stated: str, root: Path | None) -> Path:
    """The path in a source such as `csv:room.csv?label=open` or `npz:digits.npz#train`."""
    path = _expand_home(stated if _exists(stated) else stated.partition("?")[0].partition("#")[0])
    return path if root is None else root / path


def _expand_home(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _exists(text: str) -> bool:
    try:
        return _expand_home(text).exists()
    except (OSError, ValueError):
        return False


def _data_paths(kind: str, stated: str, path: Path | None, root: Path | None) -> Iterator[str]:
    """The paths of the data in the spellings that messages may have."""
    for folder in (root, path):
        if folder is not None:
            yield str(folder.absolute())
            yield str(folder.resolve())
            # A relative path of one word may be an ordinary word, and is hidden behind its kind alone.
            yield from (str(folder),) if len(folder.parts) > 1 else ()
    if path is not None:
        yield f"{kind}:{stated.partition('?')[0]}"
        yield f"{kind}:{path}"
    for option in stated.partition("?")[2].split("&"):
        value = unquote(option.partition("=")[2])
        if "/" in value:
            yield value


def _names(path: Path) -> Iterator[str]:
    """The names of a data file, or of all files in a data folder."""
    if path.is_file():
        yield path.name
    for _, _, files in os.walk(path):
        yield from files


def _suffix(name: str) -> str:
    suffix = Path(name).suffix.lower()
    telling = suffix[1:].isalnum() and not suffix[1:].isdigit()
    return suffix if telling and 2 <= len(suffix) <= LONGEST_SUFFIX else ""
