"""Calling the ASGI application without a server."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coharness.reward.monitors.canary import Canary, CanaryKind
from coharness.reward.service.app import RewardApp
from coharness.reward.service.judges import JudgeSlot, ServedJudge
from coharness.reward.service.limits import Limits
from coharness.reward.service.tokens import Scope, new_token

TEXT, TOKEN = new_token("trainer", tenant="a", scopes=(Scope.JUDGE,))
OTHER_TEXT, OTHER = new_token("other", tenant="b", scopes=(Scope.JUDGE,))
ADMIN_TEXT, ADMIN = new_token("admin", tenant="a", scopes=(Scope.ADMIN,))
CANARIES = (
    Canary(name="good", kind=CanaryKind.GOOD, question="q", answer="right, because it adds up"),
    Canary(name="bad", kind=CanaryKind.BAD, question="q", answer="wrong, trust me"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the application sent."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def app_on(judge: ServedJudge, *, limits: Limits | None = None, **options: Any) -> RewardApp:
    """The application with three tokens and two canaries."""
    return RewardApp(JudgeSlot(judge, CANARIES), (TOKEN, OTHER, ADMIN), limits=limits, **options)


def ask(
    app: RewardApp,
    path: str,
    data: Any = None,
    *,
    token: str | None = TEXT,
    method: str = "POST",
    query: str = "",
    body: bytes | None = None,
    headers: Sequence[tuple[str, str]] = (),
    pieces: int = 1,
) -> Answer:
    """One request."""
    payload = (b"" if data is None else json.dumps(data).encode()) if body is None else body
    sent: list[dict[str, Any]] = []
    size = max(1, -(-len(payload) // pieces))
    chunks = [payload[i : i + size] for i in range(0, len(payload), size)] or [b""]

    async def receive() -> dict[str, Any]:
        chunk = chunks.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    given = [("authorization", f"Bearer {token}")] if token else []
    names = {name for name, _ in headers}
    length = [] if "content-length" in names else [("content-length", str(len(payload)))]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(n.encode(), v.encode("latin-1")) for n, v in [*given, *length, *headers]],
    }
    asyncio.run(app(scope, receive, send))
    return Answer(
        status=sent[0]["status"],
        headers={n.decode(): v.decode() for n, v in sent[0]["headers"]},
        body=b"".join(m.get("body", b"") for m in sent[1:]),
    )


def score_items(*candidates: str, question: str = "q") -> dict[str, Any]:
    """A body for /v1/score."""
    return {"items": [{"question": question, "candidate": text} for text in candidates]}
