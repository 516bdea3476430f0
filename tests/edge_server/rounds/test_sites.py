"""Sites at the server: who is there, and the sums that close a round."""

from dataclasses import replace

import pytest

from edge_server.rounds import events
from edge_server.rounds.machine import Phase
from edge_server.rounds.participant import Status
from edge_server.rounds.sites.presence import Sites
from schemas.errors import Reason
from schemas.messages import BlobRequest, SiteBirth, SiteDeath, SiteReceipt, SiteSum, SumRequest, Update
from schemas.tensors.chunks import Chunk
from tests.edge_server.rounds.by_hand import CHUNK, NAME, RUN, Run, of, ref_of, started
from tests.edge_server.rounds.test_fleet import birth

SITES = ("b", "c")
DEVICES = ("b.1", "b.2", "c.1", "z")
SUM = b"sum" * 1000
WEIGHTS = {"b.1": 3, "b.2": 5, "c.1": 7}


def site_run(*devices: str, **rules) -> Run:
    """A federation with two sites whose gateways are there."""
    run = started(sites=SITES, start_clients=len(devices), quorum=0.5, **rules)
    run.federation = replace(run.federation, sites=Sites(SITES))
    for site in SITES:
        run.tell(born(site))
    for device in devices:
        run.hear(birth(device))
    run.plan(*devices)
    assert run.phase is Phase.TRAINING
    return run


def born(site: str, session: int = 1) -> events.SiteSpoke:
    return events.SiteSpoke(site, SiteBirth(federation=NAME, site=site, session=session))


def died(site: str, session: int = 1) -> events.SiteSpoke:
    return events.SiteSpoke(site, SiteDeath(federation=NAME, site=site, session=session))


def receipt(device: str, **more) -> SiteReceipt:
    return SiteReceipt(site=device.split(".")[0], norms={"model": 0.1, "model peak": 1.0}, moved=True, **more)


def lie(run: Run, device: str, reason: Reason | None = None, **more) -> list:
    """An update of a device lies at its site, and is checked."""
    claim = run.claim(device).model_copy(update={"receipt": receipt(device, **more)})
    commands = run.hear(claim)
    assert events.CheckUpdate(device, claim) in commands
    return commands + run.tell(events.UpdateChecked(device, claim.blob.digest, reason))


def gathered(**rules) -> tuple[Run, events.WeighUpdates]:
    """A round whose updates wait to be weighed."""
    run, commands = site_run(*DEVICES, **rules), []
    for device in DEVICES[:3]:
        commands = lie(run, device)
    commands = run.upload("z")
    (weighing,) = of(events.WeighUpdates, commands)
    assert not of(events.CloseRound, commands)
    return run, weighing


def requests(commands: list) -> dict[str, SumRequest]:
    sent = [c for c in of(events.SendToSite, commands) if isinstance(c.message, SumRequest)]
    return {command.site: command.message for command in sent}


def offer(run: Run, site: str, **more) -> events.SiteSpoke:
    members = {device: weight for device, weight in WEIGHTS.items() if device.startswith(f"{site}.")}
    about = {"federation": NAME, "site": site, "run": RUN, "round": 1}
    about["request"] = run.federation.summing.asked.requests[site].digest
    return events.SiteSpoke(site, SiteSum(**{**about, "members": members, "blob": ref_of(SUM), **more}))


def deliver_sum(run: Run, site: str) -> list:
    """The site sends its sum, which is checked."""
    run.tell(offer(run, site))
    commands = []
    for index, at in enumerate(range(0, len(SUM), CHUNK)):
        commands += run.tell(
            events.SiteChunkReceived(site, Chunk(ref_of(SUM).digest[:16], index, SUM[at : at + CHUNK]))
        )
    assert of(events.CheckSum, commands) == [events.CheckSum(site, ref_of(SUM))]
    return run.tell(events.SumChecked(site, ref_of(SUM).digest))


# --- presence ---
def test_a_gateway_gets_the_terms_of_the_run():
    run = started(sites=SITES)
    run.federation = replace(run.federation, sites=Sites(SITES))
    assert of(events.SendTerms, run.tell(born("b"))) == [events.SendTerms("b")]


def test_with_its_gateway_all_devices_of_a_site_are_lost_and_no_others():
    run = site_run(*DEVICES)
    run.tell(died("b"))
    alive = {device.name for device in run.federation.fleet.alive()}
    assert alive == {"c.1", "z"}
    run.wait(run.federation.rules.rejoin_s + 1)
    assert [run.status(device) for device in DEVICES] == [
        Status.MISSED,
        Status.MISSED,
        Status.OFFERED,
        Status.OFFERED,
    ]


