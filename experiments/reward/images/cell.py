"""One seed: demonstrations as files, libraries evolved under three kinds of labels, and the controls, on fresh tests."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coharness.reward.images import libraries
from coharness.reward.images.dataset import Demonstrations, load
from coharness.reward.images.measure import NOTES
from coharness.reward.images.spec import Operation
from coharness.reward.images.synthetic.draw import OPERATIONS, Drawn, draw
from coharness.reward.images.synthetic.faults import Fault
from coharness.reward.images.synthetic.scenes import Backgrounds, DrawnBackgrounds, PhotoBackgrounds
from coharness.reward.images.synthetic.write import Annotator, write
from coharness.reward.library.chain import promise
from coharness.reward.library.evolution import EvolutionSettings, Evolved
from coharness.reward.library.evolve import evolve
from coharness.reward.library.executor import score
from coharness.reward.library.fit import fit_weights, half_right
from coharness.reward.library.ideas import Pool, entry_of_criterion, pool_of
from coharness.reward.library.library import Library
from coharness.reward.library.preferences import group_accuracy, published_gate
from coharness.reward.library.table import FeatureTable, PairTable, split_groups

HELD_OUT = (Fault.OVER_EDIT, Fault.BLUR, Fault.SHIFT, Fault.WRONG_OBJECT)
"""Faults that one more library never sees in training."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A set that libraries are held against."""

    data: Demonstrations
    marked: npt.NDArray[np.bool_]
    "Pairs with a candidate that has a held-out fault [P]."


def run(seed: int, sizes: Mapping[str, int], folder: Path) -> dict[str, Any]:
    """All figures of one seed."""
    began, began_cpu = time.monotonic(), time.process_time()
    train = load(_write(seed, "train", sizes["train"], DrawnBackgrounds(), folder))
    measured_cpu = time.process_time() - began_cpu
    settings = EvolutionSettings(seed=seed)
    clean = evolve(train.table, train.pairs, settings, start=Library.of("evolved"), notes=NOTES)
    clean_cpu, clean_wall = time.process_time() - began_cpu, time.monotonic() - began
    tests = {
        "test": _test(seed, "test", sizes["test"], DrawnBackgrounds(), folder),
        "photo": _test(seed, "photo", sizes["photo"], PhotoBackgrounds(), folder),
        "new_operation": _test(seed, "op", sizes["operation"], DrawnBackgrounds(), folder, (Operation.REPLACE,)),
    }
    pool = pool_of(train.table)
    rng = np.random.default_rng([seed, 77])
    flipped = np.where(rng.random(len(train.pairs)) < 0.1, 1.0 - train.pairs.target, train.pairs.target)
    noisy_pairs = train.pairs.with_targets(flipped)
    noisy = evolve(train.table, noisy_pairs, settings, start=Library.of("evolved"), notes=NOTES, pool=pool)
    nulls = [_null(train, settings, pool, rng, shuffle) for shuffle in range(sizes["null"])]
    held = load(_write(seed, "held", sizes["train"], DrawnBackgrounds(), folder, without=HELD_OUT))
    kept_out = evolve(held.table, held.pairs, settings, start=Library.of("evolved"), notes=NOTES)
    by_hand = libraries.by_hand()
    rows: dict[str, dict[str, float]] = {
        "clean": _row(tests, clean.library),
        "noisy": _row(tests, noisy.library),
        "held_out_faults": {"test": _accuracy(tests["test"], kept_out.library, marked=True)},
        "all_faults": {"test": _accuracy(tests["test"], clean.library, marked=True)},
        "by_hand": _row(tests, by_hand),
        "random_library": _row(tests, _random_library(pool, len(clean.library.entries), rng)),
        "best_tool": _best_tool(train, tests),
        "published_gate": _row(tests, _published_loop(train, settings, pool, len(clean.trials))),
    }
    for name, pairs in (("clean", train.pairs), ("noisy", noisy_pairs)):
        for model, fitted in _learners(train.table, pairs, seed).items():
            rows[f"{model}_{name}"] = {key: _accuracy_of(test, fitted(test.data.table)) for key, test in tests.items()}
    return {
        "rows": rows, "groups": _groups(tests["test"], clean.library), "null": nulls,
        "skills": {"clean": len(clean.library.entries), "noisy": len(noisy.library.entries)},
        "decoys": _decoys(train, settings, rng),
        "cpu_s": clean_cpu, "wall_s": clean_wall, "measure_cpu_s": measured_cpu, "candidates": len(train.table.group),
        "pairs": {"train": len(train.pairs), **{name: len(test.data.pairs) for name, test in tests.items()}},
        "judgments": _judgments(clean, noisy), "library": [entry.name for entry in clean.library.entries],
    }  # fmt: skip


