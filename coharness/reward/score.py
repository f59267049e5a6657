"""The training scores of a group's attempts: by the genome's weights, or by its rule where it has one.

Both keep the same parts, each in [0, 1], whose sum or rule can be computed anew without a re-run:

    exact     the verifier accepts the answer
    partial   its partial credit
    format    an answer could be read
    length    the share of the token budget left unused
    overlong  how far the answer keeps from the end of its budget; 1 until the last quarter
    brevity   how short it is beside the others of its group

The last three count only where an answer could be read, or silence would earn them. `code/...` parts (CODE_PARTS) are what the
sandbox saw of an answer that is a program, 0 where none could be read; `judge/...` parts come from a judge, in training alone.
A group with an attempt that has no reward fails as a whole: there is no number that stands for "not known".
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from coharness.records.episode import Score
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.harness import RewardGenes
from coharness.records.ids import canonical_json
from coharness.records.protocols import Check
from coharness.reward.algebra.book import MultiplierBook
from coharness.reward.algebra.group import group_scores
from coharness.reward.algebra.length import relative_brevity, within_soft_limit
from coharness.reward.algebra.part import Part
from coharness.reward.algebra.rule import Rule, rule_from_json

OWN_PARTS = ("exact", "partial", "format", "length", "overlong", "brevity")
"""Parts that every attempt has; rules may name these, CODE_PARTS and `judge/...`."""
CODE_PREFIX = "code/"
CODE_PARTS = tuple(f"{CODE_PREFIX}{name}" for name in ("loads", "runs", "allowed", "time", "memory"))
"""Parts of attempts at code tasks; see `reward.sandbox.grade.Grade.parts`."""
JUDGE_PREFIX = "judge/"
OVERLONG_MARGIN = 0.25
"""Share of the token budget at whose end `overlong` falls from 1 to 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """What is known of one attempt."""

    check: Check | None
    "What the verifier said; None where no answer could be read."
    tokens_used: int
    "Tokens the policy wrote over all turns."
    max_tokens: int
    "What it was allowed to write."
    judged: tuple[Part, ...] = ()
    "Parts from a judge."


def score_episode(check: Check | None, parsed: bool, tokens_used: int, max_tokens: int, genes: RewardGenes) -> Score:
    """Weigh the parts of one episode.

    The parts, each in [0, 1]: `exact`, the verifier accepts the answer; `partial`, its partial credit; `format`, an answer
    could be read; `length`, the share of the token budget left unused. Length counts only where an answer could be read, or
    silence would earn it. The value is the plain sum of weight times part: not normalised, so that a weight means the same
    whatever the others are, and what compares values within a group (an advantage) is free of scale anyway.

    Args:
        check: what the verifier said; None where no answer could be read.
        parsed: whether an answer could be read.
        tokens_used: tokens the policy wrote over all turns.
        max_tokens: what it was allowed to write.
        genes: weights of the parts.

    Raises:
        ValueError: the value is not finite, or `check` and `parsed` contradict each other.
    """
    if parsed != (check is not None):
        raise ValueError(f"an answer is checked exactly where one was read, got parsed={parsed} and check={check}")
    if max_tokens < 1 or tokens_used < 0:
        raise ValueError(f"expected max_tokens >= 1 and tokens_used >= 0, got {max_tokens} and {tokens_used}")
    exact = float(check is not None and check.correct)
    partial = 0.0 if check is None else check.partial
    length = max(0.0, 1.0 - tokens_used / max_tokens) if parsed else 0.0
    value = genes.exact * exact + genes.partial * partial + genes.format * float(parsed) + genes.length * length
    if not math.isfinite(value):
        raise ValueError(
            f"the score is {value}: parts exact={exact}, partial={partial}, length={length}, weights {genes}"
        )
    return Score(
        value=value,
        exact=exact,
        partial=partial,
        format=float(parsed),
        length=length,
        feedback="no answer could be read" if check is None else check.feedback,
    )


def score_group(attempts: Sequence[Attempted], genes: RewardGenes, book: MultiplierBook | None = None) -> list[Score]:
    """Training scores of a group, one an attempt, in order.

    Args:
        attempts: the group.
        genes: weights or rule.
        book: multipliers of soft constraints, read before and moved after; at the rule's own weights where left out.

    Raises:
        BoundaryError: the genome's rule leaves an attempt without a reward; names the attempt and what is missing.
        ConfigError: the genome's rule cannot be read.
        ValueError: as `score_episode`.
    """
    plain = [score_episode(a.check, a.check is not None, a.tokens_used, a.max_tokens, genes) for a in attempts]
    rule = rule_of(genes)
    if rule is None or not attempts:
        return plain
    correct = [score.exact == 1.0 for score in plain]
    brevity = relative_brevity([a.tokens_used for a in attempts], correct)
    multipliers = book.of(rule) if book is not None else None
    rewards = []
    for attempt, score, brief in zip(attempts, plain, brevity, strict=True):
        margin = max(1, round(OVERLONG_MARGIN * attempt.max_tokens))
        own = {
            "exact": score.exact,
            "partial": score.partial,
            "format": score.format,
            "length": score.length,
            "overlong": score.format * within_soft_limit(attempt.tokens_used, attempt.max_tokens, margin),
            "brevity": score.format * brief,
        }
        own |= _code_parts(attempt.check, rule)
        parts = [*(Part.ok(name, part) for name, part in own.items()), *attempt.judged]
        rewards.append(rule.evaluate(parts, multipliers))
    if book is not None:
        book.observe(rule, rewards)
    scores = []
    values = group_scores(rule, rewards).values
    for index, (score, reward, value) in enumerate(zip(plain, rewards, values, strict=True)):
        if value is None:
            missing = ", ".join(f"{n} ({_why(reward.parts.get(n))})" for n in reward.missing) or "a component"
            raise BoundaryError(
                Boundary.VERIFIER, f"attempt {index} has no reward, the outcome is {reward.outcome}; missing: {missing}"
            )
        feedback = score.feedback
        if reward.violated:
            feedback = f"violated {', '.join(reward.violated)}" + (f"; {feedback}" if feedback else "")
        scores.append(
            Score(
                value=value,
                exact=score.exact,
                partial=score.partial,
                format=score.format,
                length=score.length,
                feedback=feedback,
            )
        )
    return scores


def rule_of(genes: RewardGenes) -> Rule | None:
    """The genome's rule, None where its weights make the score.

    Raises:
        ConfigError: the rule cannot be read.
    """
    return _read_rule(canonical_json(dict(genes.rule))) if genes.rule else None


def needs_judge(rule: Rule) -> bool:
    """Whether a rule reads parts that only a judge gives."""
    return any(name.startswith(JUDGE_PREFIX) for name in rule.names)


def _code_parts(check: Check | None, rule: Rule) -> dict[str, float]:
    """What the sandbox saw, where the rule reads it; an attempt without an answer earns nothing of it."""
    if not any(name.startswith(CODE_PREFIX) for name in rule.names):
        return {}
    return dict.fromkeys(CODE_PARTS, 0.0) if check is None else dict(check.parts)


def _why(part: Part | None) -> str:
    return "not given" if part is None else f"{part.outcome}: {part.reason}"


@lru_cache(maxsize=256)
def _read_rule(text: str) -> Rule:
    return rule_from_json(json.loads(text))
