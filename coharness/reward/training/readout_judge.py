"""A judge whose verdict is read from a local engine: the log-odds of one token after question and answer.

    r = log p(good) - log p(bad), value = sigmoid((r - bias) / temperature)

Satisfies `AttemptJudge`, and judges pairs and lists by differences of the same read-outs: a pair is judged once, its sign turns
with the order, and a list has no cycles. A judge that writes reasons writes one first, greedily, and is read after it; what
ends in no verdict is a PARSE failure. Nothing here knows how the engine computes.
"""

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from coharness.records.errors import CoharnessError, WeightsError
from coharness.records.protocols import ChoiceRequest, GenerationRequest, JudgingEngine
from coharness.reward.algebra.part import Part, PartOutcome
from coharness.reward.judges.budget import Budget, BudgetSpent
from coharness.reward.judges.cache import JudgmentCache, cache_key
from coharness.reward.judges.judgment import Cost, Judgment, Ranking, Versions
from coharness.reward.judges.prefilter import degenerate
from coharness.reward.training.record import JudgeRecord
from coharness.reward.training.verdict_prompt import PROTOCOL, shown, verdict_place, verdict_tokens

logger = logging.getLogger(__name__)
REASON_TOKENS = 96
"""Longest reason that is written."""
PART = "judge/score"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read of one answer."""

    outcome: PartOutcome
    log_odds: float = math.nan
    "Of the good verdict against the bad one, not calibrated; NaN where the outcome is not OK."
    reason: str = ""
    "What the judge wrote before its verdict, or why there is none."
    flags: tuple[str, ...] = ()
    cost: Cost = field(default_factory=Cost)
    cached: bool = False


class ReadoutJudge:
    """Judges by a read-out; satisfies `AttemptJudge`. Safe in threads: one call of the engine at a time."""

    def __init__(
        self,
        record: JudgeRecord,
        engine: JudgingEngine,
        *,
        budget: Budget | None = None,
        cache: JudgmentCache | None = None,
    ) -> None:
        """Args:
        record: What it is.
        engine: Holds the base and loads the adapter by its reference.
        budget: What it may spend; a call is one answer read.
        cache: Where readings are kept under all they depend on.

        Raises:
            WeightsError: the record is of another protocol or other verdicts.
            PreflightError: the base has no verdicts at all.
        """
        self._record, self._engine, self._cache = record, engine, cache
        self._budget = budget or Budget(max_calls=10**12, max_tokens=10**15)
        self._tokens = verdict_tokens(engine.codec)
        if record.protocol != PROTOCOL or record.words != self._tokens.words:
            raise WeightsError(
                f"the judge was trained by protocol {record.protocol} with verdicts {'/'.join(record.words)}, here they are "
                f"{PROTOCOL} with {'/'.join(self._tokens.words)}; train it again"
            )
        self._versions = Versions(model=f"{record.base}+{record.id}", rubric=f"standard@{record.id}", protocol=PROTOCOL)
        self._lock = threading.Lock()

    @property
    def record(self) -> JudgeRecord:
        """What it is."""
        return self._record

    @property
    def versions(self) -> Versions:
        """What stands in its judgments."""
        return self._versions

    @property
    def budget(self) -> Budget:
        """What it may still spend."""
        return self._budget

    @property
    def part_names(self) -> tuple[str, ...]:
        """The score alone: it has no criteria."""
        return (PART,)

    def close(self) -> None:
        """Close engine and cache."""
        self._engine.close()
        if self._cache is not None:
            self._cache.close()

    # Judgments -------------------------------------------------------------------------------------------------------

    def judge(self, question: str, completions: Sequence[str]) -> list[tuple[Part, ...]]:
        """The part `judge/score` of each completion, in order."""
        parts: list[tuple[Part, ...]] = []
        for judgment in self.score_all([(question, text) for text in completions]):
            if judgment.value is None:
                parts.append((Part.failed(PART, judgment.outcome, judgment.reason),))
            else:
                parts.append((Part.ok(PART, judgment.value, judgment.reason),))
        return parts

    def score_all(self, items: Sequence[tuple[str, str]]) -> list[Judgment]:
        """Scores of (question, candidate) items, in order; a candidate without content is worth 0 and is not shown."""
        worthless = [degenerate(candidate) for _, candidate in items]
        asked = [item for item, rule in zip(items, worthless, strict=True) if rule is None]
        read = iter(self.read(asked))
        judgments = []
        for rule in worthless:
            if rule is not None:
                reason = f"{rule.rule}: {rule.reason}"
                judgments.append(
                    self._judgment(0.0, Reading(outcome=PartOutcome.OK, reason=reason, flags=("degenerate",)))
                )
            else:
                reading = next(read)
                judgments.append(self._judgment(self._score(reading), reading))
        return judgments

    def pair_all(self, items: Sequence[tuple[str, str, str]]) -> list[Judgment]:
        """Preferences of (question, first, second) items for the first, in [-1, 1]: 2 P(it is better) - 1."""
        empty = [tuple(degenerate(text) is not None for text in both) for _, *both in items]
        asked = [item for item, hollow in zip(items, empty, strict=True) if not any(hollow)]
        read = iter(self.read([(question, text) for question, *both in asked for text in both]))
        judged = []
        for hollow in empty:
            if any(hollow):
                reading = Reading(outcome=PartOutcome.OK, flags=("degenerate",))
                judged.append(self._judgment(float(hollow[1]) - float(hollow[0]), reading))
                continue
            one, two = next(read), next(read)
            graver = max((one, two), key=lambda reading: reading.outcome.gravity)
            both = replace(
                graver, cost=one.cost + two.cost, cached=one.cached and two.cached, flags=_union(one.flags, two.flags)
            )
            judged.append(self._judgment(self._preference(one, two), both))
        return judged

    def rank(self, question: str, candidates: Sequence[str]) -> Ranking:
        """The order of 2 or more candidates by their scores; ties stand in the order given.

        Raises:
            ValueError: fewer than 2 candidates.
        """
        if len(candidates) < 2:
            raise ValueError(f"got {len(candidates)} candidates, expected 2 or more")
        scored = self.score_all([(question, text) for text in candidates])
        failed = max(scored, key=lambda judgment: judgment.outcome.gravity)
        cost = sum((j.cost for j in scored), Cost())
        if failed.value is None:
            return Ranking(outcome=failed.outcome, reason=failed.reason, versions=self._versions, cost=cost)
        values = [j.value or 0.0 for j in scored]
        above = [sum(v > other for other in values) + (values.count(v) - 1) / 2 for v in values]
        return Ranking(
            outcome=PartOutcome.OK,
            order=tuple(sorted(range(len(values)), key=lambda i: (-values[i], i))),
            points=tuple(points / (len(values) - 1) for points in above),
            flags=_union(*(j.flags for j in scored)),
            versions=self._versions,
            cost=cost,
            cached=all(j.cached for j in scored),
        )

    # Readings --------------------------------------------------------------------------------------------------------

    def read(self, items: Sequence[tuple[str, str]]) -> list[Reading]:
        """Readings of (question, answer) items, in order; equal ones are read once."""
        distinct = list(dict.fromkeys(items))
        found: dict[tuple[str, str], Reading] = {}
        asked: list[tuple[tuple[str, str], list[int], tuple[str, ...]]] = []
        for item in distinct:
            prompt = shown(*item, standard=self._record.standard, words=self._record.words)
            kept = None if self._cache is None else self._cache.get(self._key(item))
            if kept is not None:
                found[item] = Reading(
                    outcome=PartOutcome.OK,
                    log_odds=kept["log_odds"],
                    reason=kept["reason"],
                    flags=prompt.flags,
                    cached=True,
                )
                continue
            ids = self._engine.codec.encode_prompt(prompt.text)
            room = self._record.max_context - len(ids) - (REASON_TOKENS if self._record.writes_reasons else 1)
            if room < 0:
                reason = f"question and answer are {len(ids)} tokens, {-room} more than this judge reads"
                found[item] = Reading(outcome=PartOutcome.ABSTAIN, reason=reason, flags=prompt.flags)
                continue
            try:
                self._budget.take_call()
            except BudgetSpent as error:
                found[item] = Reading(outcome=PartOutcome.ABSTAIN, reason=str(error), flags=prompt.flags)
                continue
            asked.append((item, ids, prompt.flags))
        for (item, _, flags), reading in zip(asked, self._ask([ids for _, ids, _ in asked]), strict=True):
            found[item] = replace(reading, flags=flags)
            self._budget.add_tokens(reading.cost.tokens_in, reading.cost.tokens_out)
            if self._cache is not None and reading.outcome is PartOutcome.OK:
                self._cache.put(self._key(item), {"log_odds": reading.log_odds, "reason": reading.reason})
        return [found[item] for item in items]

    def _ask(self, prompts: Sequence[list[int]]) -> list[Reading]:
        if not prompts:
            return []
        try:
            with self._lock:
                written = self._reasons(prompts) if self._record.writes_reasons else [[]] * len(prompts)
                where = [self._place(ids) if self._record.writes_reasons else 0 for ids in written]
                whole = [
                    p + list(ids[:at]) for p, ids, at in zip(prompts, written, where, strict=True) if at is not None
                ]
                pairs = iter(self._engine.read([self._request(ids) for ids in whole]))
        except CoharnessError as error:
            logger.warning("%d answers could not be read: %s", len(prompts), error)
            return [Reading(outcome=PartOutcome.INFRA, reason=str(error), cost=Cost(calls=1)) for _ in prompts]
        readings = []
        for prompt, ids, at in zip(prompts, written, where, strict=True):
            cost = Cost(calls=1, tokens_in=len(prompt), tokens_out=len(ids))
            if at is None:
                text = self._engine.codec.decode(ids)
                reason = f"what it wrote ends in no verdict: {text[-80:]!r}"
                readings.append(Reading(outcome=PartOutcome.PARSE, reason=reason, cost=cost))
                continue
            good, bad = next(pairs)
            said = self._engine.codec.decode(ids[:at]).strip()
            readings.append(Reading(outcome=PartOutcome.OK, log_odds=good - bad, reason=said, cost=cost))
        return readings

    def _request(self, ids: Sequence[int]) -> ChoiceRequest:
        choices = (self._tokens.good, self._tokens.bad)
        return ChoiceRequest(prompt_ids=tuple(ids), weights=self._record.weights, choices=choices)

    def _place(self, ids: Sequence[int]) -> int | None:
        return verdict_place(ids, self._tokens, self._engine.codec.eos_id)

    def _reasons(self, prompts: Sequence[list[int]]) -> list[list[int]]:
        requests = [
            GenerationRequest(
                prompt_ids=tuple(ids),
                weights=self._record.weights,
                seed=0,
                position=0,
                temperature=0.0,
                max_new_tokens=REASON_TOKENS,
            )
            for ids in prompts
        ]
        return [g.output_ids for g in self._engine.generate(requests)]

    def _score(self, reading: Reading) -> float | None:
        if reading.outcome is not PartOutcome.OK:
            return None
        return _sigmoid((reading.log_odds - self._record.bias) / self._record.temperature)

    def _preference(self, one: Reading, two: Reading) -> float | None:
        if not one.outcome is two.outcome is PartOutcome.OK:
            return None
        return math.tanh((one.log_odds - two.log_odds) / self._record.temperature / 2)

    def _judgment(self, value: float | None, reading: Reading) -> Judgment:
        return Judgment(
            outcome=reading.outcome,
            value=value,
            flags=reading.flags,
            reason=reading.reason,
            versions=self._versions,
            cost=reading.cost,
            cached=reading.cached,
        )

    def _key(self, item: tuple[str, str]) -> str:
        record = self._record
        return cache_key(
            tenant="",
            model=record.weights.digest + record.base_digest,
            rubric=record.standard,
            protocol=PROTOCOL,
            mode="readout",
            question=item[0],
            candidates=item[1:],
            settings=[list(record.words), record.writes_reasons, record.max_context],
        )


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _union(*flags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({flag for found in flags for flag in found}))
