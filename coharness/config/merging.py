"""Which merge rules a run may try; the rules themselves are `coharness.evolution.merging.RULES`, which loads torch.

A test holds the names against that table: every rule is here whose needs a run can meet. Fisher information is taken from the
parents' optimizers (full weights only); what RegMean needs of the inputs, no run collects.
"""

from typing import Final, Literal, TypeAlias, get_args

MergeRuleName: TypeAlias = Literal[
    "linear",
    "task_arithmetic",
    "extrapolation",
    "uniform_soup",
    "slerp",
    "multislerp",
    "karcher",
    "warp",
    "model_stock",
    "ties",
    "ties_count",
    "dare",
    "dare_l1",
    "dare_ties",
    "della",
    "della_linear",
    "breadcrumbs",
    "breadcrumbs_ties",
    "sce",
    "ram",
    "ram_plus",
    "layer_swap",
    "fisher",
]
MergeRuleChoice: TypeAlias = Literal["auto"] | MergeRuleName | tuple[MergeRuleName, ...]
"""One rule; or several, or `auto` for one of each kind, of which the run chooses by what won its races."""

MERGE_RULE_NAMES: Final[tuple[str, ...]] = get_args(MergeRuleName)
AUTO_RULES: Final[tuple[str, ...]] = (
    "linear",
    "task_arithmetic",
    "extrapolation",
    "slerp",
    "warp",
    "model_stock",
    "ties",
    "dare",
    "della",
    "breadcrumbs",
    "sce",
    "ram",
    "layer_swap",
)
"""One rule of each kind: variants of one share most of their outcome, and would only spread its races thin."""


def merge_rules_of(choice: MergeRuleChoice) -> tuple[str, ...]:
    """The rules that a run chooses from, in the order they were given."""
    if isinstance(choice, tuple):
        return choice
    return AUTO_RULES if choice == "auto" else (choice,)
