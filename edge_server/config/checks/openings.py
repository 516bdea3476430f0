"""Checks of when rounds begin, and of runs without end."""

from collections.abc import Iterator

from edge_client.system.plugins import options_of
from edge_server.config.config import Config
from edge_server.strategy.selection.policies import SCHEDULES
from edge_server.strategy.strategy import Strategy
from schemas.errors import ConfigError


def opening_problems(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Occasions without rounds to wait between, and schedules over rounds of which there is no last."""
    run, spec = config.federation, config.strategy
    if run.when != "at-once" and config.clients.mode == "buffered":
        yield ConfigError(
            f"{run.when} means nothing in [clients] mode 'buffered', where rounds never wait",
            key="[federation] when",
            remedy='leave it out, or set mode = "rounds"',
        )
    measures = next((objective.name for objective in strategy.measuring), "")
    if measures and run.when != "at-once" and run.rounds_per_opening == 1:
        yield ConfigError(
            f"'{measures}' measures the model in the last round of each opening, and of 1 round "
            "none is left to train",
            key="[federation] rounds-per-opening",
            remedy="set 2 or more",
        )
    if run.rounds:
        return
    if measures and run.when == "at-once":
        yield ConfigError(
            f"'{measures}' measures the model in the last round, and with [federation] rounds = 0 "
            "there is none",
            key="[strategy] objectives",
            remedy="set rounds or when, or leave the objective out",
        )
    for key, schedule in (("fraction", spec.fraction), ("local-epochs", spec.local_epochs)):
        if schedule is not None and "rounds" in options_of(SCHEDULES[schedule.name]):
            yield ConfigError(
                f"'{schedule.name}' spreads over all rounds, and with [federation] rounds = 0 there "
                "is no last one",
                key=f"[strategy] {key}",
                remedy="set rounds, or use 'constant'",
            )


def check_can_be_simulated(config: Config) -> None:
    """Raise `ConfigError` for a run that ends or goes on only by what real devices report."""
    run, simulated, clients = config.federation, config.simulation, config.clients
    for key, wanted in (("start-clients", clients.start_clients), ("min-clients", clients.min_clients)):
        if wanted is not None and wanted > clients.num_clients:
            raise ConfigError(
                f"rounds wait for {wanted} devices, and {clients.num_clients} are simulated",
                key=f"[clients] {key}",
                remedy="lower it, or raise num-clients",
            )
    if not run.rounds and simulated.until_s is None:
        raise ConfigError(
            "0 never ends, and nobody stops a simulation",
            key="[federation] rounds",
            remedy="set the number of rounds, for instance with rounds=20, or its virtual time with "
            "simulation.until-s",
        )
    if run.when in ("new-data", "drift") and (not simulated.arrives_s or simulated.until_s is None):
        raise ConfigError(
            f'"{run.when}" needs data that grows, and simulated devices have all of theirs from the start',
            key="[federation] when",
            remedy="state simulation.arrives-s and until-s, or simulate with when=at-once, or with "
            '"every-s", whose time is virtual',
        )