# Data ----------------------------------------------------------------------------------------------------------------


def _draw(
    seed: int, name: str, num: int, backgrounds: Backgrounds, operations: Sequence[Operation], without: Sequence[Fault]
) -> list[Drawn]:
    # The name is part of the seed: no two sets of a seed share a source.
    rng = np.random.default_rng([seed, *name.encode()])
    return [draw(rng, f"{name}{index}", backgrounds, operations=operations, without=without) for index in range(num)]


def _write(
    seed: int, name: str, num: int, backgrounds: Backgrounds, folder: Path, *,
    operations: Sequence[Operation] = OPERATIONS, without: Sequence[Fault] = (),
) -> Path:  # fmt: skip
    drawn = _draw(seed, name, num, backgrounds, operations, without)
    return write(drawn, folder / name, Annotator(), np.random.default_rng([seed, 1]))


def _test(
    seed: int, name: str, num: int, backgrounds: Backgrounds, folder: Path, operations: Sequence[Operation] = OPERATIONS
) -> Test:
    drawn = _draw(seed, name, num, backgrounds, operations, ())
    data = load(write(drawn, folder / name, Annotator(), np.random.default_rng([seed, 1])))
    marks = {
        (source.name, str(index)): any(fault in HELD_OUT for fault, _ in candidate.faults)
        for source in drawn
        for index, candidate in enumerate(source.candidates)
    }
    marked = []
    for pair in data.names:
        group, _, ends = pair.partition(":")
        marked.append(any(marks[group, end] for end in ends.split("v")))
    return Test(data=data, marked=np.array(marked, dtype=np.bool_))


# Figures -------------------------------------------------------------------------------------------------------------


def _accuracy_of(test: Test, values: Floats, *, marked: bool = False) -> float:
    pairs = test.data.pairs
    right = half_right(values[pairs.first] - values[pairs.second], pairs.target)
    return float((right[test.marked] if marked else right).mean())


def _accuracy(test: Test, library: Library, *, marked: bool = False) -> float:
    return _accuracy_of(test, score(test.data.table, library).values, marked=marked)


def _row(tests: Mapping[str, Test], library: Library) -> dict[str, float]:
    return {name: _accuracy(test, library) for name, test in tests.items()}


def _groups(test: Test, library: Library) -> dict[str, float]:
    """Whole groups of four judged right, and how often the best of four is found; groups with a tie are left out."""
    scores, pairs = score(test.data.table, library), test.data.pairs
    right: dict[str, list[bool | None]] = {}
    wins = np.zeros(len(test.data.table.group))
    for first, second, target, group in zip(pairs.first, pairs.second, pairs.target, pairs.group, strict=True):
        agrees = (scores.values[first] > scores.values[second]) == (target == 1.0)
        right.setdefault(test.data.table.names[group], []).append(bool(agrees))
        wins[first if target == 1.0 else second] += 1
    whole = {name: said for name, said in right.items() if len(said) == 6}
    top = []
    for index, name in enumerate(test.data.table.names):
        if name in whole:
            rows = np.flatnonzero(test.data.table.group == index)
            top.append(rows[np.argmax(scores.values[rows])] == rows[np.argmax(wins[rows])])
    exact = group_accuracy(whole, 4)
    return {"k4": float(exact.share), "k4_groups": float(exact.groups), "top1": float(np.mean(top))}


