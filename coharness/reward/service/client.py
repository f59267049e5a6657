"""Asking a reward service: replies are checked against the request before a number is believed.

Whatever does not fit, a signature, an item's digest, a value's range, a version that changed midway, makes the rows concerned
INFRA: the trainer leaves them out.
"""

import http.client
import json
import math
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from coharness.records.errors import ConfigError
from coharness.reward.algebra.part import PartOutcome
from coharness.reward.judges.judgment import Judgment, Versions
from coharness.reward.service.signing import REQUEST_ID_HEADER, SIGNATURE_HEADER, is_signed, item_digest
from coharness.reward.service.tokens import digest_of, signing_key_of

MAX_REPLY_BYTES = 64 * 2**20
UNKNOWN = Versions(model="?", rubric="?", protocol=0)


class RewardClient:
    """Scores and pairs from a service; one connection a thread, kept open."""

    def __init__(self, base: str, token: str, *, timeout_s: float = 180.0, batch: int = 256) -> None:
        """`base` is the service's address, such as http://127.0.0.1:8750."""
        parts = urlsplit(base)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.path.strip("/")
            or parts.query
            or parts.username
        ):
            raise ConfigError(f"the service's address is {base!r}, expected http(s)://host:port and nothing more")
        self._parts = parts
        self._token = token
        self._key = signing_key_of(digest_of(token))
        self._timeout_s = timeout_s
        self._batch = batch
        self._local = threading.local()

    def __repr__(self) -> str:
        return f"RewardClient({self._parts.geturl()!r})"

    def score_all(self, items: Sequence[tuple[str, str]]) -> list[Judgment]:
        """Scores of (question, candidate) items, in order."""
        rows = [{"question": question, "candidate": candidate} for question, candidate in items]
        return self._ask("/v1/score", rows, [item_digest(*item) for item in items], 0.0)

    def pair_all(self, items: Sequence[tuple[str, str, str]]) -> list[Judgment]:
        """Preferences of (question, first, second) items, in order."""
        rows = [{"question": question, "first": first, "second": second} for question, first, second in items]
        return self._ask("/v1/pair", rows, [item_digest(*item) for item in items], -1.0)

    def _ask(self, path: str, rows: Sequence[Mapping[str, str]], digests: Sequence[str], low: float) -> list[Judgment]:
        results: list[Judgment] = []
        for start in range(0, len(rows), self._batch):
            part = range(start, min(start + self._batch, len(rows)))
            asked = [{"id": str(index), **rows[index]} for index in part]
            results += self._one(path, asked, [digests[index] for index in part], low)
        return results

    def _one(self, path: str, rows: Sequence[Mapping[str, str]], digests: Sequence[str], low: float) -> list[Judgment]:
        body = json.dumps({"items": rows}, ensure_ascii=True).encode()
        request_id = secrets.token_hex(16)
        try:
            status, given, reply = self._post(path, body, request_id)
        except (OSError, http.client.HTTPException) as error:
            return [_infra(f"no answer: {type(error).__name__}")] * len(rows)
        if not is_signed(self._key, given, path=path, request_id=request_id, request=body, reply=reply):
            return [_infra("the reply is not signed for this request")] * len(rows)
        if status != 200:
            return [_infra(f"the service answered {status}")] * len(rows)
        try:
            data = json.loads(reply)
            versions = Versions(**data["versions"])
            by_id = {row["id"]: row for row in data["results"]}
        except (ValueError, KeyError, TypeError):
            return [_infra("the reply is none of this service")] * len(rows)
        return [
            _judgment(by_id.get(row["id"]), digest, versions, low) for row, digest in zip(rows, digests, strict=True)
        ]

    def _post(self, path: str, body: bytes, request_id: str) -> tuple[int, str, bytes]:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            REQUEST_ID_HEADER: request_id,
        }
        for attempt in (1, 2):
            connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
            fresh = connection is None
            if connection is None:
                kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
                connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)
                self._local.connection = connection
            try:
                connection.request("POST", path, body=body, headers=headers)
                response = connection.getresponse()
                reply = response.read(MAX_REPLY_BYTES + 1)
                if len(reply) > MAX_REPLY_BYTES:
                    raise http.client.HTTPException("the reply is too long")
                return response.status, response.getheader(SIGNATURE_HEADER, ""), reply
            except (OSError, http.client.HTTPException):
                connection.close()
                self._local.connection = None
                # A connection that was kept may have been closed meanwhile; a fresh one has no such excuse.
                if fresh or attempt == 2:
                    raise
        raise AssertionError("two attempts end in a reply or an error")

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


def _judgment(row: Any, digest: str, versions: Versions, low: float) -> Judgment:
    if not isinstance(row, Mapping) or row.get("sha256") != digest:
        return replace(_infra("no result of this item is in the reply"), versions=versions)
    outcome, value = row.get("outcome"), row.get("value")
    if outcome not in [o.value for o in PartOutcome]:
        return replace(_infra("a result has an unknown outcome"), versions=versions)
    if outcome != PartOutcome.OK:
        return Judgment(
            outcome=PartOutcome(outcome), value=None, reason="the service could not score it", versions=versions
        )
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not math.isfinite(value)
        or not low <= value <= 1.0
    ):
        return Judgment(outcome=PartOutcome.PARSE, value=None, reason=f"the value is {value!r:.40}", versions=versions)
    criteria = row.get("criteria")
    reasons = row.get("reasons")
    return Judgment(
        outcome=PartOutcome.OK,
        value=float(value),
        criteria=dict(criteria) if isinstance(criteria, Mapping) else {},
        reasons=dict(reasons) if isinstance(reasons, Mapping) else {},
        flags=tuple(str(flag) for flag in row.get("flags", ())),
        versions=versions,
        cached=row.get("cached") is True,
    )


def _infra(reason: str) -> Judgment:
    return Judgment(outcome=PartOutcome.INFRA, value=None, reason=reason, versions=UNKNOWN)
