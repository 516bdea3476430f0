"""The sum over masked updates equals the plain sum despite drop-outs, and no smaller sum can be read."""

from dataclasses import replace

import numpy as np
import pytest

from edge_client.security.secure_aggregation import masked_figures, masks, protocol
from edge_server.security.secure_aggregation import protocol as machine
from schemas.errors import PeerError
from schemas.messages import MAX_MESSAGE_BYTES, EntrustedShares, UnmaskAnswer, UnmaskRequest, encode_message
from schemas.submodel import SubModelSpec
from tests.edge_server.security.secure_aggregation.cohorts import (
    CHANNELS,
    FULL,
    MIDDLE,
    SMALL,
    Cohort,
    carried,
    task_of,
    terms_of,
)

# Nine devices of three tiers; a third of them may drop out, so six must help.
NINE = (SMALL, SMALL, SMALL, MIDDLE, MIDDLE, MIDDLE, FULL, FULL, FULL)
WEIGHTS = (1, 20, 3, 40, 5, 60, 7, 80, 100)
WITHOUT_FULL = {"d06"}
THIRD = {"d00", "d03", "d04"}


def nine(**changes):
    return Cohort(NINE, terms_of(NINE, **changes), WEIGHTS)


def close_to_the_plain_mean(cohort, opened):
    mean, _ = cohort.mean(opened)
    plain, bound = cohort.plain_mean(list(opened.survivors), opened.segments)
    return all((np.abs(mean[name] - plain[name]) <= bound[name]).all() for name in plain)


@pytest.mark.parametrize(
    ("stages", "survivors"),
    [
        ({}, 9),
        ({"lost_before_shares": THIRD}, 6),
        ({"lost_before_masked": THIRD}, 6),
        ({"lost_before_help": THIRD}, 9),
        ({"lost_before_shares": {"d00"}, "lost_before_masked": {"d03"}, "lost_before_help": {"d04"}}, 7),
    ],
    ids=["nobody drops", "before shares", "before the update", "before helping", "one at each"],
)
def test_the_secure_mean_is_the_plain_mean_over_survivors(stages, survivors):
    cohort = nine()
    opened = cohort.run(**stages)
    assert len(opened.survivors) == survivors
    assert opened.segments == (0, 1, 2)
    assert close_to_the_plain_mean(cohort, opened)


def test_weights_of_a_segment_are_those_of_its_surviving_holders():
    cohort = nine()
    opened = cohort.run(lost_before_masked=THIRD)
    totals = cohort.totals(opened).items()
    by_holders = {cohort.terms.segments[index].holders: total[-1] for index, total in totals}
    small, middle, full = (cohort.terms.specs.index(spec) for spec in (SMALL, MIDDLE, FULL))
    # all: 20 + 3 + 60 + 7 + 80 + 100; middle and full tiers: 60 + 7 + 80 + 100; full tier: 7 + 80 + 100
    expected = {(small, middle, full): 270, (middle, full): 247, (full,): 187}
    assert by_holders == {tuple(sorted(holders)): weight for holders, weight in expected.items()}


def test_a_segment_with_too_few_holders_is_never_sent():
    specs = NINE[:8]  # two full models, but three are required
    cohort = Cohort(specs, terms_of(specs), WEIGHTS[:8])
    opened = cohort.run()
    alone = cohort.terms.segments.index(
        next(
            segment
            for segment in cohort.terms.segments
            if segment.holders == (cohort.terms.specs.index(FULL),)
        )
    )
    assert all(alone not in sent for sent in cohort.sent.values())
    assert alone not in opened.segments
    assert close_to_the_plain_mean(cohort, opened)


