"""A run without end opens rounds when a device's data grows or drifts, and delivers after each."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.agent.local_source import DataChoice, DriftMonitor, LocalSource
from edge_client.data.sources import load_source
from edge_server.observability.snapshot import Snapshot
from edge_server.rounds.state import Phase
from schemas.values import CapabilityProfile
from tests.integration.conftest import ONE_BROKER, demo_config
from tests.slow import slow

DIGITS = load_source("digits")
FIRST, SECOND = (np.flatnonzero(np.isin(DIGITS.labels, classes)) for classes in ((1, 7, 4, 9), (0, 8, 6, 3)))


def save(path: Path, chosen: np.ndarray) -> None:
    """Save these digits, so that a reader sees all or none of them."""
    np.savez(path.with_name("next.npz"), images=DIGITS.images[chosen], labels=DIGITS.labels[chosen])
    path.with_name("next.npz").replace(path)


def growing(address, state: Path, path: Path) -> Agent:
    """A device that looks at its data several times a second."""
    state.mkdir()
    profile = CapabilityProfile(tier=5, trainers=("torch",))
    settings = AgentSettings(
        "test", "pi", address, state, f"npz:{path}", profile, threads=1, watch_data_s=0.3
    )
    source = LocalSource(
        DataChoice(settings.source), record=state / "examples", drift=DriftMonitor(state / "models")
    )
    return Agent(settings, source.read(), feed=source)


def has_closed(least: int, waits_for: str):
    def condition(now: Snapshot) -> bool:
        return len(now.history) >= least and now.phase == Phase.WAITING and now.waits_for == waits_for

    return condition


@ONE_BROKER
@pytest.mark.parametrize(
    ("when", "nothing", "openings"),
    [
        pytest.param("new-data", "0 of 100 new examples", 1, id="new-data"),
        # The first two rounds on the new digits have helped, so others follow.
        slow("drift", "0 of 1 devices that report a drift", 2, id="drift"),
    ],
)
def test_rounds_begin_when_the_data_asks_for_them(
    address, serve, tmp_path: Path, when: str, nothing: str, openings: int
) -> None:
    path = tmp_path / "data.npz"
    save(path, FIRST[:300])
    settings = {"federation.when": when, "federation.rounds-per-opening": 2, "num-clients": 1, "rounds": 0}
    # Several epochs learn the new digits in few rounds.
    settings["local-epochs"] = 4
    run = serve(demo_config(**settings))
    agent = growing(address, tmp_path / "pi", path)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(agent.run)
        try:
            run.watched.until(has_closed(2, nothing))
            save(path, np.concatenate([FIRST[:300], SECOND[:200]]))
            seen = run.watched.until(has_closed(2 + 2 * openings, nothing))
            # Another opening needs another occasion; a few more examples are none.
            save(path, np.concatenate([FIRST[:310], SECOND[:200]]))
            few = "8 of 100 new examples" if when == "new-data" else nothing
            last = run.watched.until(has_closed(len(seen.history), few))
        finally:
            agent.stop()
            run.stop()
    assert run.finished().outcome == "interrupted"
    assert [device.device for device in seen.delivered.values()] == ["pi"]
    assert (tmp_path / "pi" / "models" / "model.onnx").exists()
    assert len(last.history) == len(seen.history)
    assert (len(seen.history) == 4) == (when == "new-data")
