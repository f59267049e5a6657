"""Small libraries and tables that the tests share."""

import numpy as np

from coharness.reward.library.criterion import Criterion, Fn, Transform
from coharness.reward.library.entries import Entry, Kind
from coharness.reward.library.library import Library
from coharness.reward.library.table import FeatureTable, PairTable, all_pairs


def skill(
    name: str, body: str = "Edges of edited objects are crisp and whole.", criterion: Criterion | None = None
) -> Entry:
    return Entry(kind=Kind.SKILL, name=name, description=f"About {name}.", body=body, criterion=criterion)


def tool(
    name: str,
    prompt: str = 'Answer as JSON: {"seen": bool}',
    outputs: tuple[tuple[str, str], ...] = (("seen", "bool"),),
) -> Entry:
    return Entry(
        kind=Kind.TOOL, name=name, description=f"Looks at {name}.", body="When to call it.", system_prompt=prompt,
        inputs=(("images", "list[handle]"), ("query", "str")), outputs=outputs,
    )  # fmt: skip


def counting(feature: str, weight: float, *, fn: Fn = Fn.LINEAR, contexts: tuple[str, ...] = ()) -> Criterion:
    return Criterion(feature=feature, transform=Transform(fn=fn), weight=weight, contexts=contexts)


def small() -> Library:
    return Library.of(
        "small", [skill("crisp-edges"), tool("text-finder"), skill("no-noise", criterion=counting("q@1/noise", -1.0))]
    )


def drawn(
    seed: int, num_groups: int = 60, num_noise: int = 12, k: int = 4
) -> tuple[FeatureTable, np.ndarray, PairTable]:
    """Candidates whose worth is two features, and a third in half of the tasks, among features of noise."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(num_groups * k, 3 + num_noise))
    group = np.repeat(np.arange(num_groups), k)
    contexts = tuple("move" if index % 2 else "add" for index in range(num_groups))
    moves = np.array([contexts[g] == "move" for g in group])
    worth = 1.5 * values[:, 0] - 1.0 * values[:, 1] + 1.5 * values[:, 2] * moves
    features = ("a@1/x", "b@1/x", "c@1/x", *(f"noise@1/n{i}" for i in range(num_noise)))
    table = FeatureTable(
        features=features, values=values, group=group, names=tuple(f"{seed}-{i}" for i in range(num_groups)), contexts=contexts
    )  # fmt: skip
    return table, worth, all_pairs(table, worth)