def test_a_segment_below_the_threshold_after_drop_outs_stays_masked():
    cohort = nine()
    opened = cohort.run(lost_before_masked=WITHOUT_FULL)
    full = next(
        index
        for index, segment in enumerate(cohort.terms.segments)
        if segment.holders == (cohort.terms.specs.index(FULL),)
    )
    assert all(full in cohort.sent[name] for name in ("d07", "d08"))
    assert full not in opened.segments
    assert all(full not in seeds for seeds in opened.seeds.values())
    # No answer contains seed shares of that segment: only of two segments, or one for the smallest tier.
    answers = cohort.server.answers.values()
    assert {len(answer.seeds["d08"]) for answer in answers} == {2}
    assert {len(answer.seeds["d00"]) for answer in answers} == {1}
    assert close_to_the_plain_mean(cohort, opened)


def test_an_update_is_readable_only_without_its_own_and_all_shared_masks():
    cohort = nine()
    cohort.run()
    chosen, scale = protocol.masks(cohort.devices["d04"])
    _, labels = masked_figures.partition(cohort.terms.specs, CHANNELS)
    vectors = masked_figures.split(cohort.updates["d04"], MIDDLE, labels, CHANNELS)
    for index, sent in cohort.sent["d04"].items():
        bare = masks.quantise(vectors[index], 5, scale)
        own, *shared = chosen.added[index]
        without_shared = masks.shift_vector(sent, added=chosen.subtracted[index], subtracted=tuple(shared))
        without_own = masks.shift_vector(sent, added=(), subtracted=(own,))
        # Each mask is uniform over 2^32 and equals a given number by chance once in four billion.
        assert not (without_shared == bare).any()
        assert not (without_own == bare).any()
        assert (masks.shift_vector(without_shared, added=(), subtracted=(own,)) == bare).all()


def test_fewer_answers_than_the_threshold_open_nothing():
    cohort = nine()
    cohort.key()
    cohort.share()
    cohort.mask()
    assert cohort.unmask(silent={"d00", "d01", "d02", "d03"}) is None


def test_a_device_reveals_shares_of_a_seed_or_of_a_key_and_never_of_both():
    cohort = nine()
    cohort.run(lost_before_masked={"d05"})
    for answer in cohort.server.answers.values():
        assert answer.keys.keys() == {"d05"}
        assert answer.seeds.keys() == set(cohort.names) - {"d05"}


def test_a_device_does_not_help_with_a_second_set_of_survivors():
    cohort = nine()
    cohort.run()
    device = cohort.devices["d00"]
    request = machine.pending_requests(replace(cohort.server, answers={}))[0]
    assert protocol.unmask(device, request) == device
    fewer = request.model_copy(update={"survivors": request.survivors[:-1]})
    with pytest.raises(PeerError, match="another set"):
        protocol.unmask(device, fewer)


def test_a_device_does_not_help_with_too_few_survivors():
    cohort = nine()
    cohort.key()
    cohort.share()
    cohort.mask()
    header = cohort.devices["d00"].header
    with pytest.raises(PeerError, match="5 survivors are too few"):
        protocol.unmask(cohort.devices["d00"], UnmaskRequest(**header, survivors=tuple(cohort.names[:5])))


def test_a_device_joins_only_one_cohort_per_attempt():
    cohort = nine()
    cohort.key()
    cohort.share()
    device = cohort.devices["d00"]
    smaller = device.cohort.model_copy(update={"members": device.cohort.members[:-1]})
    with pytest.raises(PeerError, match="second cohort"):
        protocol.join_cohort(device, smaller)


def test_a_device_refuses_a_cohort_that_lists_other_keys_for_it():
    cohort = nine()
    cohort.key()
    _, introductions = machine.form_cohort(cohort.server)
    own, *others = introductions[0].members
    forged = introductions[0].model_copy(
        update={"members": (own.model_copy(update={"mask_key": others[0].mask_key}), *others)}
    )
    with pytest.raises(PeerError, match="does not list this device as it is"):
        protocol.join_cohort(cohort.devices["d00"], forged)


