"""Which trainers the device has, and which one it takes."""

from collections.abc import Iterator, Mapping

from edge_client.cli.doctor.finding import Finding, failure, ok, warning
from edge_client.training.choice import (
    MARGIN,
    PROCESS_BYTES,
    choose_trainers,
    installed_trainers,
    missing,
    outdated_runtime,
    torch_fits,
)
from schemas.errors import ConfigError
from schemas.values import TrainerName


def trainers(
    wanted: str, free_memory: int | None, needed: Mapping[TrainerName, int] = PROCESS_BYTES
) -> Iterator[Finding]:
    """A finding per trainer, then the choice of `--trainer` with that much free memory."""
    here = installed_trainers()
    yield from (_one(name, size, needed=not here) for name, size in needed.items())
    yield _choice(wanted, free_memory, here, needed)


def first_trainer(
    wanted: str, free_memory: int | None, needed: Mapping[TrainerName, int] = PROCESS_BYTES
) -> TrainerName:
    """The trainer that the device takes; onnxruntime, which takes least, if none can train."""
    try:
        return choose_trainers(wanted, free_memory=free_memory, needed=needed)[0]
    except ConfigError:
        return "onnx"


def _one(name: TrainerName, size: int, *, needed: bool) -> Finding:
    """A trainer that is not installed is a problem if there is no other, and an outdated one always is."""
    check, (reason, _, remedy) = f"trainer {name}", missing(name).partition(": ")
    if not reason:
        return ok(check, f"installed; its process takes about {_megabytes(size)} before training")
    if needed or (name == "onnx" and outdated_runtime()):
        return warning(check, reason, remedy)
    return ok(check, f"{reason}, and another trainer is")


def _choice(
    wanted: str,
    free_memory: int | None,
    here: tuple[TrainerName, ...],
    needed: Mapping[TrainerName, int],
) -> Finding:
    check = f"--trainer {wanted}"
    if wanted == "auto" and not here:
        return warning(check, "nothing can train here", "install a trainer, or let the board only infer")
    try:
        first, *others = choose_trainers(wanted, free_memory=free_memory, needed=needed)
    except ConfigError as error:
        reason, _, remedy = str(error).removeprefix(f"{check}: ").partition(": ")
        return failure(check, reason, remedy)
    if wanted != "auto":
        return ok(check, f"takes {first}, as asked")
    further = f"; {others[0]} where the server finds that {first} does not fit" if others else ""
    return ok(check, f"takes {first}: {_reason(first, free_memory, here, needed)}{further}")


def _reason(
    first: TrainerName,
    free_memory: int | None,
    here: tuple[TrainerName, ...],
    needed: Mapping[TrainerName, int],
) -> str:
    if len(here) == 1:
        return "no other is usable"
    wanted = f"torch should find {_megabytes(MARGIN * needed['torch'])}"
    if free_memory is None:
        return f"{wanted}, and free memory is unknown"
    verb = "and" if torch_fits(free_memory, needed) else "but only"
    return f"{wanted}, {verb} {_megabytes(free_memory)} are free"


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.0f} MB"
