"""Owns how figures and proposals are spelled, the same on the page, in the terminal and in the claims."""

import math
from datetime import UTC, datetime

from coharness.records.proposals import ProposalKind, VerdictKind
from coharness.report.timeline import ProposalLife
from coharness.stats.interval import Interval

PROPOSAL_WORDS = {
    ProposalKind.HARNESS: "harness edit",
    ProposalKind.PAIR: "challenge of the champion",
    ProposalKind.MERGE: "merge",
    ProposalKind.NULL: "A/A test",
    ProposalKind.ROLLBACK: "rollback watch",
}

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage, such as `41.3 %`; the number and its sign never part at the end of a line."""
    return f"{100 * share:.{digits}f}\u202f%"


def signed(value: float, digits: int = 1) -> str:
    """A number with its sign; a true minus, and no sign for what rounds to zero."""
    shown = f"{value:+.{digits}f}"
    return shown[1:] if float(shown) == 0 else shown.replace("-", "−")


def span(interval: Interval) -> str:
    """The ends of an interval of shares, such as `38.0 – 44.6`."""
    return f"{100 * interval.low:.1f} – {100 * interval.high:.1f}"


def points(interval: Interval) -> str:
    """A difference of shares in percentage points with its interval."""
    value, low, high = (signed(100 * x) for x in (interval.value, interval.low, interval.high))
    return f"{value} points (95\u202f% interval {low} to {high})"


def duration(seconds: float) -> str:
    """Seconds as `48 s`, `12 min 05 s` or `3 h 20 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def time_unit(total_s: float) -> tuple[float, str]:
    """Seconds of the unit in which an axis up to `total_s` is readable, and its name."""
    for seconds, name in ((3600.0, "hours"), (60.0, "minutes")):
        if total_s >= 3 * seconds:
            return seconds, name
    return 1.0, "seconds"


def count(value: float) -> str:
    """A count with commas between thousands."""
    return f"{round(value):,}"


def compact(value: float) -> str:
    """A count on an axis: 800, 6.4k, 1.2M."""
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def plain(text: str) -> str:
    """Text with ordinary spaces, for terminals and files that people search."""
    return text.replace("\u202f", " ")


def evalue(log_evalue: float) -> str:
    """An e-value from its natural logarithm; above a million such as `4.0 × 10⁹`."""
    if log_evalue < math.log(1e6):
        value = math.exp(log_evalue)
        return f"{value:.3g}" if value >= 0.001 else "< 0.001"
    power, rest = divmod(log_evalue / math.log(10), 1)
    return f"{10**rest:.1f}\u202f×\u202f10{str(int(power)).translate(_SUPERSCRIPTS)}"


def needed(level: float) -> str:
    """The e-value that a test of this level needs, empty where it spends none."""
    return f"{1 / level:.3g}" if level > 0 else ""


def moment(time: float) -> str:
    """A wall time in UTC, such as `2026-01-31 14:05 UTC`; empty where it is unknown."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC") if time > 0 else ""


def change(life: ProposalLife) -> str:
    """What a proposal changes, in words."""
    proposal = life.proposal
    match proposal.kind:
        case ProposalKind.NULL:
            return f"nothing: {proposal.challenger} against itself"
        case ProposalKind.ROLLBACK:
            return f"back to {proposal.challenger} from {proposal.incumbent}"
        case ProposalKind.MERGE:
            return f"{proposal.challenger.version} ({proposal.operator}) against {proposal.incumbent.version}"
        case _:
            return "; ".join(life.edits) or "nothing that the genomes show"


def became(life: ProposalLife) -> str:
    """What became of a proposal, as a short state."""
    if life.verdict is None:
        return "open"
    return {
        VerdictKind.ACCEPTED: "accepted",
        VerdictKind.REJECTED: "rejected",
        VerdictKind.WITHDRAWN: "withdrawn",
    }[life.verdict.kind]
