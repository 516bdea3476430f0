"""Devices that join later, as in FedRAD's table 2."""

import math

from edge_server.config.load import load_config
from edge_server.simulation.simulator import Latecomer


def test_a_latecomer_joins_once_and_stays_online():
    device = Latecomer(5.0)
    assert [device.online(t) for t in (0.0, 4.9, 5.0, 100.0)] == [False, False, True, True]
    assert (device.next_change(0.0), device.next_change(5.0)) == (5.0, math.inf)


def test_the_first_devices_are_online_from_the_start():
    assert Latecomer(0.0).online(0.0)
    assert load_config("fedavg").simulation.joins_s == ()
