"""`coharness show RUN [KIND] [ID]`: what a run's journal and episodes hold, one card or one list at a time.

Every answer is first plain values, then printed as aligned rows or YAML, or as JSON. Reads the same projection of the journal
as the report, so both say the same.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coharness.cli.exit_codes import ExitCode
from coharness.config.suggest import did_you_mean
from coharness.records.errors import ConfigError

if TYPE_CHECKING:
    from coharness.records.episode import Episode
    from coharness.report.timeline import History, PolicyLife, ProposalLife

Card = dict[str, Any]
"""Plain values under names, in reading order."""
NUM_EPISODES_LISTED = 20


class Kind(StrEnum):
    """What can be shown."""

    MEMBER = "member"
    "A policy: where it came from, its versions."
    HARNESS = "harness"
    "A genome, and where it served."
    PROPOSAL = "proposal"
    "A proposal, what it would change, and its verdict."
    EPISODE = "episode"
    "The episodes of one work item, as text."


def show(run: Path, kind: str | None, name: str | None, *, as_json: bool) -> ExitCode:
    """Print an overview of a run, a list of one kind, or one card.

    Raises:
        ConfigError: the folder is no run, or there is no such kind or name; the message suggests one.
    """
    from coharness.report.history import read_history

    if kind is not None and kind not in list(Kind):
        near = did_you_mean(kind, list(Kind))
        raise ConfigError(f"cannot show {kind!r}; " + (f"did you mean {near}?" if near else f"try {', '.join(Kind)}"))
    history = read_history(run)
    found: Card | list[Card]
    match kind:
        case None:
            found = overview(history)
        case Kind.EPISODE:
            found = _episode_cards(run, history, name) if name else _episode_rows(run)
        case _ if name is None:
            found = _lists(history, Kind(kind))
        case _:
            found = _card(history, Kind(kind), name)
    typer.echo(json.dumps(found, ensure_ascii=False, default=str) if as_json else as_text(found))
    return ExitCode.DONE


def overview(history: "History") -> Card:
    """The run in one card: champion, members, harnesses, proposals."""
    champion = history.champion
    return {
        "run": history.run_id,
        "seed": history.seed,
        "ended": history.finish or history.stop or "not yet",
        "champion": f"{champion.serving} since rollout {champion.start.rollouts:,} ({champion.cause})"
        if champion
        else None,
        "members": [life.id for life in history.policies.values() if life.joined and not life.ended],
        "harnesses": list(dict.fromkeys(span.harness for span in history.harness_spans if span.end is None)),
        "proposals": len(history.proposals),
        "more": "coharness show RUN member | harness | proposal | episode, each with an id for one of them",
    }


def _lists(history: "History", kind: Kind) -> list[Card]:
    match kind:
        case Kind.MEMBER:
            return [_member_row(life) for life in history.policies.values()]
        case Kind.HARNESS:
            return [
                {
                    "harness": span.harness, "slot": span.slot, "since": span.start.rollouts, "until": _rollouts(span.end),
                    "operator": span.operator, "edits": "; ".join(span.edits),
                }
                for span in history.harness_spans
            ]  # fmt: skip
        case _:
            return [_proposal_row(life) for life in history.proposals]


def _card(history: "History", kind: Kind, name: str) -> Card:
    match kind:
        case Kind.MEMBER:
            policies = {str(policy): life for policy, life in history.policies.items()}
            life = policies.get(name.partition("@")[0])
            if life is None:
                raise _no_such(kind, name, list(policies))
            return _member_card(life, name)
        case Kind.HARNESS:
            genomes = {str(harness): genome for harness, genome in history.genomes.items()}
            matches = [key for key in genomes if key.startswith((name, f"h-{name}"))]
            if len(matches) != 1:
                raise _no_such(kind, name, list(genomes))
            spans = [span for span in history.harness_spans if span.harness == matches[0]]
            return {
                "harness": matches[0],
                "served": [
                    {
                        "slot": span.slot, "since": span.start.rollouts, "until": _rollouts(span.end),
                        "operator": span.operator, "parents": [str(p) for p in span.parents], "edits": list(span.edits),
                    }
                    for span in spans
                ],
                "genome": genomes[matches[0]].to_json(),
            }  # fmt: skip
        case _:
            proposals = {str(life.proposal.id): life for life in history.proposals}
            if name not in proposals:
                raise _no_such(kind, name, list(proposals))
            return _proposal_card(proposals[name])


def _member_row(life: "PolicyLife") -> Card:
    last = life.versions[-1] if life.versions else None
    return {
        "member": life.id,
        "origin": life.origin,
        "parents": " ".join(map(str, life.parents)),
        "slot": life.slot,
        "versions": len(life.versions),
        "last": str(last.ref) if last else None,
        "born": life.born.rollouts,
        "ended": life.ending or None,
    }


def _member_card(life: "PolicyLife", name: str) -> Card:
    versions = [
        {
            "version": str(v.ref), "operator": v.operator, "rollouts": v.at.rollouts, "digest": v.digest,
            "metrics": dict(v.metrics), "hyperparameters": dict(v.hyperparameters),
        }
        for v in life.versions
        if "@" not in name or str(v.ref) == name
    ]  # fmt: skip
    if not versions and "@" in name:
        raise _no_such(Kind.MEMBER, name, [str(v.ref) for v in life.versions])
    return {**_member_row(life), "versions": versions}


def _proposal_row(life: "ProposalLife") -> Card:
    verdict = life.verdict
    return {
        "proposal": life.proposal.id,
        "kind": str(life.proposal.kind),
        "operator": life.proposal.operator,
        "opened": life.opened.rollouts,
        "verdict": str(verdict.kind) if verdict else "open",
        "pairs": f"+{verdict.wins} -{verdict.losses} ={verdict.ties}" if verdict else None,
        "edits": "; ".join(life.edits),
    }


def _proposal_card(life: "ProposalLife") -> Card:
    proposal, verdict = life.proposal, life.verdict
    return {
        "proposal": proposal.id,
        "kind": str(proposal.kind),
        "operator": proposal.operator,
        "challenger": str(proposal.challenger),
        "incumbent": str(proposal.incumbent),
        "edits": list(life.edits),
        "families": list(proposal.families),
        "manifest": dict(proposal.manifest),
        "test_index": proposal.test_index,
        "opened": life.opened.rollouts,
        "decided": _rollouts(life.decided),
        "verdict": None
        if verdict is None
        else {
            "kind": str(verdict.kind), "reason": verdict.reason, "wins": verdict.wins, "losses": verdict.losses,
            "ties": verdict.ties, "log_evalue": verdict.log_evalue, "level": verdict.level,
        },
    }  # fmt: skip


def _episode_rows(run: Path) -> list[Card]:
    from coharness.loop.replay_store import read_episodes
    from coharness.loop.run_dir import RunDir

    columns = ["item", "sample", "purpose", "policy", "step", "harness", "family", "level", "format", "exact"]
    table = read_episodes(RunDir.open(run).replay_dir).select(columns)
    rows: list[Card] = table.slice(max(table.num_rows - NUM_EPISODES_LISTED, 0)).to_pylist()
    return rows


def _episode_cards(run: Path, history: "History", name: str) -> list[Card]:
    from coharness.loop.replay_store import read_episodes
    from coharness.loop.run_dir import RunDir
    from coharness.policy.bases import resolve_base
    from coharness.policy.codec import open_codec
    from coharness.records.episode import episodes_from_table
    from coharness.records.ids import ItemId

    if not name.isdecimal():
        raise ConfigError(f"an episode is named by the number of its work item, got {name!r}; see: show RUN episode")
    episodes = episodes_from_table(read_episodes(RunDir.open(run).replay_dir, [ItemId(int(name))]))
    if not episodes:
        raise ConfigError(f"{run} holds no episode of work item {name}; it failed, was cancelled, or is not done yet")
    spec = resolve_base(history.config["policy"]["base"])
    codec = open_codec(spec.path, is_chat=spec.is_chat)
    return [
        {
            "item": e.item, "sample": e.sample, "purpose": e.purpose, "version": f"{e.policy}@{e.step}",
            "harness": e.harness, "task": e.task, "family": e.family, "level": e.level, "format": e.format,
            "temperature": e.temperature,
            "prompt": codec.decode(e.token_ids[: e.prompt_length]),
            "written": codec.decode(e.token_ids[e.prompt_length :]),
            "reference": codec.decode(e.reference_ids),
            "answer": e.answer, "stop": str(e.stop_reason),
            "score": {
                "value": e.score.value, "exact": e.score.exact, "partial": e.score.partial, "format": e.score.format,
                "length": e.score.length, "feedback": e.score.feedback,
            },
            **_judged(e),
        }
        for e in episodes
    ]  # fmt: skip


def _judged(episode: "Episode") -> Card:
    """The judge's parts, or how those came to nothing that have no value."""
    if not episode.judge:
        return {}
    parts = {part.name: part.outcome if part.value is None else part.value for part in episode.judged}
    return {"judge": episode.judge, "judged": parts}


def _rollouts(moment: Any) -> int | None:
    return None if moment is None else int(moment.rollouts)


def _no_such(kind: Kind, name: str, known: Sequence[str]) -> ConfigError:
    near = did_you_mean(name, known)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(known) or 'none'}"
    return ConfigError(f"no {kind} {name!r} in this run; {hint}")


def as_text(found: Card | list[Card]) -> str:
    """A card as YAML; rows of plain values as aligned columns; several cards one after the other."""
    from coharness.config.yaml_text import write_mapping

    if isinstance(found, Mapping):
        return write_mapping(json.loads(json.dumps(found, default=str))).rstrip()
    if any(isinstance(value, Mapping | list) for row in found for value in row.values()):
        return "\n\n".join(as_text(card) for card in found)
    if not found:
        return "none"
    rows = [list(found[0]), *(["" if value is None else str(value) for value in row.values()] for row in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
