"""Judges that are trained: from a file of settled examples to a folder that judges, and from such a folder to a judge.

Where a judge's parts meet a trainer and an engine, neither of which the reward layer sees. Driven by `coharness judge train`, and
by whatever opens a judge's folder: the command line, a run's workers.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coharness.config.schema import LoraSection, PolicySection, TrainingSection
from coharness.records.errors import ConfigError, PreflightError
from coharness.records.ids import PolicyId, content_hash, hash_unit
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.protocols import TextCodec
from coharness.reward.algebra.part import PartOutcome
from coharness.reward.judges.budget import Budget
from coharness.reward.judges.cache import JudgmentCache
from coharness.reward.panel.calibration import fit_temperature
from coharness.reward.training.episodes import JudgeObjective, judge_episodes
from coharness.reward.training.examples import (
    Comparison,
    Example,
    Settled,
    Shares,
    Splits,
    comparisons,
    read_examples,
    split,
)
from coharness.reward.training.fit import OnStep, Recipe, fit
from coharness.reward.training.gate import ChangeVerdict, Ledger, Sample, decide_change, read_ledger, write_ledger
from coharness.reward.training.readout_judge import ReadoutJudge
from coharness.reward.training.record import JudgeRecord, read_record, write_record, write_text
from coharness.reward.training.verdict_prompt import PROTOCOL, STANDARD, shown, verdict_tokens
from coharness.stats.proportions import wilson

if TYPE_CHECKING:
    from coharness.policy.bases import LoadedBase
    from coharness.policy.objectives import Objective

JUDGE = PolicyId("judge")
ANCHORS_FILE = "anchors.jsonl"
BATCH = 16
VERDICT_TOKENS = 2
"""Verdict and end token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTraining:
    """What to train, on what, and how."""

    examples: tuple[Path, ...]
    out: Path
    base: str = "smollm2"
    objective: JudgeObjective = JudgeObjective.PAIRWISE
    standard: str = STANDARD
    recipe: Recipe = field(default_factory=Recipe)
    margin: float = 0.0
    "Log-odds asked for between an answer worth 1 and one worth 0, under `pairwise`."
    reason_weight: float = 0.2
    "Weight of a reason beside its verdict, under `generative`."
    max_context: int = 512
    "Longer rows are neither trained on nor judged."
    max_train: int | None = None
    "Questions that are trained on at most, the first by a hash; all where left out."
    shares: Shares = field(default_factory=Shares)
    lora: LoraSection = field(default_factory=lambda: LoraSection(rank=16, alpha=32.0))
    anchors: Path | None = None
    "Frozen anchors; drawn from the examples and kept in the folder where left out."
    champion: Path | None = None
    "The judge that is to be replaced; the untrained base where left out."


def train_judge(job: JudgeTraining, *, on_step: OnStep | None = None) -> JudgeRecord:
    """Train, calibrate, test and write a judge; returns its record.

    Raises:
        ConfigError: the examples are wrong or too few, or the folder is taken.
        PreflightError: the base is missing, or cannot hold a verdict.
        BoundaryError: training failed.
    """
    if job.out.exists() and any(job.out.iterdir()):
        raise ConfigError(f"{job.out} is there and not empty; name a new folder for the new judge")
    splits, ledger = _splits(job)
    from coharness.policy.bases import base_weights_ref, load_base, resolve_base
    from coharness.policy.weight_folders import WeightFolders

    spec = resolve_base(job.base)
    champion = None if job.champion is None else read_record(job.champion)
    if champion is not None and champion.base_digest != spec.digest:
        raise ConfigError(
            f"the champion is of base {champion.base}, the new judge of {job.base}; both are to be of one"
        )
    base = load_base(spec)
    tokens = verdict_tokens(base.codec)

    def prompt(question: str, answer: str) -> list[int]:
        return base.codec.encode_prompt(shown(question, answer, standard=job.standard, words=tokens.words).text)

    context = min(job.max_context, spec.max_context)
    splits = _fitting(splits, prompt, base.codec, context, job)
    table = judge_episodes(splits.train, job.objective, base.codec, tokens, prompt)
    untrained = JudgeRecord(
        base=job.base,
        base_digest=spec.digest,
        objective="none",
        protocol=PROTOCOL,
        standard=job.standard,
        words=tokens.words,
        writes_reasons=False,
        temperature=1.0,
        bias=0.0,
        max_context=context,
        lora=job.lora.model_dump(mode="json"),
        weights=base_weights_ref(base),
        examples=content_hash([_row(e) for e in splits.train]),
        recipe=asdict(job.recipe),
        promoted=False,
    )
    job.out.mkdir(parents=True, exist_ok=True)
    start = PolicyVersion(ref=VersionRef(JUDGE, 0), weights=untrained.weights, parents=(), operator="base")
    last = fit(_trainer(job, base, context), start, table, job.recipe, store=WeightFolders(job.out), on_step=on_step)
    has_reasons = any(a.reason for e in splits.train for a in e.answers)
    made = replace(
        untrained,
        objective=job.objective.value,
        writes_reasons=job.objective is JudgeObjective.GENERATIVE and has_reasons,
        weights=last.weights,
    )
    judge = _open(made, job.out, base)
    made = _calibrated(made, judge, splits.calibrate)
    before = _open(untrained, job.out, base) if champion is None else _open(champion, _folder(job.champion), base)
    fresh, anchors = comparisons(splits.fresh), comparisons(splits.anchors)
    old, new = (_right(j, [*fresh, *anchors]) for j in (before, judge))
    used = frozenset(c.id for part in (splits.train, splits.calibrate) for c in comparisons(part))
    change = decide_change(
        ledger,
        fresh=_samples(fresh, old, new),
        anchors=_samples(anchors, old, new),
        trained_on=used,
    )
    # Their accuracies are told, so all of them are spent, looked at by the rule or not.
    change = replace(change, ledger=replace(change.ledger, spent=change.ledger.spent | {c.id for c in fresh}))
    figures = _figures(fresh, old, new, splits, table.num_rows)
    made = replace(made, promoted=change.promoted, gate=_told(change), figures=figures)
    _write(job, made, splits, change)
    return made


