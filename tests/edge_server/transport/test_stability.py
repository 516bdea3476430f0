"""When a server takes the end of its connections for another server of its name."""

from edge_server.transport.stability import Stability


def after(*lasted: float) -> Stability:
    """The stability after connections that lasted so long, in seconds."""
    found, now = Stability(), 0.0
    for seconds in lasted:
        found = found.up(now).down(now + seconds)
        now += seconds + 1
    return found


def test_a_server_that_never_had_a_connection_of_its_own_gives_up() -> None:
    assert not after(1, 1, 1, 1).contested
    assert after(1, 1, 1, 1, 1).contested
    assert not after(1, 1, 1, 1, 1).settled


def test_a_server_that_had_one_knows_that_it_was_there_first() -> None:
    found = after(20, 1, 1, 1, 1, 1)
    assert (found.contested, found.settled) == (True, True)
    assert not after(1, 1, 1, 1, 6, 1).contested


def test_connections_that_cannot_be_made_are_no_rivals() -> None:
    found = Stability()
    for now in range(20):
        found = found.down(float(now))
    assert not found.contested
