"""Whole masked rounds with the real state machines of both sides and devices lost at every step."""

from dataclasses import replace

import numpy as np
import pytest

from edge_client.agent.session.secure_participation import SecureParticipation
from edge_server.rounds.machine import RoundRules
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, Update
from schemas.tensors.chunks import Chunk
from tests.edge_server.rounds.masked_world import MaskedWorld
from tests.edge_server.rounds.world import Packet, World

# For a range of 4 and 9 devices of equal weight, a step is 4 / floor((2^31 - 1) / 9) = 1.7e-8 times the
# weight's share. A mean has an error of half a step, and float32 adds at most 2^-24 to a mean below 1.
ERROR = 0.5 * 4 / ((2**31 - 1) // 9) + 2.0**-24
NINE = RoundRules(rounds=1, start_clients=9, min_clients=3, deliver=False, rejoin_s=5.0, deadline_s=120.0)
THIRD = ("d0", "d3", "d4")


def is_the_plain_mean(world: MaskedWorld, number: int = -1) -> bool:
    close, mean = world.means[number]
    plain, _ = world.plain(close)
    return all((np.abs(mean[name] - plain[name]) <= ERROR).all() for name in plain)


def test_a_round_closes_with_the_sum_of_masked_updates():
    world = MaskedWorld(9, NINE)
    world.run_fairly()
    assert world.outcome == "finished"
    assert len(world.means[-1][0].updates) == 9
    assert is_the_plain_mean(world)


@pytest.mark.parametrize("stage", ["sharing", "masking"])
def test_a_round_survives_the_loss_of_a_third_after_the_key_exchange(stage):
    world = MaskedWorld(9, NINE)
    world.until(lambda: world.stage() == stage)
    for name in THIRD:
        world.kill(name)
    world.until(lambda: world.outcome is not None)
    assert world.outcome == "finished"
    assert len(world.means[-1][0].updates) == 6
    assert world.means[-1][0].dropped == THIRD
    assert is_the_plain_mean(world)


def test_devices_may_die_after_sending_their_masked_updates():
    world = MaskedWorld(9, NINE)
    world.until(lambda: world.stage() == "unmasking")
    for name in THIRD:
        world.kill(name)
    world.until(lambda: world.outcome is not None)
    assert world.outcome == "finished"
    assert len(world.means[-1][0].updates) == 9
    assert is_the_plain_mean(world)


def test_devices_without_keys_in_time_are_left_out():
    world = MaskedWorld(9, NINE)
    world.until(lambda: world.stage() == "keying")
    for name in THIRD:
        world.kill(name)
    world.until(lambda: world.outcome is not None)
    assert world.outcome == "finished"
    assert {member.name for member in world.means[-1][0].opened.cohort.members} == set(world.nodes) - set(
        THIRD
    )
    assert is_the_plain_mean(world)


def test_after_the_loss_of_more_than_a_third_the_round_is_planned_again():
    world = MaskedWorld(9, NINE)
    world.until(lambda: world.stage() == "masking")
    for name in (*THIRD, "d5"):
        world.kill(name)
    world.until(lambda: any(note.what == "round abandoned" for note in world.notes))
    assert "5 of 6 masked updates that a sum needs to be read" in world.notes[-1].detail
    world.run_fairly()
    assert world.outcome == "finished"
    assert is_the_plain_mean(world)


def test_too_few_devices_for_a_masked_sum_abandon_the_round_with_the_reason():
    world = MaskedWorld(3, RoundRules(rounds=1, start_clients=3, deliver=False, rejoin_s=5.0))
    world.until(lambda: world.stage() == "keying")
    world.kill("d0")
    world.until(lambda: any(note.what == "round abandoned" for note in world.notes))
    assert "2 devices for a masked sum over at least 3" in world.notes[-1].detail


def test_parameters_of_a_tier_with_only_two_remaining_devices_do_not_change():
    world = MaskedWorld(9, NINE)
    world.until(lambda: world.stage() == "masking")
    world.kill("d8")  # d2, d5 and d8 have the full model
    world.until(lambda: world.outcome is not None)
    _, mean = world.means[-1]
    # one.weight: all devices hold the first two rows, six the next two, only full models the last two
    assert (mean["one.weight"][:4] != 0).all()
    assert (mean["one.weight"][4:] == 0).all()
    # one.weight 2 x 3, two.weight 4 x 6 - 3 x 4, two.bias 1
    assert world.notes[-1].detail == "19 of 48 parameters have fewer than 3 holders and stay as they are"
    assert is_the_plain_mean(world)


def test_an_unmasked_update_never_leaves_its_device_even_if_requested():
    world = MaskedWorld(9, NINE)
    world.until(lambda: len(world.bare) == 9)
    for name in world.nodes:
        for digest in world.bare:
            request = BlobRequest(federation="home", device=name, digest=digest, first=0, count=64)
            world.network.append(Packet(name, False, request))
    world.run_fairly()
    updates = [content for content in world.seen if isinstance(content, Update)]
    chunks = [content for content in world.seen if isinstance(content, Chunk)]
    assert all(world.groups(update).keys() == {"masked"} for update in updates)
    assert not {chunk.prefix for chunk in chunks} & {digest[:16] for digest in world.bare}
    refusals = [content for content in world.seen if isinstance(content, Refusal)]
    assert sum(refusal.digest in world.bare for refusal in refusals) == 81


def test_a_sum_with_too_few_helpers_is_abandoned_and_they_help_with_no_other():
    world = MaskedWorld(9, NINE)
    world.until(lambda: world.stage() == "unmasking")
    for name in (*THIRD, "d5"):
        world.kill(name)
    world.until(lambda: any(note.what == "round abandoned" for note in world.notes))
    assert "5 of 6 devices helped to read the sum" in world.notes[-1].detail
    world.until(lambda: world.federation.masking is not None)
    world.until(lambda: any(note.what == "declined the task" for note in world.notes))
    assert world.notes[-1].reason is Reason.ALREADY_COUNTED
    assert not world.means


def test_a_device_that_only_sends_masked_updates_declines_unmasked_training():
    world = World(3, RoundRules(rounds=1, start_clients=3, deliver=False))
    world.nodes["d1"].session = replace(
        world.nodes["d1"].session, masks=SecureParticipation(only_masked=True)
    )
    world.run_fairly()
    assert world.outcome == "finished"
    assert world.closed[0].dropped == ("d1",)
    (note,) = [note for note in world.notes if not note.routine]
    assert (note.device, note.reason) == ("d1", Reason.INCOMPATIBLE)


def test_a_device_that_only_sends_masked_updates_participates_in_masked_rounds():
    world = MaskedWorld(9, NINE)
    world.nodes["d1"].session = replace(
        world.nodes["d1"].session, masks=SecureParticipation(only_masked=True)
    )
    world.run_fairly()
    assert "d1" in world.means[-1][0].updates


def test_a_device_restarted_with_other_keys_is_dropped_from_the_round():
    world = MaskedWorld(9, NINE)
    world.until(lambda: world.stage() == "masking")
    world.kill("d4")
    world.connect("d4")
    world.until(lambda: world.outcome is not None)
    assert world.outcome == "finished"
    assert world.means[-1][0].dropped == ("d4",)
    assert is_the_plain_mean(world)


def test_a_device_that_reconnects_stays_in_the_round():
    world = MaskedWorld(9, NINE)
    for stage in ("keying", "sharing", "masking", "unmasking"):
        world.until(lambda: world.stage() == stage)  # noqa: B023
        world.cut("d7")
        world.connect("d7")
    world.run_fairly()
    assert world.outcome == "finished"
    assert len(world.means[-1][0].updates) == 9
    assert is_the_plain_mean(world)


@pytest.mark.parametrize("seed", range(5))
def test_message_loss_and_device_failures_do_not_change_a_sum(seed):
    """Messages are lost, duplicated and reordered; processes die and links are cut; all devices return."""
    rules = RoundRules(rounds=2, start_clients=9, min_clients=3, deliver=False, rejoin_s=5.0, attempts=50)
    world = MaskedWorld(9, rules, seed)
    names = sorted(world.nodes)
    for _ in range(1000):
        name, chance = world.random.choice(names), world.random.random()
        if chance < 0.01:
            world.random.choice([world.kill, world.cut])(name)
        elif chance < 0.1 and not world.nodes[name].online:
            world.connect(name)
        else:
            world.one_bad_turn(loss=0.15)
    world.run_fairly()
    assert world.outcome == "finished"
    assert len(world.means) == 2
    assert all(is_the_plain_mean(world, number) for number in range(2))
