"""The reward algebra: typed parts, the rules that make one reward of them, and what compares rewards inside a group.

    parts ─► hard floors ─► value tree ─► penalties ─► Reward ─► group mode ─► training score

`rule` reads the YAML that a harness carries as a gene and evaluates it; `part` holds what goes in, `reward` what comes out.
Invariants: a failure is never a number, whatever the rule; no rule lets a judge lift a failed check above a passed one where
`verifier_first` is used; every function is pure, the state of a Lagrangian multiplier is a value that the caller keeps.
"""

from coharness.reward.algebra.part import Part, PartOutcome
from coharness.reward.algebra.reward import Reward
from coharness.reward.algebra.rule import Rule, rule_from_json

__all__ = ["Part", "PartOutcome", "Reward", "Rule", "rule_from_json"]