def test_a_late_death_of_an_earlier_session_takes_nobody_away():
    run = site_run(*DEVICES)
    run.tell(born("b", session=2))
    run.tell(died("b", session=1))
    assert len(run.federation.fleet.alive()) == len(DEVICES)


def test_births_that_were_retained_wait_for_their_gateway():
    run = site_run(*DEVICES)
    run.tell(died("b"))
    run.hear(birth("b.1", 2))
    assert "b.1" not in {device.name for device in run.federation.fleet.alive()}
    run.tell(born("b", session=2))
    assert "b.1" in {device.name for device in run.federation.fleet.alive()}


# --- receipts ---
def test_an_update_at_a_site_is_checked_without_its_bytes():
    run = site_run(*DEVICES)
    commands = lie(run, "b.1")
    assert run.status("b.1") is Status.COUNTED
    assert not [c for c in of(events.Send, commands) if isinstance(c.message, BlobRequest)]


def test_the_small_groups_of_an_update_at_a_site_are_fetched():
    run, small = site_run(*DEVICES), b"g" * 1500
    claim = run.claim("b.1").model_copy(update={"receipt": receipt("b.1", groups=ref_of(small))})
    run.hear(claim)
    from edge_server.rounds.events import ChunkReceived

    commands = []
    for index, at in enumerate(range(0, len(small), CHUNK)):
        chunk = Chunk(ref_of(small).digest[:16], index, small[at : at + CHUNK])
        commands += run.tell(ChunkReceived("b.1", chunk))
    assert events.CheckUpdate("b.1", claim) in commands


def test_an_update_that_a_site_refuses_is_refused_here():
    run = site_run(*DEVICES)
    lie(run, "b.1", Reason.NOT_FINITE)
    assert run.status("b.1") is Status.REFUSED


# --- sums ---
def test_a_round_with_sites_is_closed_with_their_sums():
    run, weighing = gathered()
    asked = requests(run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6)))
    assert {s: {d: m.weight for d, m in r.members.items()} for s, r in asked.items()} == {
        "b": {"b.1": 3, "b.2": 5},
        "c": {"c.1": 7},
    }
    assert all(
        weighing.close.updates[d].blob.digest == m.digest
        for r in asked.values()
        for d, m in r.members.items()
    )
    assert not of(events.CloseRound, deliver_sum(run, "b"))
    (close,) = of(events.CloseRound, deliver_sum(run, "c"))
    assert close.sums.keys() == {"b", "c"}
    assert close.updates.keys() == set(DEVICES)
    run.tell(events.RoundClosed(1))
    assert run.federation.round == 2


def test_updates_that_do_not_fit_the_others_are_not_part_of_a_sum():
    run, _ = gathered()
    asked = requests(run.tell(events.UpdatesWeighed(1, {"b.2": 5}, 10**6)))
    assert {site: [*request.members] for site, request in asked.items()} == {"b": ["b.2"]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": {"b.1": 3}},
        {"members": {"b.1": 3, "b.2": 6}},
        {"members": {"b.1": 3, "b.2": 5, "c.1": 7}},
        {"blob": ref_of(bytes(2000))},
    ],
    ids=["fewer", "other weights", "more", "too large"],
)
def test_a_sum_of_other_members_or_weights_is_refused_counted_and_named(wrong):
    run, _ = gathered()
    run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6 if "members" in wrong else 1999))
    commands = run.tell(offer(run, "b", **wrong))
    note, *_ = [note for note in of(events.Note, commands) if note.what == "sum refused"]
    assert (note.device, note.reason) == ("b", Reason.WRONG_SUM)
    (weighing,) = of(events.WeighUpdates, commands)
    assert weighing.close.updates.keys() == {"c.1", "z"}


def test_an_answer_to_an_earlier_request_of_the_round_is_none_to_this_one():
    run, _ = gathered()
    run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6))
    earlier = run.federation.summing.asked.requests["b"].model_copy(update={"round": 2}).digest
    assert run.tell(offer(run, "b", request=earlier)) == []
    assert run.tell(offer(run, "b", request=earlier, members={}, blob=None, lost=("b.1",))) == []
    assert run.tell(offer(run, "b"))


