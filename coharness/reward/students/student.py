"""A linear student of a judge: logistic regression of the teacher's scores on hashed and counted features.

Soft targets: the teacher's score in [0, 1] is the probability that is fitted, part by part. Settled anchors may be added with a
weight of their own, so that the student does not inherit all of its teacher's errors (Hinton, Vinyals and Dean, 2015).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse, special

from coharness.records.errors import PreflightError
from coharness.reward.students.features import COUNTED, NUM_BUCKETS, Item, counted, hashed

Array = npt.NDArray[np.float64]
SCHEMA = 1
SCORE = "judge/score"
_ARRAYS = ("coefficients", "biases", "mean", "scale", "seen")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Student:
    """A fitted student."""

    parts: tuple[str, ...]
    "What it gives, as its teacher does; `judge/score` is among them."
    coefficients: Array
    "[P, NUM_BUCKETS + len(COUNTED)]"
    biases: Array
    "[P]"
    mean: Array
    "Of the counted columns in training [len(COUNTED)]."
    scale: Array
    seen: npt.NDArray[np.bool_]
    "Buckets that a training text had [NUM_BUCKETS]."
    teacher: str
    "Whom it imitates; judgments of different teachers are never compared."

    def predict(self, items: Sequence[Item]) -> Array:
        """Each part of each item, in (0, 1) [N, P]."""
        if not items:
            return np.zeros((0, len(self.parts)))
        return np.asarray(special.expit(_design(items, self.mean, self.scale) @ self.coefficients.T + self.biases))

    def novelty(self, items: Sequence[Item]) -> Array:
        """Share of each item's hashed words that no training text had, by squared weight, in [0, 1] [N]."""
        squared = hashed(items).power(2)
        return np.asarray(squared @ (~self.seen).astype(np.float64))

    @property
    def score_index(self) -> int:
        """Place of `judge/score` among the parts."""
        return self.parts.index(SCORE)


def fit_student(
    items: Sequence[Item],
    taught: Mapping[str, Sequence[float]],
    *,
    teacher: str,
    ridge: float = 0.3,
    settled: Sequence[tuple[Item, float]] = (),
    settled_weight: float = 1.0,
) -> Student:
    """Fit a student.

    Args:
        items: What the teacher judged [N].
        taught: Part -> the teacher's value of each item, in [0, 1]; `judge/score` is one. Leave out what it failed on.
        teacher: The teacher's name and version.
        ridge: Penalty on squared coefficients.
        settled: Items whose true score is known; they count for `judge/score` alone.
        settled_weight: What one of them counts beside one of the teacher's.

    Raises:
        ValueError: fewer than 10 items, values outside [0, 1], other lengths, or no `judge/score`.
    """
    targets = {name: np.asarray(values, dtype=np.float64) for name, values in taught.items()}
    if len(items) < 10 or SCORE not in targets:
        raise ValueError(
            f"got {len(items)} items with the parts {', '.join(targets) or 'none'}; expected at least 10 items and "
            f"{SCORE} among them"
        )
    for name, values in targets.items():
        if values.shape != (len(items),) or not ((values >= 0) & (values <= 1)).all():
            raise ValueError(
                f"part {name} has {values.shape} values, expected {len(items)} in [0, 1]; leave out what the teacher failed on"
            )
    known = [item for item, _ in settled]
    whole = [*items, *known]
    mean, scale = _standard(counted(whole))
    design = _design(whole, mean, scale)
    seen = np.zeros(NUM_BUCKETS, dtype=bool)
    seen[hashed(whole).indices] = True
    coefficients, biases = [], []
    for name, values in targets.items():
        rows = len(whole) if name == SCORE else len(items)
        y = np.concatenate([values, [score for _, score in settled]])[:rows]
        weight = np.concatenate([np.ones(len(items)), np.full(len(known), settled_weight)])[:rows]
        beta = _fit(design[:rows], y, weight, ridge)
        coefficients.append(beta[:-1])
        biases.append(beta[-1])
    return Student(
        parts=tuple(targets),
        coefficients=np.asarray(coefficients),
        biases=np.asarray(biases),
        mean=mean,
        scale=scale,
        seen=seen,
        teacher=teacher,
    )


def _standard(table: Array) -> tuple[Array, Array]:
    scale = table.std(axis=0)
    return table.mean(axis=0), np.where(scale > 1e-9, scale, 1.0)


def _design(items: Sequence[Item], mean: Array, scale: Array) -> sparse.csr_matrix:
    # Clipped: a text far from all others must not be judged by one long lever.
    dense = np.clip((counted(items) - mean) / scale, -4.0, 4.0) / np.sqrt(len(COUNTED))
    return sparse.hstack([hashed(items), sparse.csr_matrix(dense)], format="csr")


def _fit(design: sparse.csr_matrix, y: Array, weight: Array, ridge: float) -> Array:
    """Coefficients and, last, the bias, which is not penalised; the least of a strictly convex function."""
    # What no row has keeps a coefficient of 0: most buckets, which would be most of the work.
    used = np.unique(design.indices)
    x = design[:, used]

    def loss(beta: Array) -> tuple[float, Array]:
        z = x @ beta[:-1] + beta[-1]
        value = float(weight @ (np.logaddexp(0.0, z) - y * z)) + 0.5 * ridge * float(beta[:-1] @ beta[:-1])
        d_z = weight * (special.expit(z) - y)
        return value, np.append(x.T @ d_z + ridge * beta[:-1], d_z.sum())

    options = {"maxiter": 300, "ftol": 1e-9, "gtol": 1e-5}
    found = optimize.minimize(loss, np.zeros(len(used) + 1), jac=True, method="L-BFGS-B", options=options)
    beta = np.zeros(design.shape[1] + 1)
    beta[used], beta[-1] = found.x[:-1], found.x[-1]
    return beta


# Files ---------------------------------------------------------------------------------------------------------------


def save_student(student: Student, folder: Path) -> None:
    """Write `student.json` and `student.npz`; no pickle."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "student.npz", **{name: getattr(student, name) for name in _ARRAYS})
    data = {"schema": SCHEMA, "parts": list(student.parts), "teacher": student.teacher, "buckets": NUM_BUCKETS}
    (folder / "student.json").write_text(
        json.dumps(data | {"counted": list(COUNTED)}, indent=2) + "\n", encoding="utf-8"
    )


def load_student(folder: Path) -> Student:
    """Read a student.

    Raises:
        PreflightError: it is missing, damaged, or of other features than this version counts.
    """
    try:
        data = json.loads((folder / "student.json").read_text(encoding="utf-8"))
        wanted = {"schema": SCHEMA, "buckets": NUM_BUCKETS, "counted": list(COUNTED)}
        if other := [name for name, value in wanted.items() if data.get(name) != value]:
            raise PreflightError(f"the student in {folder} is of another {other[0]} than this version; distil it again")
        with np.load(folder / "student.npz") as arrays:
            found = {name: arrays[name] for name in _ARRAYS}
        student = Student(parts=tuple(data["parts"]), teacher=data["teacher"], **found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PreflightError(f"cannot read the student in {folder}: {error}; distil it again") from error
    shape = (len(student.parts), NUM_BUCKETS + len(COUNTED))
    if student.coefficients.shape != shape or not np.isfinite(student.coefficients).all():
        raise PreflightError(
            f"the student in {folder} has {student.coefficients.shape} coefficients, expected {shape} finite ones"
        )
    return student
