"""The rubric judge: scores, pairs and rankings by one rubric, through a pool of endpoints.

Pairs are judged in both orders and averaged; verdicts that turn with the order say nothing and abstain. Rankings are made in
two orders, each the other's reverse, and merged by how many others a candidate was placed above. Every failure is a judgment
with an outcome: INFRA where no answer came, PARSE where one came that is none, twice; ABSTAIN where the budget is spent.
"""

import copy
import logging
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from scipy import stats

from coharness.reward.algebra.part import Part, PartOutcome
from coharness.reward.judges.budget import Budget, BudgetSpent
from coharness.reward.judges.cache import JudgmentCache, cache_key
from coharness.reward.judges.client import CallError
from coharness.reward.judges.guard import guard
from coharness.reward.judges.judgment import Cost, Judgment, Ranking, Versions
from coharness.reward.judges.pool import EndpointPool
from coharness.reward.judges.prefilter import degenerate
from coharness.reward.judges.prompt import PROTOCOL, Ask, Mode, Precedent, messages_of, schema_of
from coharness.reward.judges.rubric import Rubric
from coharness.reward.judges.verdict import Unreadable, Verdict, read_verdict

logger = logging.getLogger(__name__)

Recall = Callable[[str], Sequence[Precedent]]
"""Precedents that may help with a question; see `retrieval`."""
_A = TypeVar("_A")
_B = TypeVar("_B")
READINGS = 2
"""How often an answer is asked for when it cannot be read."""


