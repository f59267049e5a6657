"""The test that every change of a judge passes before it judges: fresh settled samples decide, frozen anchors may veto.

A sample is one comparison whose truth is known; champion and challenger are right (1), wrong (0) or undecided (1/2) on it. Fresh
samples are looked at in the order of their ids, by the sequential rule that harnesses are promoted by, at a level of this judge's
own error budget (e-LOND over all its changes). Anchors are the same every time: what was chosen often on them proves nothing, so
they only veto, by evidence of harm.

What a policy scores under a judge has no way in: a judge that a policy has learned to please would win by it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coharness.records.errors import ConfigError, PreflightError
from coharness.reward.training.record import write_text
from coharness.stats.online_fdr import ELond
from coharness.stats.sequential import GateDecision, GateVerdict, PairedCounts, SequentialRule

LEDGER_FILE = "ledger.json"
LOOK_EVERY = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One settled comparison under both judges."""

    id: str
    "Content hash of the comparison."
    champion: float
    "1 right, 0 wrong, 1/2 undecided."
    challenger: float

    def __post_init__(self) -> None:
        if not {self.champion, self.challenger} <= {0.0, 0.5, 1.0}:
            raise ValueError(
                f"sample {self.id} has {self.champion!r} and {self.challenger!r}; expected 1 right, 0 wrong or 1/2 undecided"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What this judge's tests have used up."""

    num_tests: int = 0
    num_accepted: int = 0
    spent: frozenset[str] = frozenset()
    "Ids of fresh samples that decided once."


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeVerdict:
    """What became of a change."""

    decision: GateDecision
    fresh: PairedCounts
    "Of the samples that were looked at."
    anchors: PairedCounts
    level: float
    "Of this test."
    ledger: Ledger
    "After it."

    @property
    def promoted(self) -> bool:
        """Whether the challenger judges from now on."""
        return self.decision.verdict is GateVerdict.ACCEPT


def decide_change(
    ledger: Ledger,
    *,
    fresh: Sequence[Sample],
    anchors: Sequence[Sample],
    trained_on: frozenset[str] = frozenset(),
    budget: ELond | None = None,
    min_effect: float = 0.03,
) -> ChangeVerdict:
    """Hold a challenger against the champion; all samples that were looked at are spent.

    Args:
        ledger: Of this judge, from before.
        fresh: Samples that no test has used and no judge was fitted on.
        anchors: The frozen ones.
        trained_on: Ids of comparisons that the challenger was fitted or calibrated on.
        budget: Of this judge's changes; a false discovery rate of .1 where left out.
        min_effect: Least gain in accuracy worth a change.

    Raises:
        ConfigError: no fresh sample or no anchor, or one that is spent, trained on, or stands twice.
    """
    budget = budget or ELond()
    check_samples(ledger, fresh, anchors, trained_on)
    ordered = sorted(fresh, key=lambda sample: sample.id)
    level = budget.level(ledger.num_tests + 1, ledger.num_accepted)
    rule = SequentialRule(alpha=level, look_every=LOOK_EVERY, max_pairs=len(ordered), min_effect=min_effect)
    held = count_samples(anchors)
    seen = 0
    while True:
        seen = min(seen + LOOK_EVERY, len(ordered))
        decision = rule.decide(count_samples(ordered[:seen]), {}, held)
        if decision.verdict is not GateVerdict.CONTINUE:
            break
    accepted = decision.verdict is GateVerdict.ACCEPT
    after = replace(
        ledger,
        num_tests=ledger.num_tests + 1,
        num_accepted=ledger.num_accepted + accepted,
        spent=ledger.spent | {sample.id for sample in ordered[:seen]},
    )
    return ChangeVerdict(
        decision=decision, fresh=count_samples(ordered[:seen]), anchors=held, level=level, ledger=after
    )


def check_samples(
    ledger: Ledger, fresh: Sequence[Sample], anchors: Sequence[Sample], trained_on: frozenset[str]
) -> None:
    """Accept samples that may decide.

    Raises:
        ConfigError: none, or one that is spent, trained on, or stands twice.
    """
    ids = {sample.id for sample in fresh}
    if not fresh or not anchors:
        raise ConfigError(
            f"got {len(fresh)} fresh samples and {len(anchors)} anchors, expected at least one of each; settle more examples"
        )
    twice = len(fresh) - len(ids) + len(ids & {sample.id for sample in anchors})
    if twice:
        raise ConfigError(f"{twice} samples stand twice among the fresh ones and the anchors; each counts once")
    for what, used in (("decided about an earlier change", ledger.spent), ("were trained on", trained_on)):
        if found := ids & used:
            raise ConfigError(
                f"{len(found)} of {len(fresh)} fresh samples {what}, {min(found)} among them; settle new ones: what was used "
                "once proves nothing a second time"
            )


def count_samples(samples: Sequence[Sample]) -> PairedCounts:
    """On how many the challenger alone is right, the champion alone, or both alike."""
    wins = sum(sample.challenger > sample.champion for sample in samples)
    losses = sum(sample.challenger < sample.champion for sample in samples)
    return PairedCounts(wins=wins, losses=losses, ties=len(samples) - wins - losses)


def read_ledger(folder: Path) -> Ledger:
    """The ledger of a judge's folder; a new one where there is none.

    Raises:
        PreflightError: it is damaged.
    """
    path = folder / LEDGER_FILE
    if not path.is_file():
        return Ledger()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Ledger(
            num_tests=int(data["num_tests"]),
            num_accepted=int(data["num_accepted"]),
            spent=frozenset(map(str, data["spent"])),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PreflightError(
            f"cannot read the ledger {path}: {error}; without it no fresh sample can be told from a spent one"
        ) from error


def write_ledger(folder: Path, ledger: Ledger) -> None:
    """Keep the ledger, durably and all at once."""
    data: Mapping[str, object] = {
        "num_tests": ledger.num_tests, "num_accepted": ledger.num_accepted, "spent": sorted(ledger.spent)
    }  # fmt: skip
    write_text(folder / LEDGER_FILE, json.dumps(data, indent=1) + "\n")
