"""Reading a rule from YAML's values, strictly: every mistake is named with its place and the likely fix."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from coharness.config.suggest import did_you_mean, shown
from coharness.records.errors import ConfigError
from coharness.reward.algebra.nodes import (
    Combination,
    Lexicographic,
    Node,
    PartNode,
    Term,
    VerifierFirst,
    is_pattern,
)

KINDS = ("not", "sum", "mean", "power", "soft_min", "min", "verifier_first", "lexicographic")
MAX_DEPTH = 12


def node_from_json(data: Any, where: str, *, top: bool = False, depth: int = 0) -> Node:
    """Read a node: a part's name, or a mapping of one kind to its settings.

    Raises:
        ConfigError: names the place.
    """
    if depth > MAX_DEPTH:
        raise ConfigError(
            f"{where} is nested deeper than {MAX_DEPTH} levels; a reward that deep cannot be read by anyone"
        )
    if isinstance(data, str):
        return PartNode(part=name_of(data, where))
    data = mapping_of(data, where)
    if len(data) != 1:
        raise ConfigError(
            f"{where} has the keys {', '.join(map(str, data)) or '(none)'}, expected a part's name or one of {', '.join(KINDS)}"
        )
    ((kind, body),) = data.items()
    word_of(kind, KINDS, where)
    where = f"{where}.{kind}"
    match kind:
        case "not":
            return PartNode(part=name_of(body, where), negated=True)
        case "verifier_first":
            return _verifier_first(mapping_of(body, where), where, depth)
        case "lexicographic":
            return _lexicographic(mapping_of(body, where), where, depth)
    if kind == "sum" and not top:
        raise ConfigError(f"{where} is not normalised and may stand at the top alone; use mean inside")
    return _combination(kind, mapping_of(body, where), where, depth)


def _combination(kind: str, body: Mapping[str, Any], where: str, depth: int) -> Combination:
    shape_key = {"power": "exponent", "soft_min": "temperature"}.get(kind)
    keys(body, ("of", *([shape_key] if shape_key else [])), ("quorum",), where)
    shape = 1.0
    if shape_key == "exponent":
        shape = number_of(body["exponent"], f"{where}.exponent", low=-100.0, high=100.0)
    elif shape_key == "temperature":
        shape = number_of(body["temperature"], f"{where}.temperature", low=1e-6)
    return Combination(
        kind=kind,
        terms=_terms(body["of"], f"{where}.of", depth, signed=kind == "sum"),
        shape=shape,
        quorum=number_of(body.get("quorum", 0.5), f"{where}.quorum", low=0.0, high=1.0),
    )


def _terms(data: Any, where: str, depth: int, *, signed: bool) -> tuple[Term, ...]:
    if isinstance(data, Mapping):
        pairs: list[tuple[Any, Any, str]] = [(name, weight, f"{where}.{name}") for name, weight in data.items()]
    else:
        pairs = []
        for entry, at in objects_of(data, where):
            keys(entry, ("value",), ("weight",), at)
            pairs.append((entry["value"], entry.get("weight", 1.0), at))
    if not pairs:
        raise ConfigError(f"{where} is empty, expected at least one part with its weight, e.g. {{exact: 1}}")
    terms = []
    for node, raw, at in pairs:
        weight = number_of(raw, f"{at}: weight")
        if weight == 0.0 or (weight < 0.0 and not signed):
            raise ConfigError(f"{at} has weight {weight:g}, expected a number above 0; leave the part out instead")
        child = PartNode(part=node) if isinstance(node, str) else node_from_json(node, at, depth=depth + 1)
        terms.append(Term(node=child, weight=weight))
    return tuple(terms)


def _verifier_first(body: Mapping[str, Any], where: str, depth: int) -> VerifierFirst:
    keys(body, ("check", "judge"), ("partial", "cap", "without_judge"), where)
    cap = number_of(body.get("cap", 0.9), f"{where}.cap")
    if not 0.0 < cap < 1.0:
        raise ConfigError(
            f"{where}.cap is {cap:g}, expected a number in (0, 1), or a failed attempt could tie with a passed one"
        )
    return VerifierFirst(
        check=name_of(body["check"], f"{where}.check"),
        judge=node_from_json(body["judge"], f"{where}.judge", depth=depth + 1),
        partial=name_of(body["partial"], f"{where}.partial") if "partial" in body else None,
        cap=cap,
        without_judge=word_of(body.get("without_judge", "abstain"), ("abstain", "lower_end"), f"{where}.without_judge"),
    )


def _lexicographic(body: Mapping[str, Any], where: str, depth: int) -> Lexicographic:
    keys(body, ("of",), ("levels",), where)
    if not isinstance(body["of"], Sequence) or isinstance(body["of"], str) or len(body["of"]) < 2:
        raise ConfigError(
            f"{where}.of is {shown(body['of'])}, expected a list of at least two, the most important first"
        )
    nodes = tuple(node_from_json(n, f"{where}.of[{i}]", depth=depth + 1) for i, n in enumerate(body["of"]))
    levels = body.get("levels", [2] * (len(nodes) - 1))
    if (
        not isinstance(levels, Sequence)
        or len(levels) != len(nodes) - 1
        or not all(isinstance(n, int) and not isinstance(n, bool) and 2 <= n <= 1000 for n in levels)
    ):
        raise ConfigError(
            f"{where}.levels is {shown(levels)}, expected {len(nodes) - 1} whole numbers of 2 to 1000: steps of each but the last"
        )
    return Lexicographic(of=nodes, levels=tuple(levels))


def node_to_json(node: Node) -> Any:
    """The inverse of `node_from_json`."""
    match node:
        case PartNode(part=part, negated=negated):
            return {"not": part} if negated else part
        case Combination():
            body: dict[str, Any] = {"of": _terms_to_json(node.terms), "quorum": node.quorum}
            if node.kind == "power":
                body["exponent"] = node.shape
            if node.kind == "soft_min":
                body["temperature"] = node.shape
            return {node.kind: body}
        case VerifierFirst():
            body = {
                "check": node.check,
                "judge": node_to_json(node.judge),
                "cap": node.cap,
                "without_judge": node.without_judge,
            }
            return {"verifier_first": body if node.partial is None else {**body, "partial": node.partial}}
        case Lexicographic():
            return {"lexicographic": {"of": [node_to_json(n) for n in node.of], "levels": list(node.levels)}}
    raise AssertionError(f"no spelling for {node!r}")


def _terms_to_json(terms: tuple[Term, ...]) -> Any:
    names = [term.node.part for term in terms if isinstance(term.node, PartNode) and not term.node.negated]
    if len(set(names)) == len(terms):
        return {name: term.weight for name, term in zip(names, terms, strict=True)}
    return [{"value": node_to_json(term.node), "weight": term.weight} for term in terms]


# Values -------------------------------------------------------------------------------------------------------------


def mapping_of(data: Any, where: str) -> Mapping[str, Any]:
    """The value, which must be a mapping."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where} is {shown(data)}, expected a mapping of keys to values")
    return data


