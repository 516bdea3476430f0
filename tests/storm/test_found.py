"""Seeds that have found bugs, shrunk; each was repaired with the commit that brought its row."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.storm.faults import Fault, Scenario
from tests.storm.world import play


def found(scenario: Scenario, *faults: Fault) -> Any:
    return pytest.param(scenario, faults, id=f"seed {scenario.seed}")


FOUND = (
    # the server took lost connections for a broker of small packets, and ended
    found(
        Scenario(seed=1544, devices=1, rounds=1),
        Fault(kind="crash", at=1.1, target="server", lasts=13.7),
        Fault(kind="pause", at=14.9, target="server", lasts=7.9),
        Fault(kind="broker-restart", at=22.3, target="broker", lasts=7.2),
    ),
    # stuck: the server waited for a device that had been told the end, which the server's crash had lost
    found(
        Scenario(seed=7044, devices=1, deliver=True, momentum=True, changes=True),
        Fault(kind="crash", at=6.0, target="d0", lasts=11.3, size=9.0),
        Fault(kind="power-cut", at=7.8, target="server", lasts=15.7, size=5.0),
    ),
    # stuck: a device whose answer got lost was forgotten, and nobody told it
    found(
        Scenario(seed=103, rounds=1, small_chunks=False, broadcast=True),
        Fault(kind="pause", at=0.252, target="d1", lasts=4.54),
        Fault(kind="cut", at=0.334, target="server"),
        Fault(kind="power-cut", at=0.966, target="server", lasts=0.2),
        Fault(kind="loss", at=3.533, target="server", lasts=10.68, size=0.44),
        Fault(kind="failed-sync", at=6.281, target="d1", size=3.0),
        Fault(kind="repeats", at=26.109, lasts=7.95, size=0.86),
    ),
    # stuck: a birth got lost after its device's last will, and the device was taken for lost
    found(
        Scenario(seed=2538),
        Fault(kind="power-cut", at=1.1, target="d0", lasts=17.9),
        Fault(kind="pause", at=2.6, target="d1", lasts=1.9),
        Fault(kind="partition", at=3.9, target="server", lasts=3.4),
        Fault(kind="full-disk", at=5.8, target="server", lasts=5.9),
        Fault(kind="repeats", at=15.4, lasts=11.9, size=0.5),
        Fault(kind="partition", at=16.2, target="d0", lasts=4.4),
        Fault(kind="loss", at=19.4, target="server", lasts=7.0, size=0.86),
        Fault(kind="power-cut", at=20.7, target="d1", lasts=0.2),
    ),
    # a power cut at the end of a run left a finished run without its history
    found(
        Scenario(seed=2230, small_chunks=False, impatient=True),
        Fault(kind="full-disk", at=2.5, target="d0", lasts=14.8),
        Fault(kind="pause", at=4.8, target="d0", lasts=31.5),
        Fault(kind="cut", at=16.6, target="server"),
        Fault(kind="cut", at=17.5, target="server"),
        Fault(kind="power-cut", at=23.4, target="server", lasts=0.2, size=45.0),
    ),
    # a server of secure aggregation that was restarted in the first round failed at every start
    found(
        Scenario(seed=412, devices=3, rounds=1, small_chunks=False, impatient=True, masked=True),
        Fault(kind="crash", at=1.0, target="server", lasts=12.9, size=1.0),
    ),
    # stuck: a receipt got lost, and its device, which had trained again, did not make the gateway repeat it
    found(
        Scenario(seed=68, rounds=1, small_chunks=False, sites=("s0", "s0")),
        Fault(kind="broker-restart", at=2.4, target="broker", lasts=7.4, size=1.0),
        Fault(kind="power-cut", at=4.6, target="s0.d0", lasts=0.2),
    ),
    # stuck: the birth of a gateway that was gone for a moment got lost, and with it its devices
    found(
        Scenario(seed=319, devices=1, rounds=1, small_chunks=False, impatient=True, sites=("s0", "s0")),
        Fault(kind="cut", at=0.3, target="s0/far"),
        Fault(kind="loss", at=0.6, lasts=8.5, size=0.9),
    ),
    # given up: the terms that a restarted gateway needs to examine updates got lost
    found(
        Scenario(seed=144, devices=1, small_chunks=False, impatient=True, sites=("s0", "s0")),
        Fault(kind="loss", at=3.9, lasts=9.6, size=0.8),
        Fault(kind="power-cut", at=6.3, target="s0", lasts=0.2),
    ),
    # a power cut tears decompressed updates of the server:
    # the run had failed: PeerError: ... is not a safetensors blob
    found(
        Scenario(seed=11, devices=3, small_chunks=False, packed=True),
        Fault(kind="power-cut", at=3.44, target="server", lasts=0.5),
    ),
    # a power cut tears decompressed updates of a gateway:
    # the gateway called an update lost that it had accepted
    found(
        Scenario(seed=0, devices=3, small_chunks=False, packed=True, sites=("s0", "s0.in")),
        Fault(kind="power-cut", at=3.0, target="s0.in", lasts=0.5),
    ),
    # a gateway within a site forgets the sum that it has made:
    # stuck: the gateway around it went on asking for the chunks of a sum that was gone
    found(
        Scenario(seed=29, devices=3, small_chunks=False, packed=True, sites=("s0", "s0.in")),
        Fault(kind="power-cut", at=4.16, target="s0.in", lasts=0.5),
    ),
    # stuck: on a full disk a gateway noted no session, and its next birth was older than its last will
    found(
        Scenario(seed=1673, devices=1, rounds=1, small_chunks=False, impatient=True, sites=("s1",)),
        Fault(kind="crash", at=2.2, target="server", lasts=0.2, size=17.0),
        Fault(kind="broker-restart", at=4.5, target="broker", lasts=4.5),
        Fault(kind="full-disk", at=7.4, target="s1", lasts=10.0),
    ),
    # stuck: a power cut took the new folder of a gateway away, and with it the number of its session
    found(
        Scenario(seed=5725, rounds=1, small_chunks=False, sites=("s0", "")),
        Fault(kind="broker-restart", at=0.7, target="broker", lasts=7.7, size=1.0),
        Fault(kind="crash", at=4.7, target="s0", lasts=9.5),
        Fault(kind="repeats", at=12.2, target="s0/far", lasts=10.9, size=0.6),
        Fault(kind="crash", at=13.1, target="d1", lasts=18.3),
        Fault(kind="power-cut", at=16.0, target="s0", lasts=0.1, size=32.0),
    ),
    # stuck: a gateway passed on neither the claim nor the chunks of the update that replaced a refused one
    found(
        Scenario(seed=11733, devices=3, rounds=1, small_chunks=False, sites=("s0", "s0", "s0")),
        Fault(kind="loss", at=2.0, lasts=12.8, size=0.6),
        Fault(kind="cut", at=2.4, target="s0.d2"),
        Fault(kind="cut", at=4.9, target="s0"),
        Fault(kind="failed-sync", at=17.1, target="server", size=1.0),
    ),
    # stuck: the sum of an inner site completed an earlier request, which had it, instead of the open one
    found(
        Scenario(seed=20993, rounds=1, small_chunks=False, sites=("s0.in", "s0")),
        Fault(kind="cut", at=0.6, target="server"),
        Fault(kind="crash", at=5.3, target="s0.d1", lasts=7.9),
        Fault(kind="loss", at=5.6, lasts=10.9, size=0.5),
        Fault(kind="power-cut", at=22.4, target="server", lasts=16.9, size=9.0),
    ),
    # stuck: a refusal of the server that had taken over silenced its requests for chunks
    found(
        Scenario(seed=156, broadcast=True, deliver=True, standby=True),
        Fault(kind="power-cut", at=1.767, target="server", lasts=0.2, size=23.0),
        Fault(kind="power-cut", at=6.619, target="d1", lasts=0.2),
        Fault(kind="power-cut", at=6.89, target="server", lasts=18.72),
        Fault(kind="partition", at=7.933, target="d1", lasts=28.22),
        Fault(kind="broker-restart", at=14.937, target="broker", lasts=4.82),
        Fault(kind="full-disk", at=29.045, target="d1", lasts=3.55),
    ),
    # stuck: a standby that was paused claimed with an old beat, which the restarted server had reached again
    found(
        Scenario(seed=100136, small_chunks=False, deliver=True, changes=True, standby=True),
        Fault(kind="pause", at=2.2, target="standby", lasts=10.7),
        Fault(kind="power-cut", at=9.3, target="server", lasts=0.2),
        Fault(kind="failed-task", at=39.8, target="d1"),
    ),
    # a device was refused an update that the journal had as accepted: it was checked as its round closed
    found(
        Scenario(seed=60031, rounds=1, size=1, small_chunks=False, deliver=True, changes=True),
        Fault(kind="full-disk", at=1.7, target="server", lasts=8.7),
        Fault(kind="repeats", at=5.6, lasts=7.1, size=0.36),
    ),
    # a server that waits for its lease is simulated too:
    # the simulation waited in earnest for a broker that was gone; a server that waits has nothing to suspend
    found(
        Scenario(seed=200039, devices=3, rounds=1, standby=True),
        Fault(kind="suspend", at=0.3, target="server", lasts=1.0),
        Fault(kind="loss", at=0.354, target="server", lasts=11.1, size=0.57),
        Fault(kind="broker-restart", at=2.7, target="broker", lasts=7.9, size=1.0),
    ),
    # a server went on with an old folder: the claim of a holder that was restarted said nothing of its epoch
    found(
        Scenario(seed=201354, devices=3, spare=1, standby=True),
        Fault(kind="failed-sync", at=0.8, target="server", size=5.0),
        Fault(kind="loss", at=4.2, lasts=1.3, size=0.2),
        Fault(kind="full-disk", at=7.6, target="standby", lasts=14.8),
        Fault(kind="loss", at=10.3, lasts=9.7, size=0.6),
    ),
    # a server whose first claim was lost believed for ever that the broker passes nothing on, and waited for
    # a standby that it had left behind
    found(
        Scenario(seed=700519, rounds=1, small_chunks=False, standby=True),
        Fault(kind="full-disk", at=0.0, target="d1", lasts=1.6),
        Fault(kind="loss", at=0.1, target="server", lasts=2.9, size=0.4),
        Fault(kind="broker-restart", at=7.3, target="broker", lasts=3.0, size=1.0),
        Fault(kind="loss", at=14.2, lasts=11.0, size=0.9),
    ),
    # a gateway passed another update of a task whole, since one that the server had refused was still there
    found(
        Scenario(seed=700427, devices=3, rounds=1, small_chunks=False, sites=("s0", "s0.in", "s0.in")),
        Fault(kind="loss", at=1.6, target="s0.in.d1", lasts=7.1, size=0.23),
        Fault(kind="pause", at=6.6, target="server", lasts=31.2),
        Fault(kind="failed-sync", at=27.3, target="server", size=2.0),
        Fault(kind="partition", at=28.9, target="s0.in/far", lasts=30.6),
    ),
    # a late claim of an update that counts in an earlier round was refused
    found(
        Scenario(seed=201082, devices=3, rounds=3, small_chunks=False),
        Fault(kind="reordering", at=0.9, lasts=10.4, size=7.9),
    ),
    # two servers ended each other's connections: to one of them a lost claim was a broker without leases
    found(
        Scenario(
            seed=310003, rounds=3, standby=True, broadcast=True, impatient=True, momentum=True, changes=True
        ),
        Fault(kind="loss", at=0.1, lasts=11.6, size=0.6),
    ),
    # a standby that gave up its claim left word that it held the lease: the server's folder was an old one
    found(
        Scenario(seed=701937, rounds=1, small_chunks=False, standby=True),
        Fault(kind="loss", at=2.222, lasts=8.2, size=0.6),
        Fault(kind="loss", at=4.2, lasts=10.0, size=0.9),
        Fault(kind="loss", at=4.7, target="d0", lasts=11.8, size=0.4),
        Fault(kind="power-cut", at=6.8, target="d0", lasts=0.2),
        Fault(kind="pause", at=24.7, target="d1", lasts=25.7),
    ),
    # a server that was cut off went on with a run that its standby had continued: the standby was down then,
    # and the broker had its last will, over which the server's own earlier renewal was published again
    found(
        Scenario(seed=20073, broadcast=True, impatient=True, standby=True, sites=("s0", "s1")),
        Fault(kind="crash", at=2.245, target="s1", lasts=0.2, size=48.0),
        Fault(kind="power-cut", at=2.848, target="s0.d0", lasts=9.46),
        Fault(kind="partition", at=4.172, target="server", lasts=0.71),
        Fault(kind="closing-crash", at=4.687, target="standby", lasts=18.14, size=10.0),
        Fault(kind="partition", at=4.925, target="server", lasts=3.76),
        Fault(kind="partition", at=5.369, target="server", lasts=29.89),
        Fault(kind="power-cut", at=6.746, target="standby", lasts=0.88, size=49.0),
        Fault(kind="full-disk", at=8.608, target="s0", lasts=7.77),
        Fault(kind="loss", at=33.733, target="s0/far", lasts=14.8, size=0.24),
    ),
    # A standby that had not heard the server for a while, nor that it was left behind, took over.
    found(
        Scenario(seed=2001254, broadcast=True, standby=True),
        Fault(kind="reordering", at=2.7, lasts=1.1, size=1.14),
        Fault(kind="loss", at=4.3, target="standby", lasts=11.7, size=0.85),
    ),
    # The same, and the server was stopped while it should have contradicted the standby.
    found(
        Scenario(seed=2001450, changes=True, standby=True, packed=True),
        Fault(kind="loss", at=2.314, target="standby", lasts=13.4, size=0.7),
        Fault(kind="pause", at=7.9, target="server", lasts=4.4),
    ),
    # stuck: a standby that died after its claim and before its first work left a server that was refused
    found(
        Scenario(seed=3001564, rounds=1, changes=True, standby=True),
        Fault(kind="loss", at=2.7, target="standby", lasts=10.1, size=0.6),
        Fault(kind="suspend", at=2.9, target="server", lasts=0.4),
        Fault(kind="power-cut", at=4.4, target="standby", lasts=0.2),
    ),
    # the run has failed: a gateway that missed the terms of a standby handed on those of the server before
    found(
        Scenario(seed=3002079, devices=1, rounds=1, impatient=True, standby=True, sites=("s0.in",)),
        Fault(kind="cut", at=1.622, target="s0.in"),
        Fault(kind="full-disk", at=2.9, target="s0.in", lasts=9.0),
        Fault(kind="loss", at=4.6, target="server", lasts=7.8, size=0.82),
        Fault(kind="loss", at=5.3, target="server", lasts=9.4, size=0.3),
        Fault(kind="loss", at=6.2, target="s0/far", lasts=14.6, size=0.7),
    ),
    # stuck: a gateway asked the site within its own for a sum, in the epoch of a server that was replaced
    found(
        Scenario(seed=3009129, broadcast=True, standby=True, sites=("s0", "s0.in"), packed=True),
        Fault(kind="loss", at=2.7, lasts=11.4, size=0.22),
        Fault(kind="reordering", at=5.8, lasts=9.0, size=13.3),
        Fault(kind="pause", at=6.066, target="server", lasts=0.2),
        Fault(kind="partition", at=23.6, target="s0.in/far", lasts=39.0),
        Fault(kind="pause", at=25.4, target="server", lasts=17.0),
    ),
)


@pytest.mark.parametrize(("scenario", "faults"), FOUND)
def test_a_seed_that_has_found_a_bug_finds_none(scenario: Scenario, faults: Sequence[Fault]) -> None:
    assert play(scenario, faults).violation is None


def test_devices_hear_of_the_end_though_a_standby_follows() -> None:
    # the end waited for the standby, and was dropped: only the next run reached the devices
    outcome = play(Scenario(seed=1, devices=2, rounds=2, standby=True), [])
    assert (outcome.violation, outcome.seconds < 25) == (None, True)
