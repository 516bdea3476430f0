"""What a lease keeper hands to the server's own connection."""

from edge_client.transport.broker_link import BrokerAddress
from edge_server.transport.lease.keeper import LeaseKeeper
from schemas.messages import Lease, LeaseHolder, decode_message


def test_no_two_wills_have_the_same_beat() -> None:
    me = LeaseHolder(instance="a", host="pi", pid=1, since=0.0)
    keeper = LeaseKeeper(BrokerAddress("broker.invalid", 1883), "home", me)
    wills = [decode_message(keeper.will(session)[1], federation="home") for session in range(20)]
    beats = {will.beat for will in wills if isinstance(will, Lease)}
    assert len(beats) == 20
