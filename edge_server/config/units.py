"""Numbers for people: three significant digits, decimal units, and a dash for unknown values."""

from collections.abc import Callable, Mapping, Sequence

from edge_client.data.tasks import words
from edge_client.data.tasks.learning_task import Metric
from schemas.errors import in_number

UNKNOWN = "-"
PREFIXES = ("", "k", "M", "G", "T", "P")


def bytes_text(count: float | None) -> str:
    """Bytes in decimal units: `1.66 MB`."""
    return UNKNOWN if count is None else f"{scale_count(count)}B"


def si_text(count: float | None) -> str:
    """A large count: `43.2 M`."""
    return UNKNOWN if count is None else scale_count(count).rstrip()


def scale_count(count: float) -> str:
    """Three digits, a space and the prefix, which is empty below a thousand."""
    value = float(count)
    for prefix in PREFIXES[:-1]:
        # What would round to 1000 belongs to the next prefix.
        if abs(value) < 999.5:
            return f"{value:.3g} {prefix}"
        value /= 1000
    return f"{value:,.0f} {PREFIXES[-1]}"


def count_text(count: int | None) -> str:
    """An exact count: `1,663,370`."""
    return UNKNOWN if count is None else f"{count:,}"


def counted_text(count: int, thing: str) -> str:
    """A count with its noun: `1 round`, `2 rounds`."""
    return f"{count_text(count)} {in_number(count, thing)}"


def percent_text(share: float | None) -> str:
    """A share of one as a percentage: `97.12%`."""
    return UNKNOWN if share is None else f"{share:.2%}"


def figure_text(metric: Metric) -> Callable[[float | None], str]:
    """The text of one figure: `97.12%` of a share, else `0.1234`."""
    return lambda value: UNKNOWN if value is None else metric.text(value)


def leading_text(figures: Mapping[str, float]) -> str:
    """The leading figure of any task: `97.12%` of accuracy, else `mae 0.1234`."""
    return words.figure_text(figures, UNKNOWN)


def ratio_text(ratio: float) -> str:
    """A pruning ratio in whole percent: `70%`."""
    return f"{ratio:.0%}"


def loss_text(loss: float | None) -> str:
    """A loss to three decimals, in powers of ten if it is huge."""
    if loss is None:
        return UNKNOWN
    return f"{loss:.3f}" if abs(loss) < 1000 else f"{loss:.2e}"


def number_text(value: float | None) -> str:
    """Three digits; `12,345` and not a power of ten, unless it is huge."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if 999.5 <= abs(value) < 1e7 else f"{value:.3g}"


def duration_text(seconds: float) -> str:
    """A duration: `4.2 s`, `1 min 05 s`, `2 h 03 min`."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def clock_text(seconds: float) -> str:
    """A running clock in whole seconds: `0:05`, `1:02:03`."""
    whole = max(0, int(seconds))
    minutes = f"{whole // 60 % 60:02}" if whole >= 3600 else f"{whole // 60}"
    return f"{whole // 3600}:{minutes}:{whole % 60:02}" if whole >= 3600 else f"{minutes}:{whole % 60:02}"


def names_text(names: Sequence[str], *, most: int = 6) -> str:
    """A list of names; beyond `most` the rest is counted."""
    shown = ", ".join(clean(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def clean(text: str) -> str:
    """Text from elsewhere on one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
