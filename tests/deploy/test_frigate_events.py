"""Events of a Frigate become pictures with boxes."""

import io
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.data.sources import load_source
from tests.deploy.files import DEPLOY
from tests.edge_server.fleet.alerts.receivers import serving

EVENTS = [
    {"id": "1.5-new", "label": "cat", "data": {"box": [0.25, 0.5, 0.5, 0.25]}},
    {"id": "2.5-old", "label": "person", "data": {"box": [0, 0, 0.5, 0.5]}},
    {"id": "3.5-manual", "label": "cat", "data": {"type": "api"}},
    {"id": "4.5-unclean", "label": "cat", "data": {"box": [0, 0, 0.5, 0.5]}},
]
ASKED = "/api/events?labels=person%2Ccat&limit=7&has_snapshot=1&in_progress=0"


def picture(kind: str) -> bytes:
    Image.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(data := io.BytesIO(), kind)
    return data.getvalue()


ANSWERS = {
    ASKED: json.dumps(EVENTS).encode(),
    "/api/events/1.5-new/snapshot-clean.webp": picture("webp"),
    "/api/events/2.5-old/snapshot-clean.png": picture("png"),
}
"""Of version 0.17 and later, and of 0.14 to 0.16 (`frigate/api/event.py` and `media.py` there)."""


class Frigate(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path in ANSWERS else 404)
        self.end_headers()
        self.wfile.write(ANSWERS.get(self.path, b""))

    def log_message(self, *args: object) -> None:
        pass


def run(port: int, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [f"http://127.0.0.1:{port}", str(folder), "person", "cat", "--limit", "7"]
    program = [sys.executable, str(DEPLOY / "examples" / "frigate_events.py"), *words]
    return subprocess.run(program, env={"no_proxy": "*"}, capture_output=True, text=True, timeout=60)


def test_events_become_pictures_with_boxes_which_are_kept_when_corrected(tmp_path: Path) -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Frigate)) as port:
        said = "{} new pictures; without box or clean snapshot: 2 events\n"
        assert run(port, tmp_path).stdout == said.format(2)
        data = load_source(f"yolo:{tmp_path}")
        assert data.class_names == ("person", "cat")
        for own, wanted in zip(data.labels[:, 0], [(1, 15, 20, 45, 30), (0, 0, 0, 30, 20)], strict=True):
            assert own.tolist() == pytest.approx(wanted)
        (corrected := tmp_path / "labels" / "1.5-new.txt").write_text("0 0.5 0.5 0.1 0.1\n")
        assert run(port, tmp_path).stdout == said.format(0)
        assert corrected.read_text() == "0 0.5 0.5 0.1 0.1\n"
    ended = run(port, tmp_path)
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, line.startswith(f"http://127.0.0.1:{port}: ")) == (2, True)
