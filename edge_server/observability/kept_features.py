"""What frozen layers computed once of the devices' examples, and what devices keep of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from edge_server.config.units import bytes_text, clean, count_text, counted_text
from edge_server.storage.records import RoundRecord

KEPT_COLUMNS = ("device", "examples", "computed", "taken from kept ones", "kept", "rounds that computed")
MAX_ROUNDS = 6  # rounds that a row names


@dataclass(frozen=True)
class DeviceFeatures:
    """A device's features over all rounds: those `computed`, in these `rounds`, and those taken from `kept`
    ones (`hits`); examples and bytes kept are those of its last round.
    """

    device: str
    examples: int
    computed: int
    hits: int
    bytes: int
    rounds: tuple[int, ...]

    def as_row(self) -> list[str]:
        """The texts of `KEPT_COLUMNS`."""
        named = [str(number) for number in self.rounds[:MAX_ROUNDS]]
        more = len(self.rounds) - len(named)
        rounds = ", ".join([*named, *([f"{more} more"] if more else [])]) or "none"
        counts = map(count_text, (self.examples, self.computed, self.hits))
        return [clean(self.device), *counts, bytes_text(self.bytes), rounds]


def kept_features(history: Sequence[RoundRecord]) -> list[DeviceFeatures]:
    """The features of each device that trained on some, by its name."""
    devices = sorted({device for record in history for device in record.features})
    return [_of_device(device, history) for device in devices]


def describe_kept(devices: Sequence[DeviceFeatures]) -> str:
    """What all devices together computed and keep; empty without features."""
    if not devices:
        return ""
    computed, hits = (sum(getattr(each, name) for each in devices) for name in ("computed", "hits"))
    kept, where = bytes_text(sum(each.bytes for each in devices)), counted_text(len(devices), "device")
    return (
        f"{counted_text(computed, 'example')} passed frozen layers on {where}; "
        f"{counted_text(hits, 'pass')} more were not needed, and {kept} are kept"
    )


def _of_device(device: str, history: Sequence[RoundRecord]) -> DeviceFeatures:
    seen = {record.round: record.features[device] for record in history if device in record.features}
    last = [*seen.values()][-1]
    return DeviceFeatures(
        device,
        last.examples,
        sum(each.computed for each in seen.values()),
        sum(max(0, each.examples - each.computed) for each in seen.values()),
        last.bytes,
        tuple(number for number, each in seen.items() if each.computed),
    )
