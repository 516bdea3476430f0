"""Compares two models in a separate process."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edge_client.agent.offers.trial import Objection
from edge_client.agent.rollout.acceptance import Comparison, ServedForm
from edge_client.data.local import LocalData
from edge_client.inference.quantization.selection import EXPORT_ALONE, VariantSettings
from schemas.messages.rollout_terms import Cause, ModelMeasurement

log = logging.getLogger(__name__)

TIMEOUT_S = 300.0
LAST_LINES = 300


@dataclass(frozen=True)
class ModelPair:
    """The model in use, if there is one, and the candidate.

    With `made`, variants of the candidate are tried first, and a better one is written to that path.
    """

    running: Path | None
    candidate: Path
    made: Path | None = None


class ComparisonRunner:
    """One comparison at a time, in a process of its own."""

    def __init__(
        self, get_data: Callable[[], LocalData], examples: Path, variants: VariantSettings = EXPORT_ALONE
    ) -> None:
        self._get_data, self._examples, self._variants = get_data, examples, variants
        self._process: subprocess.Popen[str] | None = None
        self._ended = False

    def forget(self) -> None:
        self._examples.unlink(missing_ok=True)

    def stop(self) -> None:
        """Kill the process; its result is dropped."""
        self._ended = True
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def compare(self, pair: ModelPair, most: int) -> Comparison:
        """Compare on at most `most` examples and wait for the result."""
        try:
            # Imported here: importing numpy would delay the start.
            from edge_client.agent.rollout.examples import write_examples

            if not write_examples(self._examples, self._get_data(), most):
                return Comparison(objection=(Cause.INCOMPATIBLE, "there are no examples to compare on"))
            job = {
                "running": None if pair.running is None else str(pair.running),
                "candidate": str(pair.candidate),
                "examples": str(self._examples),
                "made": None if pair.made is None or not self._variants.others else str(pair.made),
                "variants": self._variants.variants,
                "max_loss": self._variants.max_loss,
            }
            return self._run(json.dumps(job))
        except OSError as error:
            return Comparison(objection=(Cause.NO_SPACE, f"the comparison cannot be made: {error}"))

    def _run(self, job: str) -> Comparison:
        command = [sys.executable, "-m", "edge_client.agent.rollout.comparison_process"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        if self._ended:
            self._process.kill()
        try:
            out, err = self._process.communicate(job, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return Comparison(objection=(Cause.LATENCY, f"it was not done within {TIMEOUT_S:.0f} s"))
        if self._process.returncode != 0:
            return Comparison(objection=_make_crash_objection(self._process.returncode, err))
        return read_comparison(out)


def read_comparison(text: str) -> Comparison:
    try:
        found = json.loads(text.strip().splitlines()[-1])
        objection, made = found.get("objection"), found.get("made")
        return Comparison(
            running=_parse_measurement(found.get("running")),
            candidate=_parse_measurement(found.get("candidate")),
            lost=int(found.get("lost", 0)),
            won=int(found.get("won", 0)),
            made=None if made is None else ServedForm(*made),
            objection=None if objection is None else (Cause(objection[0]), str(objection[1])),
        )
    except (ValueError, IndexError, TypeError, AttributeError, ValidationError) as error:
        return Comparison(objection=(Cause.CRASHES, f"running it ended with {error!r}"[:LAST_LINES]))


def _parse_measurement(value: Any) -> ModelMeasurement | None:
    return None if value is None else ModelMeasurement.model_validate(value)


def _make_crash_objection(code: int, err: str) -> Objection:
    last = (err.strip().splitlines() or [""])[-1][-LAST_LINES:]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return Cause.CRASHES, f"running it ended with {how}{': ' if last else ''}{last}"