def _null(
    train: Demonstrations, settings: EvolutionSettings, pool: Pool, rng: np.random.Generator, shuffle: int
) -> dict[str, float]:
    """Labels by coin: what is accepted at any time, and what is left at the end."""
    coins = train.pairs.with_targets((rng.random(len(train.pairs)) < 0.5).astype(np.float64))
    seeded = replace(settings, seed=settings.seed + 1000 * (shuffle + 1))
    found = evolve(train.table, coins, seeded, start=Library.of("null"), pool=pool)
    return {"accepted": found.accepted, "kept": len(found.library.entries)}


def _decoys(train: Demonstrations, settings: EvolutionSettings, rng: np.random.Generator) -> dict[str, float]:
    """Twenty features of pure noise among the real ones: how many skills count one of them."""
    table = train.table
    noise = rng.normal(size=(len(table.group), 20))
    wider = replace(
        table,
        features=(*table.features, *(f"decoy@1/n{i}" for i in range(20))),
        values=np.hstack([table.values, noise]),
    )
    found = evolve(wider, train.pairs, settings, start=Library.of("decoys"), notes=NOTES)
    criteria = found.library.criteria
    return {"skills": len(criteria), "decoys": sum(criterion.tool == "decoy@1" for _, criterion in criteria)}


def _judgments(*runs: Evolved) -> dict[str, int]:
    return {
        "asked": sum(run.judgments for run in runs),
        "published": sum(run.judgments_without_cache for run in runs),
        "trials": sum(len(run.trials) for run in runs),
    }


# Controls ------------------------------------------------------------------------------------------------------------


def _best_tool(train: Demonstrations, tests: Mapping[str, Test]) -> dict[str, float]:
    """The one feature, and its direction, that is best on the demonstrations."""

    def margin(table: FeatureTable, pairs: PairTable, feature: str) -> Floats:
        values = np.nan_to_num(table.column(feature), nan=0.0)
        return np.asarray(values[pairs.first] - values[pairs.second])

    found = max(
        (float(half_right(sign * margin(train.table, train.pairs, f), train.pairs.target).mean()), sign, f)
         for f in train.table.features for sign in (1.0, -1.0)
    )  # fmt: skip
    _, sign, feature = found
    return {
        name: float(half_right(sign * margin(t.data.table, t.data.pairs, feature), t.data.pairs.target).mean())
        for name, t in tests.items()
    }


def _random_library(pool: Pool, size: int, rng: np.random.Generator) -> Library:
    """As many criteria as were evolved, drawn blindly."""
    library = Library.of("random")
    for index in rng.permutation(len(pool.criteria))[: max(size, 1)]:
        criterion = replace(pool.criteria[int(index)], weight=float(rng.choice([-1.0, 1.0])))
        library = library.added(entry_of_criterion(criterion, [e.name for e in library.entries], NOTES))
    return library