def open_trained_judge(folder: Path, *, cache: Path | None = None, budget: Budget | None = None) -> ReadoutJudge:
    """The judge of a folder, its base loaded.

    Raises:
        ConfigError: there is no judge.
        PreflightError: its base is missing or another one by now.
    """
    from coharness.policy.bases import load_base, resolve_base

    record = read_record(folder)
    spec = resolve_base(record.base)
    if spec.digest != record.base_digest:
        raise PreflightError(
            f"the judge in {folder} was trained on a base {record.base} of digest {record.base_digest[:12]}, here it is "
            f"{spec.digest[:12]}; train it again, or bring its base back"
        )
    return _open(record, folder, load_base(spec), cache=None if cache is None else JudgmentCache(cache), budget=budget)


def _folder(path: Path | None) -> Path:
    assert path is not None, "a champion has a folder"
    return path


def _open(
    record: JudgeRecord,
    folder: Path,
    base: "LoadedBase",
    *,
    cache: JudgmentCache | None = None,
    budget: Budget | None = None,
) -> ReadoutJudge:
    from coharness.policy.generation.transformers_engine import TransformersGenerator

    lora = LoraSection.model_validate(dict(record.lora))
    engine = TransformersGenerator(base, folder, batch_size=BATCH, max_adapters=1, lora=lora)
    return ReadoutJudge(record, engine, cache=cache, budget=budget)


def _splits(job: JudgeTraining) -> tuple[Splits, Ledger]:
    """Examples by use, before anything heavy is loaded; what earlier tests spent is no longer fresh."""
    ledger, frozen = Ledger(), job.anchors
    if job.champion is not None:
        ledger = read_ledger(job.champion)
        frozen = frozen or job.champion / ANCHORS_FILE
    examples = read_examples(*job.examples)
    anchors = read_examples(frozen) if frozen is not None else ()
    found = split(examples, seed=job.recipe.seed, shares=job.shares, anchors=anchors)
    fresh = tuple(e for e in found.fresh if not {c.id for c in comparisons([e])} & ledger.spent)
    for name, part in (
        ("train", found.train),
        ("calibrate", found.calibrate),
        ("anchors", found.anchors),
        ("fresh", fresh),
    ):
        if not any(not c.is_tie for c in comparisons(part)):
            spent = ": all fresh ones are spent" if name == "fresh" and found.fresh else ""
            raise ConfigError(
                f"{', '.join(map(str, job.examples))} leaves no preference for {name} among {len(examples)} questions{spent}; "
                "settle more examples, or give other shares"
            )
    return replace(found, fresh=fresh), ledger


def _fitting(
    splits: Splits, prompt: Callable[[str, str], list[int]], codec: TextCodec, context: int, job: JudgeTraining
) -> Splits:
    """The examples whose rows are short enough, those for training cut to the number asked for."""
    writes = job.objective is JudgeObjective.GENERATIVE

    def fits(example: Example) -> bool:
        def length(answer: Settled) -> int:
            reason = len(codec.encode_completion(answer.reason)) if writes and answer.reason else 0
            return len(prompt(example.question, answer.text)) + reason + VERDICT_TOKENS

        return max(map(length, example.answers)) <= context

    kept = {name: tuple(filter(fits, getattr(splits, name))) for name in ("train", "calibrate", "anchors", "fresh")}
    if short := [name for name, part in kept.items() if not comparisons(part)]:
        raise ConfigError(
            f"no preference of the split {short[0]} fits into {context} tokens; raise --max-context, or give shorter ones"
        )
    kept["train"] = tuple(sorted(kept["train"], key=lambda e: hash_unit("judge train", e.question)))[: job.max_train]
    return Splits(**kept)


