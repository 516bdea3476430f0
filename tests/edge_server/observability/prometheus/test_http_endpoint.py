"""`/metrics` over HTTP and the addresses it listens on."""

import contextlib
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from edge_server.cli.main import EDGE_SERVER
from edge_server.observability.counters import Durations, PhaseClock
from edge_server.observability.prometheus.address import Listen, parse_listen
from edge_server.observability.prometheus.cli_option import metrics_watcher
from edge_server.observability.prometheus.collector import RunCollector, run_registry
from edge_server.observability.prometheus.http_endpoint import serve_metrics
from schemas.errors import ConfigError
from tests.edge_server.observability.prometheus.running import busy


def read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_only_metrics_are_served_and_only_during_the_run(tmp_path: Path) -> None:
    collector = RunCollector(tmp_path)
    with serve_metrics(Listen("127.0.0.1", 0), run_registry(collector)) as url:
        collector.show(busy())
        status, page = read(url)
        assert status == 200
        assert "edge_server_round 3.0" in page
        assert read(url.removesuffix("/metrics") + "/")[0] == 404
    with pytest.raises(OSError, match="refused"):
        read(url)


def test_a_port_in_use_is_bad_usage(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Listen("127.0.0.1", taken.getsockname()[1])
        with (
            pytest.raises(ConfigError, match=r"--metrics 127.*cannot listen there.*HOST:PORT"),
            serve_metrics(address, run_registry(RunCollector(tmp_path))),
        ):
            pass


def test_silent_connections_beyond_the_limit_are_closed(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serve_metrics(Listen("127.0.0.1", 0), run_registry(RunCollector(tmp_path))))
        port = int(url.split(":")[2].partition("/")[0])
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(17)]
        # Sixteen threads wait for a request; the seventeenth connection is closed at once.
        silent[16].settimeout(20)
        assert silent[16].recv(1) == b""


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9464", "127.0.0.1", 9464), ("[::1]:80", "::1", 80), ("broker.lan:0", "broker.lan", 0)],
)
def test_an_address_is_formatted_as_it_was_parsed(text: str, host: str, port: int) -> None:
    assert parse_listen(text) == Listen(host, port)
    assert str(parse_listen(text)) == text


@pytest.mark.parametrize("text", [":9464", "9464", "federation.toml", "rounds=3", "a:70000", "::1:80"])
def test_an_address_without_a_host_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0:9464 for all"):
        parse_listen(text)


@pytest.mark.parametrize("words", [["run", "f.toml"], ["simulate", "fedavg"], ["demo"]])
def test_the_option_defaults_to_loopback_and_is_off_when_missing(words) -> None:
    parser = EDGE_SERVER.parser()
    assert parser.parse_args([*words, "--metrics"]).metrics == "127.0.0.1:9464"
    assert parser.parse_args([*words, "--metrics", "0.0.0.0:1"]).metrics == "0.0.0.0:1"
    assert parser.parse_args(words).metrics is None


def test_the_address_is_printed_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with metrics_watcher("127.0.0.1:0", tmp_path) as watcher:
        watcher.show(busy())
        printed = capsys.readouterr()
        assert printed.out == ""
        url = printed.err.removeprefix("metrics at ").strip()
        assert "edge_server_round 3.0" in read(url)[1]


def test_a_phase_counts_when_it_ends() -> None:
    clock = PhaseClock()
    for phase, now in (("planning", 1.0), ("planning", 2.0), ("training", 3.5), ("planning", 10.5)):
        clock.at(phase, now)
    histograms = clock.durations.histograms()
    # Planning lasts from 1 to 3.5, training from 3.5 to 10.5; the second planning has not ended.
    assert {name: (sum(histogram.counts), histogram.seconds) for name, histogram in histograms.items()} == {
        "planning": (1, 2.5),
        "training": (1, 7.0),
    }


def test_work_that_raises_is_timed_too() -> None:
    times = iter((1.0, 4.0))
    durations = Durations(lambda: next(times))
    with pytest.raises(ValueError, match="no"), durations.time_block("checking"):
        raise ValueError("no")
    assert durations.histograms()["checking"].seconds == 3.0
