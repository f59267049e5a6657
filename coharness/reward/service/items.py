"""Items of requests, read strictly: what is missing, extra or of another kind is refused with its place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coharness.reward.service.limits import Limits, Refused
from coharness.reward.service.signing import item_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing to judge."""

    id: str
    question: str
    candidates: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Digest of question and candidates."""
        return item_digest(self.question, *self.candidates)


def read_items(data: Any, fields: tuple[str, ...], limits: Limits) -> list[Item]:
    """Items of `{"items": [...]}`; each has `question`, the candidates' fields, and perhaps an `id`.

    Args:
        data: the parsed body.
        fields: names of the candidates' fields, `("candidate",)` or `("first", "second")`; `("candidates",)` for a list.
        limits: of the request.

    Raises:
        Refused: 422 with the place, 413 for too many or too long.
    """
    if not isinstance(data, Mapping) or set(data) != {"items"} or not isinstance(data["items"], list):
        raise Refused(422, "no_items", 'expected {"items": [...]} and nothing else')
    if not 1 <= len(data["items"]) <= limits.max_items:
        raise Refused(413, "too_many_items", f"got {len(data['items'])} items, expected 1 to {limits.max_items}")
    items = [_item(entry, index, fields, limits) for index, entry in enumerate(data["items"])]
    if len({item.id for item in items}) != len(items):
        raise Refused(422, "double_id", "two items have the same id; leave ids out or make them distinct")
    return items


def _item(entry: Any, index: int, fields: tuple[str, ...], limits: Limits) -> Item:
    where = f"items[{index}]"
    if (
        not isinstance(entry, Mapping)
        or not set(entry) <= {"id", "question", *fields}
        or not {"question", *fields} <= set(entry)
    ):
        raise Refused(422, "bad_item", f"{where}: expected question, {', '.join(fields)} and perhaps id")
    name = entry.get("id", str(index))
    if not isinstance(name, str) or not 1 <= len(name) <= 128:
        raise Refused(422, "bad_item", f"{where}.id: expected a text of 1 to 128 characters")
    if fields == ("candidates",):
        texts = entry["candidates"]
        if not isinstance(texts, list) or not 2 <= len(texts) <= limits.max_candidates:
            raise Refused(413, "too_many_candidates", f"{where}.candidates: expected 2 to {limits.max_candidates}")
    else:
        texts = [entry[field] for field in fields]
    for text in (entry["question"], *texts):
        if not isinstance(text, str):
            raise Refused(422, "bad_item", f"{where}: question and candidates are texts")
        if len(text) > limits.max_text_chars:
            raise Refused(413, "text_too_long", f"{where}: a text has more than {limits.max_text_chars} characters")
    return Item(id=name, question=entry["question"], candidates=tuple(texts))