def _trainer(job: JudgeTraining, base: "LoadedBase", context: int) -> Any:
    from coharness.policy.objectives import WeightedObjective
    from coharness.policy.training.torch_trainer import TorchTrainer
    from coharness.policy.weights import DiskWeightStore

    objective = WeightedObjective(objective=_objective(job), weight=1.0)
    return TorchTrainer(
        base,
        DiskWeightStore(job.out),
        job.out,
        TrainingSection(ema_decay=0.0, initial_learning_rate=job.recipe.learning_rate, row_tokens=2048),
        PolicySection(base=job.base, weights="lora", lora=job.lora, max_context=context),
        objectives={f"judge/{job.objective}": objective},
    )


def _objective(job: JudgeTraining) -> "Objective":
    from coharness.policy.objectives import BradleyTerry, Critique, ScoreRegression

    match job.objective:
        case JudgeObjective.PAIRWISE:
            return BradleyTerry(margin=job.margin)
        case JudgeObjective.REGRESSION:
            return ScoreRegression()
        case JudgeObjective.GENERATIVE:
            return Critique(verdict_tokens=VERDICT_TOKENS, reason_weight=job.reason_weight)


def _calibrated(record: JudgeRecord, judge: ReadoutJudge, examples: Sequence[Example]) -> JudgeRecord:
    """The record with temperature and bias: answers above one half count as good."""
    answers = [(e.question, a) for e in examples for a in e.answers if a.score != 0.5]
    readings = judge.read([(question, answer.text) for question, answer in answers])
    kept = [
        (r.log_odds, float(a.score > 0.5))
        for r, (_, a) in zip(readings, answers, strict=True)
        if r.outcome is PartOutcome.OK
    ]
    odds, labels = np.asarray([k[0] for k in kept]), np.asarray([k[1] for k in kept])
    if len(kept) < 2 or not odds.std():
        raise ConfigError(
            f"{len(kept)} answers to calibrate on, expected 2 or more that the judge tells apart; raise the share of calibration"
        )
    fitted = fit_temperature(odds, labels)
    return replace(record, temperature=fitted.temperature, bias=fitted.bias)


def _right(judge: ReadoutJudge, pairs: Sequence[Comparison]) -> dict[str, float]:
    """Comparison -> 1 where the better answer reads higher, 0 where the worse does, 1/2 where neither or one cannot be read."""
    readings = judge.read([(c.question, a.text) for c in pairs for a in (c.better, c.worse)])
    found = {}
    for pair, one, two in zip(pairs, readings[0::2], readings[1::2], strict=True):
        if pair.is_tie:
            continue
        difference = one.log_odds - two.log_odds
        found[pair.id] = 0.5 if math.isnan(difference) or difference == 0 else float(difference > 0)
    return found


def _samples(pairs: Sequence[Comparison], old: Mapping[str, float], new: Mapping[str, float]) -> list[Sample]:
    ids = dict.fromkeys(pair.id for pair in pairs if pair.id in new)
    return [Sample(id=name, champion=old[name], challenger=new[name]) for name in ids]


def _figures(
    pairs: Sequence[Comparison], old: Mapping[str, float], new: Mapping[str, float], splits: Splits, num_rows: int
) -> dict[str, Any]:
    """Accuracies on the fresh comparisons, and those of what needs no model: the shorter and the longer answer."""
    decided = [pair for pair in pairs if not pair.is_tie]

    def shown_of(right: Sequence[float]) -> list[float]:
        interval = wilson(int(sum(right)), len(right))
        return [round(x, 4) for x in (interval.low, sum(right) / len(right), interval.high)]

    shorter = [
        0.5 if len(p.better.text) == len(p.worse.text) else float(len(p.better.text) < len(p.worse.text))
        for p in decided
    ]
    return {
        "rows": num_rows,
        "questions": {name: len(getattr(splits, name)) for name in ("train", "calibrate", "anchors", "fresh")},
        "champion": shown_of([old[p.id] for p in decided]),
        "judge": shown_of([new[p.id] for p in decided]),
        "shorter": shown_of(shorter),
        "longer": shown_of([1 - x for x in shorter]),
    }


def _told(change: ChangeVerdict) -> dict[str, Any]:
    decision = change.decision
    return {
        "verdict": decision.verdict.value,
        "fresh": asdict(change.fresh),
        "anchors": asdict(change.anchors),
        "e_value": round(math.exp(min(decision.log_evalue, 700.0)), 3),
        "needed": round(1 / change.level, 3),
        "test": change.ledger.num_tests,
    }


def _write(job: JudgeTraining, record: JudgeRecord, splits: Splits, change: ChangeVerdict) -> None:
    rows = "".join(json.dumps(row, ensure_ascii=True) + "\n" for e in splits.anchors for row in _rows(e))
    write_text(job.out / ANCHORS_FILE, rows)
    write_ledger(job.out, change.ledger)
    if job.champion is not None:
        # What this test spent is spent for whoever challenges the same champion next.
        write_ledger(job.champion, change.ledger)
    write_record(job.out, record)


def _row(example: Example) -> dict[str, Any]:
    return {"question": example.question, "answers": [asdict(answer) for answer in example.answers]}


def _rows(example: Example) -> list[dict[str, Any]]:
    return [
        {"question": example.question, "answer": a.text, "score": a.score, **({"reason": a.reason} if a.reason else {})}
        for a in example.answers
    ]