def test_devices_in_different_cohorts_cannot_read_each_others_shares():
    cohort = nine()
    cohort.key()
    _, introductions = machine.form_cohort(cohort.server)
    whole = introductions[0]
    smaller = introductions[1].model_copy(update={"members": whole.members[:-1]})
    first = protocol.join_cohort(cohort.devices["d00"], whole)
    second = protocol.join_cohort(cohort.devices["d01"], smaller)
    parcels = dict.fromkeys(cohort.names[1:], second.shares.shares["d00"])
    message = EntrustedShares(**first.header, shares=parcels)
    with pytest.raises(PeerError, match="another cohort"):
        protocol.accept_shares(first, message)


def test_the_same_entropy_gives_the_same_messages():
    first, second = nine(), nine()
    first.run()
    second.run()
    assert first.server.shares == second.server.shares
    assert all(
        (numbers == second.sent[name][index]).all()
        for name, sent in first.sent.items()
        for index, numbers in sent.items()
    )


def test_a_repeated_message_gets_the_same_answer():
    cohort = nine()
    cohort.key()
    cohort.share()
    device = cohort.devices["d03"]
    server, again = machine.take_part(cohort.server, protocol.advertisement(device))
    assert (server, again) == (cohort.server, [device.cohort])
    cohort.mask()
    server, again = machine.take_part(cohort.server, device.shares)
    assert server == cohort.server
    assert protocol.accept_shares(cohort.devices["d03"], again[0]) == cohort.devices["d03"]


def test_messages_for_a_hundred_devices_with_five_segments_fit_the_limit():
    specs = tuple(SubModelSpec(kept={"a": count}) for count in range(1, 6)) * 20
    cohort = Cohort(specs, terms_of(specs), (1,) * 100)
    cohort.key()
    _, introductions = machine.form_cohort(cohort.server)
    largest = introductions[4]  # for the largest sub-model, which holds every segment
    device = protocol.join_cohort(cohort.devices["d04"], carried(largest))
    parcels = {name: shares for name, shares in device.shares.shares.items() if name != "d00"}
    relayed = EntrustedShares(**cohort.devices["d00"].header, shares=parcels)
    answer = UnmaskAnswer(**device.header, seeds=dict.fromkeys(cohort.names, ("0" * 66,) * 5))
    sizes = [len(encode_message(message)) for message in (largest, device.shares, relayed, answer)]
    # A parcel has 6 shares of 33 bytes and a tag of 16 bytes: 428 hex digits, for each of 99 devices.
    assert sizes[1] == pytest.approx(99 * (2 * (6 * 33 + 16) + len('"d00":"",')), rel=0.01)
    assert max(sizes) < MAX_MESSAGE_BYTES / 5


def test_tiers_that_do_not_contain_each_other_share_a_common_segment():
    wide, deep = SMALL.model_copy(update={"kept": {"a": 4}}), SMALL.model_copy(update={"kept": {"b": 2}})
    parts, labels = masked_figures.partition((wide, deep), CHANNELS)
    # one.weight: 4 rows of 3 in both, 2 in deep only; two.weight: 2x4 in both, 2x2 in each only, 2x2 in none
    assert [part.holders for part in parts] == [(0,), (1,), (0, 1)]
    assert [part.size for part in parts] == [2 * 4 + 2, 2 * 3 + 2 * 2, 4 * 3 + 2 * 4 + 2 + 2]
    assert (labels["two.weight"][2:, 4:] == -1).all()


def test_a_device_refuses_segments_that_do_not_match_its_channel_map():
    terms = terms_of(NINE)
    first, *rest = terms.segments
    forged = first.model_copy(update={"size": first.size + 1})
    with pytest.raises(PeerError, match="not those of the sub-models"):
        masked_figures.checked_labels(terms.model_copy(update={"segments": (forged, *rest)}), CHANNELS)


def test_a_sub_model_that_the_terms_omit_is_not_masked():
    task = task_of(terms_of((SMALL, FULL)), MIDDLE)
    with pytest.raises(PeerError, match="not among those to mask"):
        protocol.begin("d00", task, bytes(32))