def _published_loop(train: Demonstrations, settings: EvolutionSettings, pool: Pool, num_trials: int) -> Library:
    """As many trials of the most promising idea under the published rules.

    A skill is kept where accuracy on the held-back pairs is not more than 3/40 below the best so far; at the end every skill
    whose removal alone does not lower it is deleted, all at once.
    """
    table = train.table
    confirm = split_groups(table.names, settings.confirm, settings.seed)
    validation, proposing = train.pairs.of_groups(confirm), train.pairs.of_groups(~confirm)
    differences = pool.columns[proposing.first] - pool.columns[proposing.second]
    held = pool.columns[validation.first] - pool.columns[validation.second]

    def fitted(chosen: list[int]) -> tuple[Floats, int]:
        weights = fit_weights(differences[:, chosen], proposing.target, proposing.weight, settings.ridge)
        return weights, int(half_right(held[:, chosen] @ weights, validation.target).sum())

    kept: list[int] = []
    closed: list[int] = []
    best = len(validation) // 2
    for _ in range(num_trials):
        weights = fitted(kept)[0] if kept else np.zeros(0)
        hopes = np.abs(promise(differences, differences[:, kept] @ weights, proposing))
        hopes[closed] = 0.0
        idea = int(hopes.argmax())
        closed.append(idea)
        now = fitted([*kept, idea])[1]
        if published_gate(best, now, len(validation)):
            kept, best = [*kept, idea], max(best, now)
    baseline = fitted(kept)[1] if kept else 0
    useless = {idea for idea in kept if len(kept) > 1 and fitted([k for k in kept if k != idea])[1] >= baseline}
    kept = [idea for idea in kept if idea not in useless]
    library = Library.of("published")
    for idea, weight in zip(kept, fitted(kept)[0] if kept else (), strict=True):
        criterion = replace(pool.criteria[idea], weight=float(weight))
        library = library.added(entry_of_criterion(criterion, [e.name for e in library.entries], NOTES))
    return library


def _learners(table: FeatureTable, pairs: PairTable, seed: int) -> dict[str, Any]:
    """Learners on all features: logistic regression with one weight a feature and operation, and boosted trees on differences.

    Each gives a function from a table to one score a candidate: trees are averaged over the rivals of a candidate's group.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    kinds = sorted(set(table.contexts))
    measured = ~np.isnan(table.values).all(axis=0)
    centre = np.nanmedian(table.values[:, measured], axis=0)
    spread = np.maximum(np.nanstd(table.values[:, measured], axis=0), 1e-9)

    def filled(some: FeatureTable) -> Floats:
        return np.asarray(np.clip(np.nan_to_num((some.values[:, measured] - centre) / spread, nan=0.0), -5, 5))

    def crossed(some: FeatureTable) -> Floats:
        values, context = filled(some), np.array(some.contexts)[some.group]
        return np.hstack([values, *(values * (context == kind)[:, None] for kind in kinds)])

    x = crossed(table)
    both = np.vstack([x[pairs.first] - x[pairs.second], x[pairs.second] - x[pairs.first]])
    labels = np.r_[pairs.target, 1.0 - pairs.target]
    logistic = LogisticRegression(C=0.01, fit_intercept=False, max_iter=500).fit(both, labels)
    codes = {kind: index for index, kind in enumerate(kinds)}

    def trees_input(some: FeatureTable, first: Any, second: Any) -> Floats:
        values = filled(some)
        context = np.array([codes.get(some.contexts[g], -1) for g in some.group[first]], dtype=np.float64)
        return np.hstack([values[first] - values[second], values[first], values[second], context[:, None]])

    rows = np.r_[pairs.first, pairs.second], np.r_[pairs.second, pairs.first]
    trees = HistGradientBoostingClassifier(max_iter=150, learning_rate=0.06, max_leaf_nodes=8, l2_regularization=5.0,
                                           random_state=seed).fit(trees_input(table, *rows), labels)  # fmt: skip

    def by_trees(some: FeatureTable) -> Floats:
        first, second = [], []
        for index in range(len(some.names)):
            members = np.flatnonzero(some.group == index)
            a, b = np.meshgrid(members, members, indexing="ij")
            keep = a != b
            first.append(a[keep])
            second.append(b[keep])
        one, two = np.concatenate(first), np.concatenate(second)
        votes = trees.predict_proba(trees_input(some, one, two))[:, 1]
        return np.asarray(np.bincount(one, votes, minlength=len(some.group)), dtype=np.float64)

    return {"logistic": lambda some: crossed(some) @ logistic.coef_[0], "boosted_trees": by_trees}
