"""A snapshot with a value for every metric, and the path of promtool, which checks the exposition format."""

import os
import shutil

from edge_server.observability.counters import Durations
from edge_server.observability.snapshot import DeviceView, Snapshot, Workload
from edge_server.storage.records import Rejected
from tests.edge_server.observability.terminal.shown import record, snapshot

PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")


def busy() -> Snapshot:
    """Round 3 of 10: two devices of tier 1 train, one is offline, one of tier 5 was refused."""
    durations = Durations()
    for seconds in (0.02, 0.3, 7200.0):
        durations.record("checking", seconds)
    return snapshot(
        round=3,
        devices=(
            DeviceView("a", 1, 0.7, "training"),
            DeviceView("b", 1, 0.7, "training"),
            DeviceView("c", 1, 0.7, "offline"),
            DeviceView("d", 5, 0.0, "refused", reason="not-finite"),
        ),
        history=(
            record(1, train_loss=1.0, test_loss=0.9, test_accuracy=0.5, client_accuracy=0.4),
            record(
                2,
                completed=("a",),
                dropped=("b",),
                rejected=(Rejected(device="d", reason="not-finite"),),
                train_loss=0.5,
                test_loss=0.8,
                test_accuracy=0.75,
                tier_accuracy={1: 0.25, 5: 0.75},
                epsilon=2.5,
                delta=1e-5,
            ),
        ),
        virtual_s=12.0,
        load=Workload(
            inbox=7,
            jobs=2,
            uploads=3,
            outgoing=5,
            unheard=1,
            uplink_bytes=1000,
            downlink_bytes=2000,
            refusals={"not-finite": 4},
            phases=durations.histograms(),
            work=durations.histograms(),
            deadline_s=600.0,
            budget=8.0,
        ),
    )