def test_a_sum_that_fails_its_check_costs_no_time_and_its_site_is_quarantined():
    run, _ = gathered(rounds=20)
    run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6))
    deliver_sum(run, "c")
    run.tell(offer(run, "b"))
    commands = run.tell(events.SumChecked("b", ref_of(SUM).digest, "too large"))
    (weighing,) = of(events.WeighUpdates, commands)
    assert weighing.close.updates.keys() == {"c.1", "z"}
    assert events.RecordStrike("site b", 1, Reason.WRONG_SUM) in commands
    assert ("quarantined", "b") in [(note.what, note.device) for note in of(events.Note, commands)]
    (close,) = of(events.CloseRound, run.tell(events.UpdatesWeighed(1, {"c.1": 7}, 10**6)))
    assert close.sums.keys() == {"c"}
    (plan,) = of(events.PlanRound, run.tell(events.RoundClosed(1)))
    assert [device.name for device in plan.devices] == ["c.1", "z"]
    assert [each.device.name for each in plan.left_out] == ["b.1", "b.2"]
    assert all(
        "quarantined until round 11 after 1 refusal (wrong-sum)" in each.because for each in plan.left_out
    )


def test_a_damaged_sum_is_requested_once_more_and_at_once():
    run, _ = gathered()
    run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6))
    run.tell(offer(run, "b"))
    damaged = events.SumChecked("b", ref_of(SUM).digest, "other bytes", damaged=True)
    assert not of(events.RecordStrike, run.tell(damaged))
    assert "b" in requests(run.wait(0.25))
    run.tell(offer(run, "b"))
    assert of(events.WeighUpdates, run.tell(damaged))


def test_a_silent_site_is_asked_again_and_one_that_returns_at_once():
    run, _ = gathered()
    run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6))
    assert not requests(run.wait(1))
    assert requests(run.wait(10)).keys() == {"b", "c"}
    run.tell(died("b"))
    assert requests(run.tell(born("b", 2))).keys() == {"b"}


def test_a_site_that_is_gone_gives_up_its_members_and_the_rest_is_weighed_again():
    run, _ = gathered(rejoin_s=10)
    run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6))
    deliver_sum(run, "c")
    run.tell(died("b"))
    assert not of(events.WeighUpdates, run.wait(9))
    (weighing,) = of(events.WeighUpdates, run.wait(2))
    assert weighing.close.updates.keys() == {"c.1", "z"}
    assert {"b.1", "b.2"} <= set(weighing.close.dropped)
    (close,) = of(events.CloseRound, run.tell(events.UpdatesWeighed(1, {"c.1": 7}, 10**6)))
    assert close.sums.keys() == {"c"}


def test_with_other_weights_a_site_is_asked_for_another_sum():
    run, _ = gathered(rejoin_s=10)
    run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6))
    deliver_sum(run, "c")
    run.tell(died("b"))
    run.wait(11)
    assert requests(run.tell(events.UpdatesWeighed(1, {"c.1": 6}, 10**6))).keys() == {"c"}


def test_a_sum_that_does_not_come_until_the_deadline_is_given_up():
    run, _ = gathered(deadline_s=50)
    run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6))
    (weighing,) = of(events.WeighUpdates, run.wait(51))
    assert "b.1" not in weighing.close.updates


def test_too_few_updates_without_a_lost_site_abandon_the_round():
    run, _ = gathered(rejoin_s=10)
    run.federation = replace(run.federation, summing=replace(run.federation.summing, quorum=3))
    run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6))
    run.tell(died("b"))
    commands = run.wait(11)
    assert not of(events.WeighUpdates, commands)
    assert run.phase is Phase.WAITING
    assert run.federation.summing is None
    assert any(note.what == "round abandoned" for note in of(events.Note, commands))


def test_updates_that_a_site_has_lost_are_dropped_alone():
    run, _ = gathered()
    run.tell(events.UpdatesWeighed(1, WEIGHTS, 10**6))
    (weighing,) = of(events.WeighUpdates, run.tell(offer(run, "b", members={}, blob=None, lost=("b.1",))))
    assert weighing.close.updates.keys() == {"b.2", "c.1", "z"}


def test_a_repeated_claim_with_its_receipt_is_answered_like_the_first():
    run = site_run(*DEVICES)
    lie(run, "b.1")
    claim: Update = run.claim("b.1").model_copy(update={"receipt": receipt("b.1")})
    (answer,) = of(events.Send, run.hear(claim))
    assert answer.message.kind == "acknowledgement"
