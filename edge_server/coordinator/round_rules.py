"""The rules of the rounds, from a federation file."""

from edge_server.config.config import Config
from edge_server.config.run_sections import FederationSettings
from edge_server.rounds import fleet, openings, reputation
from edge_server.rounds.state import Buffering, RoundRules
from schemas.base import fields_of
from schemas.selectors import parse_where


def make_rules(config: Config) -> RoundRules:
    run, clients, privacy = config.federation, config.clients, config.privacy
    at_once = clients.concurrency or clients.num_clients
    buffering = Buffering(clients.buffer_size, clients.max_staleness, at_once)
    return RoundRules(
        rounds=run.last_round,
        start_clients=clients.start_clients or clients.num_clients,
        min_clients=max(clients.min_clients, privacy.min_holders if privacy.secure_aggregation else 1),
        **fields_of(clients, "quorum", "over_select", "deadline_s", "rejoin_s", "uploads_at_once"),
        deliver=run.deliver != "none",
        deliver_every=_deliver_every(run),
        roll_back=run.roll_back,
        # The privacy that a run spends depends on the devices chosen once per round.
        replaces=privacy.mechanism == "none",
        buffering=buffering if clients.mode == "buffered" else None,
        reputation=reputation.ReputationRules(
            config.firewall.quarantine_after,
            config.firewall.quarantine_window,
            config.firewall.quarantine_rounds,
        ),
        masking_step_s=privacy.masking_step_s,
        goes_on=config.federation.statistics and config.data.scaling == "federated",
        opening=openings.OpeningRules(
            run.when, run.rounds_per_opening, run.every_s, run.new_examples, run.drifting, run.first_rounds
        ),
        sites=run.sites,
    )


def make_membership(config: Config) -> fleet.Membership:
    """The devices that the configuration chooses."""
    run = config.federation
    return fleet.Membership(parse_where(config.clients.where), run.name, run.sites)


def _deliver_every(run: FederationSettings) -> int:
    """Rounds between deliveries: by default a run that waits for occasions delivers after each."""
    if run.deliver == "none" or run.deliver_every or run.when == "at-once":
        return run.deliver_every
    return run.rounds_per_opening
