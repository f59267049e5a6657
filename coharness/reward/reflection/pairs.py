"""Preference pairs for training a judge, from attempts whose verdict is settled.

Both sides answer the same question, the better one passed. Partners are matched in length and format, so that neither can be told
from the other by its surface: a judge trained on unmatched pairs learns the surface. Where a task has passed attempts alone, a
worse side is made by cutting one off or corrupting it minimally. Near-copies are dropped, whole questions go to one split, and a
share of clean pairs is replayed so that what the judge knew is not forgotten.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coharness.records.ids import derive_seed, hash_unit
from coharness.reward.reflection.conflicts import Audited
from coharness.reward.reflection.minhash import drop_near_copies

REPLAY_SHARE = 0.3
HELD_OUT_SHARE = 0.2
PAIRS_PER_TASK = 4


class Origin(StrEnum):
    """Where the worse side comes from."""

    CONFLICT = "conflict"
    "An attempt that the judge rated high and the verifier failed."
    FAILED = "failed"
    "Another failed attempt."
    CUT = "cut"
    "A passed attempt without its end."
    CORRUPTED = "corrupted"
    "A passed attempt with one number or word changed."
    REPLAY = "replay"
    "A clean pair from before."


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Better and worse answer to one question."""

    task: str
    question: str
    better: str
    worse: str
    margin: float
    "Difference of the verifier's partial credit, in (0, 1]."
    origin: Origin
    held_out: bool = False
    "Whether it measures the trained judge and is never trained on."


def preference_pairs(
    attempts: Sequence[Audited], *, high: float = 0.7, replay: Sequence[Preference] = (), seed: int = 0
) -> list[Preference]:
    """Pairs of all tasks, in a fixed order; the same input and seed give the same pairs.

    Args:
        attempts: audited attempts of any tasks.
        high: judge's score from which a failed attempt is a conflict; conflicts are paired first.
        replay: clean pairs from before; as many are mixed in as make up 30 % of the training pairs.
        seed: of splits and corruptions.
    """
    by_task: dict[str, list[Audited]] = {}
    for attempt in attempts:
        by_task.setdefault(attempt.task, []).append(attempt)
    made: list[Preference] = []
    for task in sorted(by_task):
        # Within a task alone: questions of one family are made by one template and are all nearly copies of each other.
        made += drop_near_copies(_of_task(by_task[task], high, seed), key=lambda p: p.worse)
    training = sum(not p.held_out for p in made)
    wanted = min(len(replay), round(training * REPLAY_SHARE / (1 - REPLAY_SHARE)))
    drawn = sorted(replay, key=lambda p: hash_unit("replay", seed, p.question, p.better, p.worse))[:wanted]
    own = {p.question for p in made if p.held_out}
    # A question that is held out stays out, whatever brought it.
    return made + [_replayed(p) for p in drawn if p.question not in own]


def _replayed(pair: Preference) -> Preference:
    return Preference(
        task=pair.task,
        question=pair.question,
        better=pair.better,
        worse=pair.worse,
        margin=pair.margin,
        origin=Origin.REPLAY,
    )


def _of_task(attempts: Sequence[Audited], high: float, seed: int) -> list[Preference]:
    passed = _distinct(a for a in attempts if a.verified)
    failed = _distinct(a for a in attempts if not a.verified)
    if not passed:
        return []
    held_out = hash_unit("split", seed, passed[0].question) < HELD_OUT_SHARE
    pairs = []
    conflicts = sorted((a for a in failed if a.judged >= high), key=lambda a: (-a.judged, a.answer))
    others = sorted((a for a in failed if a.judged < high), key=lambda a: (-a.judged, a.answer))
    for worse in [*conflicts, *others][:PAIRS_PER_TASK]:
        better = min(passed, key=lambda a: _mismatch(a, worse))
        origin = Origin.CONFLICT if worse.judged >= high else Origin.FAILED
        pairs.append(_pair(better, worse.answer, 1.0 - worse.partial, origin, held_out))
    if not failed:
        better = passed[0]
        for text, origin in ((_cut(better.answer), Origin.CUT), (_corrupted(better.answer, seed), Origin.CORRUPTED)):
            if text is not None and text not in {a.answer for a in passed}:
                pairs.append(_pair(better, text, 1.0, origin, held_out))
    return pairs


def _pair(better: Audited, worse: str, margin: float, origin: Origin, held_out: bool) -> Preference:
    return Preference(
        task=better.task,
        question=better.question,
        better=better.answer,
        worse=worse,
        margin=max(margin, 0.05),
        origin=origin,
        held_out=held_out,
    )


def _distinct(attempts: Iterable[Audited]) -> list[Audited]:
    seen: dict[str, Audited] = {}
    for attempt in attempts:
        seen.setdefault(attempt.answer, attempt)
    return list(seen.values())


def _mismatch(a: Audited, b: Audited) -> tuple[bool, float, str]:
    longest = max(len(a.answer), len(b.answer), 1)
    return a.format != b.format, abs(len(a.answer) - len(b.answer)) / longest, a.answer


def _cut(answer: str) -> str | None:
    """The answer without its last third, None where too little is left to read."""
    kept = answer[: 2 * len(answer) // 3].rstrip()
    return kept if len(kept) >= 2 else None


_NUMBER = re.compile(r"\d+")
_WORDS = re.compile(r"\w+")


def _corrupted(answer: str, seed: int) -> str | None:
    """The answer with one number off by a little, or two neighbouring words exchanged; None where there is neither."""
    numbers = list(_NUMBER.finditer(answer))
    draw = derive_seed("corrupt", seed, answer)
    if numbers:
        match = numbers[draw % len(numbers)]
        changed = str(int(match.group()) + 1 + draw % 3)
        return answer[: match.start()] + changed + answer[match.end() :]
    words = list(_WORDS.finditer(answer))
    swappable = [i for i in range(len(words) - 1) if words[i].group() != words[i + 1].group()]
    if not swappable:
        return None
    one = swappable[draw % len(swappable)]
    a, b = words[one], words[one + 1]
    return answer[: a.start()] + b.group() + answer[a.end() : b.start()] + a.group() + answer[b.end() :]