def objects_of(data: Any, where: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The mappings of a list, each with its place."""
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise ConfigError(f"{where} is {shown(data)}, expected a list")
    for index, entry in enumerate(data):
        yield mapping_of(entry, f"{where}[{index}]"), f"{where}[{index}]"


def keys(data: Mapping[str, Any], required: Iterable[str], optional: Iterable[str], where: str) -> None:
    """Refuse keys that are unknown or missing."""
    required, known = tuple(required), (*required, *optional)
    for key in data:
        if key not in known:
            meant = did_you_mean(str(key), known)
            hint = f"did you mean {meant}?" if meant else f"known are {', '.join(known)}"
            raise ConfigError(f"{where} has an unknown key {key!r}; {hint}")
    missing = [key for key in required if key not in data]
    if missing:
        raise ConfigError(f"{where} lacks {' and '.join(missing)}")


def number_of(data: Any, where: str, *, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number within bounds."""
    if not isinstance(data, int | float) or isinstance(data, bool) or not math.isfinite(data):
        raise ConfigError(f"{where} is {shown(data)}, expected a finite number")
    if not low <= data <= high:
        raise ConfigError(f"{where} is {data:g}, expected {low:g} to {high:g}")
    return float(data)


def word_of(data: Any, known: Iterable[str], where: str) -> str:
    """One of some words."""
    known = [str(word) for word in known]
    if data not in known:
        meant = did_you_mean(str(data), known)
        hint = f"did you mean {meant}?" if meant else f"expected one of {', '.join(known)}"
        raise ConfigError(f"{where} is {shown(data)}; {hint}")
    return str(data)


def name_of(data: Any, where: str) -> str:
    """The name of one part."""
    if not isinstance(data, str) or not data or is_pattern(data):
        raise ConfigError(f"{where} is {shown(data)}, expected the name of one part, such as exact or judge/clarity")
    return data