class RubricJudge:
    """Judges by a rubric; satisfies `AttemptJudge`. Safe in threads."""

    def __init__(
        self,
        rubric: Rubric,
        pool: EndpointPool,
        *,
        budget: Budget,
        cache: JudgmentCache | None = None,
        concurrency: int = 8,
        recall: Recall | None = None,
        tenant: str = "",
        draw_boundary: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        """`draw_boundary` draws a call's boundary; only tests replace it."""
        self._rubric = rubric
        self._pool = pool
        self._budget = budget
        self._cache = cache
        self._recall = recall
        self._tenant = tenant
        self._draw = draw_boundary
        self._threads = ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="judge")
        self._versions = Versions(model=pool.model, rubric=f"{rubric.name}@{rubric.version}", protocol=PROTOCOL)

    @property
    def rubric(self) -> Rubric:
        """What it judges by."""
        return self._rubric

    @property
    def versions(self) -> Versions:
        """What stands in its judgments."""
        return self._versions

    @property
    def pool(self) -> EndpointPool:
        """Its endpoints."""
        return self._pool

    @property
    def budget(self) -> Budget:
        """What it may still spend."""
        return self._budget

    @property
    def part_names(self) -> tuple[str, ...]:
        """`judge/score` and `judge/<criterion>`."""
        return ("judge/score", *(f"judge/{c.name}" for c in self._rubric.criteria))

    def for_tenant(self, tenant: str) -> "RubricJudge":
        """The same judge with cache keys of its own; shares endpoints, budget and threads, and is not to be closed apart."""
        view = copy.copy(self)
        view._tenant = tenant
        return view

    def close(self) -> None:
        """End its threads and close its cache."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._cache is not None:
            self._cache.close()

    # Batches ---------------------------------------------------------------------------------------------------------

    def judge(self, question: str, completions: Sequence[str]) -> list[tuple[Part, ...]]:
        """Parts of each completion, in order; equal completions are judged once."""
        distinct = list(dict.fromkeys(completions))
        judged = dict(zip(distinct, self.score_all([(question, text) for text in distinct]), strict=True))
        return [self._parts(judged[text]) for text in completions]

    def score_all(self, items: Sequence[tuple[str, str]]) -> list[Judgment]:
        """Scores of (question, candidate) items, in order; only those that must be paid for take a thread."""
        ready = [self._at_hand(question, candidate) for question, candidate in items]
        asked = iter(
            self._map(lambda item: self.score(*item), [i for i, j in zip(items, ready, strict=True) if j is None])
        )
        return [next(asked) if judgment is None else judgment for judgment in ready]

    def _at_hand(self, question: str, candidate: str) -> Judgment | None:
        """The score where it costs no call, None where an endpoint must be asked."""
        if degenerate(candidate) is None:
            if self._cache is None or self._recall is not None:
                return None
            if self._cache.get(self._key(Mode.SCORE, question, (candidate,), ())) is None:
                return None
        return self.score(question, candidate)

    def pair_all(self, items: Sequence[tuple[str, str, str]]) -> list[Judgment]:
        """Preferences of (question, first, second) items, in order."""
        return self._map(lambda item: self.pair(*item), items)

    def _map(self, judge: Callable[[_A], _B], items: Sequence[_A]) -> list[_B]:
        return [judge(item) for item in items] if len(items) == 1 else list(self._threads.map(judge, items))

    def _parts(self, judgment: Judgment) -> tuple[Part, ...]:
        if judgment.value is None:
            return tuple(Part.failed(name, judgment.outcome, judgment.reason) for name in self.part_names)
        summary = "; ".join(f"{name}: {reason}" for name, reason in judgment.reasons.items())
        return (
            Part.ok("judge/score", judgment.value, summary or judgment.reason),
            *(
                Part.ok(f"judge/{c.name}", judgment.criteria[c.name], judgment.reasons.get(c.name, judgment.reason))
                for c in self._rubric.criteria
            ),
        )

    # Single judgments ------------------------------------------------------------------------------------------------

    def score(self, question: str, candidate: str) -> Judgment:
        """The score of one candidate."""
        worthless = degenerate(candidate)
        if worthless is not None:
            return self._worthless(worthless.rule, worthless.reason)
        verdict, judgment = self._settle(Mode.SCORE, question, (candidate,))
        if verdict is None:
            return judgment
        return replace(
            judgment,
            outcome=PartOutcome.OK,
            value=self._rubric.score(verdict["values"]),
            criteria=verdict["values"],
            reasons=verdict["reasons"],
            reason="",
        )

    def pair(self, question: str, first: str, second: str) -> Judgment:
        """The preference for the first candidate, from both orders; abstains where they contradict each other."""
        verdicts = [degenerate(first), degenerate(second)]
        if any(verdicts):
            if all(verdicts):
                return self._failed(PartOutcome.ABSTAIN, "both candidates are degenerate")
            worse = verdicts[0] or verdicts[1]
            value = -1.0 if verdicts[0] else 1.0
            return replace(
                self._failed(PartOutcome.ABSTAIN, f"{worse.rule}: {worse.reason}" if worse else ""),
                outcome=PartOutcome.OK,
                value=value,
                criteria={c.name: value for c in self._rubric.criteria},
                flags=("degenerate",),
            )
        if first == second:
            return replace(
                self._failed(PartOutcome.ABSTAIN, "the candidates are equal"),
                outcome=PartOutcome.OK,
                value=0.0,
                criteria={c.name: 0.0 for c in self._rubric.criteria},
            )
        there, one = self._settle(Mode.PAIR, question, (first, second))
        if there is None:
            return one
        back, two = self._settle(Mode.PAIR, question, (second, first))
        both = replace(one, cost=one.cost + two.cost, cached=one.cached and two.cached)
        if back is None:
            return replace(two, cost=both.cost)
        if there["overall"] * back["overall"] > 0:
            return replace(
                both,
                outcome=PartOutcome.ABSTAIN,
                value=None,
                reason="the preference turns with the order of the candidates",
            )
        return replace(
            both,
            outcome=PartOutcome.OK,
            value=(there["overall"] - back["overall"]) / 2,
            criteria={name: (value - back["values"][name]) / 2 for name, value in there["values"].items()},
            reasons=there["reasons"],
            reason=there["notes"].get("overall", ""),
        )

    def rank(self, question: str, candidates: Sequence[str]) -> Ranking:
        """The order of 2 to 16 candidates, from two passes in opposite orders; degenerate ones come last.

        Raises:
            ValueError: fewer than 2 candidates, or more than 16.
        """
        if not 2 <= len(candidates) <= 16:
            raise ValueError(f"got {len(candidates)} candidates, expected 2 to 16; a longer list is ranked by scores")
        alive = [i for i, text in enumerate(candidates) if degenerate(text) is None]
        if len(alive) < 2:
            reason = "fewer than two candidates are more than degenerate"
            return Ranking(outcome=PartOutcome.ABSTAIN, reason=reason, versions=self._versions)
        passes: list[list[int]] = []
        cost, cached, flags = Cost(), True, set[str]()
        for order in (alive, alive[::-1]):
            shown = tuple(candidates[i] for i in order)
            verdict, judgment = self._settle(Mode.RANK, question, shown)
            cost, cached, flags = cost + judgment.cost, cached and judgment.cached, flags | set(judgment.flags)
            if verdict is None:
                return Ranking(outcome=judgment.outcome, reason=judgment.reason, versions=self._versions, cost=cost)
            passes.append([order[place] for place in verdict["order"]])
        return self._merged(len(candidates), passes, cost, cached=cached, flags=tuple(sorted(flags)))

    def _merged(
        self, num: int, passes: Sequence[Sequence[int]], cost: Cost, *, cached: bool, flags: tuple[str, ...]
    ) -> Ranking:
        points = [0.0] * num
        for order in passes:
            for place, index in enumerate(order):
                # Degenerate candidates are not shown: everyone who is stands above them.
                points[index] += (num - 1 - place) / (num - 1) / len(passes)
        one, two = ([order.index(i) for i in sorted(order)] for order in passes)
        return Ranking(
            outcome=PartOutcome.OK,
            order=tuple(sorted(range(num), key=lambda i: (-points[i], i))),
            points=tuple(points),
            agreement=float(stats.kendalltau(one, two).statistic),
            flags=flags,
            versions=self._versions,
            cost=cost,
            cached=cached,
        )

    # One call --------------------------------------------------------------------------------------------------------

    def _settle(self, mode: Mode, question: str, candidates: tuple[str, ...]) -> tuple[dict[str, Any] | None, Judgment]:
        """A verdict from cache or endpoint as JSON values, and the judgment it will be part of; None with the failure."""
        precedents = tuple(self._recall(question)) if self._recall else ()
        key = self._key(mode, question, candidates, precedents)
        kept = None if self._cache is None else self._cache.get(key)
        if kept is not None:
            return kept, replace(self._failed(PartOutcome.ABSTAIN, ""), flags=tuple(kept["flags"]), cached=True)
        guarded = [guard(text) for text in (question, *candidates)]
        flags = tuple(sorted({flag for text in guarded for flag in text.flags}))
        ask = Ask(
            mode=mode,
            rubric=self._rubric,
            question=guarded[0].text,
            candidates=tuple(g.text for g in guarded[1:]),
            precedents=precedents,
        )
        verdict, judgment = self._ask(ask, replace(self._failed(PartOutcome.ABSTAIN, ""), flags=flags))
        if verdict is None:
            return None, judgment
        data = {
            "values": verdict.values,
            "reasons": verdict.reasons,
            "overall": verdict.overall,
            "order": list(verdict.order),
            "notes": verdict.notes,
            "flags": list(flags),
        }
        if self._cache is not None:
            self._cache.put(key, data)
        return data, judgment

    def _key(self, mode: Mode, question: str, candidates: Sequence[str], precedents: Sequence[Precedent]) -> str:
        return cache_key(
            tenant=self._tenant,
            model=self._versions.model,
            rubric=self._versions.rubric,
            protocol=PROTOCOL,
            mode=mode,
            question=question,
            candidates=candidates,
            settings=[[p.question, p.candidate, p.value, p.note] for p in precedents] or None,
        )

    def _ask(self, ask: Ask, blank: Judgment) -> tuple[Verdict | None, Judgment]:
        cost, problem = Cost(), ""
        schema = schema_of(ask)
        calls = 0

        def take() -> None:
            nonlocal calls
            self._budget.take_call()
            calls += 1

        for _ in range(READINGS):
            boundary = self._draw()
            calls = 0
            try:
                completion = self._pool.complete(messages_of(ask, boundary), schema=schema, on_call=take)
            except BudgetSpent as error:
                return None, replace(blank, reason=str(error), cost=cost + Cost(calls=calls))
            except CallError as error:
                logger.warning("a judgment failed: %s, %s", error.failure, error.message)
                reason = f"{error.failure}: {error.message}"
                return None, replace(blank, outcome=PartOutcome.INFRA, reason=reason, cost=cost + Cost(calls=calls))
            self._budget.add_tokens(completion.tokens_in, completion.tokens_out)
            cost += Cost(calls=calls, tokens_in=completion.tokens_in, tokens_out=completion.tokens_out)
            if not completion.finished:
                problem = "the answer was cut off"
                continue
            try:
                return read_verdict(ask, boundary, completion.text), replace(blank, cost=cost)
            except Unreadable as error:
                problem = str(error)
        return None, replace(blank, outcome=PartOutcome.PARSE, reason=problem, cost=cost)

    def _failed(self, outcome: PartOutcome, reason: str) -> Judgment:
        return Judgment(outcome=outcome, value=None, reason=reason, versions=self._versions)

    def _worthless(self, rule: str, reason: str) -> Judgment:
        return Judgment(
            outcome=PartOutcome.OK,
            value=0.0,
            criteria={c.name: 0.0 for c in self._rubric.criteria},
            flags=("degenerate",),
            reason=f"{rule}: {reason}",
            versions=self._versions,
        )
