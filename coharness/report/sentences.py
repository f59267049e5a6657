"""Owns the sentences in which page and terminal sum up a history; each says its figure and what it was taken over."""

from statistics import median

from coharness.records.proposals import ProposalKind, VerdictKind
from coharness.report.sealed_view import Sealed
from coharness.report.timeline import History, WorkerLoad
from coharness.report.wording import count, duration, percent, span
from coharness.stats.proportions import clopper_pearson

SLOW_SHARE = 0.5
"""A worker below this share of the median speed of the others is named as slow."""


def state_sentence(history: History) -> str:
    """How far the run came and why it is not going on, if so."""
    done, budget = count(history.end.rollouts), count(history.budget_rollouts)
    far = f"{done} of {budget} rollouts in {duration(history.end.elapsed_s)}"
    if history.finish is not None:
        return f"Finished after {far}: {history.finish}."
    if history.stop is not None:
        return f"Stopped after {far}: {history.stop}. It can be resumed."
    return f"At {far}; the journal holds no end, so the run goes on or was interrupted."


def null_sentence(history: History) -> str:
    """The rate at which the gate accepted the champion against itself, with its exact interval."""
    tests, alpha = history.null_tests, fdr_alpha(history)
    if tests.num_tasks == 0:
        return "No A/A test ended in this run, so the gate's false acceptances were not measured here."
    rate = clopper_pearson(tests.num_correct, tests.num_tasks)
    return (
        f"The gate accepted the champion against itself in {tests.num_correct} of {tests.num_tasks} A/A tests: "
        f"{percent(rate.value)} (exact 95\u202f% interval {span(rate)}\u202f%). The alarm is raised when the lower end exceeds "
        f"the error budget of {percent(alpha, 0)}: {'it does' if null_alarm(history) else 'it does not'}."
    )


def null_alarm(history: History) -> bool:
    """Whether the A/A tests show that the gate accepts too much."""
    tests = history.null_tests
    return tests.num_tasks > 0 and clopper_pearson(tests.num_correct, tests.num_tasks).low > fdr_alpha(history)


def twin_sentence(sealed: Sealed) -> str:
    """Whether the same pairing gave the same answers in another batch; empty where that was not checked."""
    if sealed.twin is None:
        return ""
    pairs, discordant = sealed.twin.num_pairs, sealed.twin.num_discordant
    verdict = "none differs." if discordant == 0 else f"{discordant} differ, which is a bug: report it with this run."
    return f"Twin check: the champion answered {pairs} sealed tasks a second time, in other batches; {verdict}"


def fdr_alpha(history: History) -> float:
    """The run-level error budget of the gate."""
    return float(history.config["gate"]["fdr_alpha"])


def overlap_sentence(history: History) -> str:
    """How much of the run had at least two kinds of work beside each other."""
    overlap = history.overlap
    if overlap.total_s <= 0:
        return "No time passed in this run."
    return (
        f"At least two of rollout, training and testing were in flight for {percent(overlap.in_flight_s / overlap.total_s, 0)} "
        f"of {duration(overlap.total_s)}, queued work included; inside workers and trainers alone it is "
        f"{percent(overlap.running_s / overlap.total_s, 0)}."
    )


def staleness_sentence(history: History) -> str:
    """How far behind the trained groups were."""
    behind = [steps for update in history.staleness for steps in update.versions_behind]
    if not behind:
        return "Nothing was trained in this run."
    bound = int(history.config["training"]["max_staleness"])
    return (
        f"Trained groups were {sum(behind) / len(behind):.2f} versions behind on average and {max(behind)} at most; "
        f"training.max_staleness is {bound}."
    )


def slow_workers(history: History) -> list[tuple[WorkerLoad, float]]:
    """Workers that ran at less than `SLOW_SHARE` of the median speed of the others, with that share."""
    speeds = {w.name: w.num_episodes / w.wall_s for w in history.workers if w.wall_s > 0}
    slow = []
    for worker in history.workers:
        others = [speed for name, speed in speeds.items() if name != worker.name]
        if worker.name in speeds and others and median(others) > 0:
            share = speeds[worker.name] / median(others)
            if share < SLOW_SHARE:
                slow.append((worker, share))
    return slow


def slow_workers_sentence(history: History) -> str | None:
    """Which workers were slow; None where none was."""
    slow = slow_workers(history)
    if not slow:
        return None
    named = ", ".join(f"{worker.name} at {percent(share, 0)}" for worker, share in slow)
    return f"Slow beside the others, in episodes a busy second: {named} of their median."


def unsafe_sentence(history: History) -> str:
    """That what policies wrote ran without a sandbox; empty where it did not."""
    wrote_code = any(section["type"] == "code" for section in history.config.get("tasks", ()))
    if not (wrote_code and history.config.get("reward", {}).get("sandbox", {}).get("unsafe")):
        return ""
    return (
        "UNSAFE: reward.sandbox.unsafe allowed code that the policies wrote to run as plain processes of the machine; neither "
        "the machine nor these figures were protected from it."
    )


def judge_sentence(history: History) -> str:
    """What the monitors said of the judge and what became of it; empty where the run has none."""
    if history.config.get("reward", {}).get("judge") is None:
        return ""
    alarms = [m for m in history.judge_moves if m.what == "alarm"]
    if not alarms:
        return "The monitors raised no alarm about the judge."
    mended = [m for m in history.judge_moves if m.what == "mended"]
    refused = sum(m.what == "refused" for m in history.judge_moves)
    first = alarms[0]
    repaired = f"mended judges that took over: {len(mended)}, refused: {refused}" if mended or refused else ""
    return (
        f"ALARM about the judge: {len(alarms)} alarms, the first after {count(first.at.rollouts)} rollouts ({first.detail}), the "
        f"response stands at {history.judge_moves[-1].rung or 'watch'}" + (f"; {repaired}." if repaired else ".")
    )


def evolution_sentence(history: History) -> str:
    """What was proposed and what became of it."""
    counts = {
        (kind, verdict): len(history.decided(kind, verdict=verdict)) for kind in ProposalKind for verdict in VerdictKind
    }
    clones = sum(life.origin == "clone" for life in history.policies.values())
    merges = sum(life.origin == "merge" for life in history.policies.values())
    harness, pair, merge = ProposalKind.HARNESS, ProposalKind.PAIR, ProposalKind.MERGE
    accepted, rejected = VerdictKind.ACCEPTED, VerdictKind.REJECTED
    promotions = sum(c.cause == "promotion" for c in history.champions)
    rollbacks = sum(c.cause == "rollback" for c in history.champions)
    return (
        f"Harness edits: {counts[harness, accepted]} accepted, {counts[harness, rejected]} rejected. "
        f"Challenges of the champion: {counts[pair, accepted]} accepted, {counts[pair, rejected]} rejected; "
        f"{promotions} promotions, {rollbacks} rollbacks. "
        f"Merges: {merges} made, {counts[merge, accepted]} won their race, {counts[merge, rejected]} lost it. "
        f"Exploits: {clones}. Updates: {count(history.end.updates)}."
    )
