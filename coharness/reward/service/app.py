"""The service as an ASGI application; any ASGI server hosts it, and tests call it without one.

POST /v1/score {"items": [{"question", "candidate", "id"?}]}     /v1/pair first, second     /v1/rank candidates
POST /v1/score?stream=1    the same, one JSON line a result, as they come
POST /v1/prefilter         what needs no judge at all
POST /get_reward           the shape of OpenRLHF's remote reward model
POST /v1/rubric            another rubric, behind the canaries (scope admin)
GET  /v1/state (admin), /healthz, /openapi.json
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from coharness.records.errors import ConfigError
from coharness.reward.judges.judgment import Judgment
from coharness.reward.judges.prefilter import degenerate
from coharness.reward.judges.rubric import Rubric, rubric_from_json
from coharness.reward.service.items import Item, read_items
from coharness.reward.service.judges import JudgeSlot, ServedJudge
from coharness.reward.service.limits import Limits, Refused, parse_body
from coharness.reward.service.openapi import document
from coharness.reward.service.signing import REQUEST_ID_HEADER, SIGNATURE_HEADER, signature
from coharness.reward.service.tokens import Scope, Token, authenticate

logger = logging.getLogger(__name__)

Scope_ = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
MakeJudge = Callable[[Rubric], ServedJudge]
ROUTES = {
    "/v1/score": Scope.JUDGE,
    "/v1/pair": Scope.JUDGE,
    "/v1/rank": Scope.JUDGE,
    "/v1/prefilter": Scope.JUDGE,
    "/get_reward": Scope.JUDGE,
    "/v1/rubric": Scope.ADMIN,
    "/v1/state": Scope.ADMIN,
}
GETS = ("/v1/state",)


class RewardApp:
    """The application; one instance a process."""

    def __init__(
        self,
        slot: JudgeSlot,
        tokens: Sequence[Token],
        *,
        limits: Limits | None = None,
        make_judge: MakeJudge | None = None,
        max_waiting: int = 4096,
        threads: int = 8,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`make_judge` builds a judge of another rubric; where it is left out, rubrics cannot be loaded."""
        if not tokens:
            raise ConfigError("the service has no token, so nobody could ask it; give it at least one")
        self._slot = slot
        self._tokens = tuple(tokens)
        self._limits = limits or Limits()
        self._make = make_judge
        self._max_waiting = max_waiting
        self._waiting = 0
        self._now = now
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="service")
        self._counts: dict[str, int] = {}

    async def __call__(self, scope: Scope_, receive: Receive, send: Send) -> None:
        """Serve one connection event of ASGI."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def close(self) -> None:
        """End threads and judges."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._slot.close()

    async def _http(self, scope: Scope_, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        request_id = headers.get(REQUEST_ID_HEADER, "")[:128]
        token: Token | None = None
        body = b""
        try:
            if method == "GET" and path == "/healthz":
                reply: Any = {"status": "ok"}
            elif method == "GET" and path == "/openapi.json":
                reply = document(self._limits)
            else:
                query = scope.get("query_string", b"").decode("latin-1")
                token = self._token(path, method, headers, query)
                body = await self._body(headers, receive)
                if path == "/v1/score" and "stream=1" in query.split("&"):
                    await self._stream(token, body, send)
                    return
                reply = await self._answer(path, token, body)
            status = 200
        except Refused as refused:
            status, reply = refused.status, _error(refused.code, refused.message)
        except Exception:
            # What broke stays in the log: its text may hold a candidate, an address or a key.
            logger.exception("a request to %s failed", path)
            status, reply = 500, _error("internal", "the service failed; nothing was scored")
        counted = f"{path if path in ROUTES else 'other'} {status}"
        self._counts[counted] = self._counts.get(counted, 0) + 1
        data = json.dumps(reply, ensure_ascii=True, allow_nan=False).encode()
        extra = [(b"cache-control", b"no-store")]
        if token is not None:
            signed = signature(token.signing_key, path=path, request_id=request_id, request=body, reply=data)
            extra.append((SIGNATURE_HEADER.encode(), signed.encode()))
        if status in (429, 503):
            extra.append((b"retry-after", b"1"))
        await _send(send, status, data, extra)

    def _token(self, path: str, method: str, headers: Mapping[str, str], query: str) -> Token:
        scope = ROUTES.get(path)
        # An unknown path needs a token, too: without one, nothing is told about what there is.
        token = authenticate(headers.get("authorization"), query, self._tokens, scope or Scope.JUDGE, self._now())
        if scope is None:
            raise Refused(404, "not_found", "there is no such address; see /openapi.json")
        if method != ("GET" if path in GETS else "POST"):
            raise Refused(405, "method", f"{path} is asked with {'GET' if path in GETS else 'POST'}")
        return token

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        length = headers.get("content-length", "0")
        too_large = Refused(413, "too_large", f"the body has more than {self._limits.max_body_bytes} bytes")
        if not length.isdigit() or len(length) > 12 or int(length) > self._limits.max_body_bytes:
            raise too_large
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "disconnected", "the client went away")
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > self._limits.max_body_bytes:
                raise too_large
            if not message.get("more_body"):
                return b"".join(pieces)

    # Answers ---------------------------------------------------------------------------------------------------------

    async def _answer(self, path: str, token: Token, body: bytes) -> Any:
        if path == "/v1/state":
            return {"judge": asdict(self._slot.judge.versions), "waiting": self._waiting, "requests": self._counts}
        data = parse_body(body, self._limits)
        match path:
            case "/v1/prefilter":
                return _prefilter(data, self._limits)
            case "/v1/rubric":
                return await self._load_rubric(data)
            case "/get_reward":
                return await self._openrlhf(data, token)
            case _:
                return await self._judged(path, data, token)

    async def _judged(self, path: str, data: Any, token: Token) -> Any:
        fields = {"/v1/score": ("candidate",), "/v1/pair": ("first", "second"), "/v1/rank": ("candidates",)}[path]
        items = read_items(data, fields, self._limits)
        judge = self._slot.judge
        results = await self._run(len(items), lambda: _judge(path, judge.for_tenant(token.tenant), items))
        return {
            "versions": asdict(judge.versions),
            "results": [
                {"id": item.id, "sha256": item.digest, **result} for item, result in zip(items, results, strict=True)
            ],
        }

    async def _stream(self, token: Token, body: bytes, send: Send) -> None:
        items = read_items(parse_body(body, self._limits), ("candidate",), self._limits)
        judge = self._slot.judge.for_tenant(token.tenant)
        kind = (b"content-type", b"application/x-ndjson")
        await send({"type": "http.response.start", "status": 200, "headers": [kind, (b"cache-control", b"no-store")]})

        async def one(item: Item) -> tuple[Item, dict[str, Any]]:
            return item, (await self._run(1, lambda: _judge("/v1/score", judge, [item])))[0]

        for next_done in asyncio.as_completed([one(item) for item in items]):
            try:
                item, result = await next_done
                row = {"id": item.id, "sha256": item.digest, **result, "versions": asdict(judge.versions)}
            except Refused as refused:
                row = _error(refused.code, refused.message)
            line = json.dumps(row, ensure_ascii=True, allow_nan=False).encode() + b"\n"
            await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _openrlhf(self, data: Any, token: Token) -> Any:
        queries, prompts = _openrlhf_texts(data, self._limits)
        items = [
            Item(id=str(index), question=prompt, candidates=(query.removeprefix(prompt),))
            for index, (query, prompt) in enumerate(zip(queries, prompts, strict=True))
        ]
        judge = self._slot.judge.for_tenant(token.tenant)
        judged = await self._run(len(items), lambda: judge.score_all([(i.question, i.candidates[0]) for i in items]))
        failed = [j for j in judged if j.value is None]
        if failed:
            # This shape has no place for a failure: the batch is refused rather than filled up with numbers.
            raise Refused(
                503, "not_scored", f"{len(failed)} of {len(items)} could not be scored ({failed[0].outcome}); ask again"
            )
        values = [float(j.value or 0.0) for j in judged]
        return {
            "rewards": values,
            "scores": values,
            "extra_logs": {
                "cached": [float(j.cached) for j in judged],
                "flagged": [float(bool(j.flags)) for j in judged],
            },
        }

    async def _load_rubric(self, data: Any) -> Any:
        if self._make is None:
            raise Refused(403, "fixed", "this service keeps the rubric that it was started with")
        make = self._make
        try:
            rubric = rubric_from_json(data)
        except ConfigError as error:
            raise Refused(422, "bad_rubric", str(error)) from error
        report = await self._run(1, lambda: self._slot.swap(lambda: make(rubric)))
        return {
            "accepted": report.accepted,
            "reason": report.reason,
            "broken": list(report.canaries.broken),
            "unscored": list(report.canaries.unscored),
            "versions": asdict(report.versions),
        }

    async def _run(self, weight: int, work: Callable[[], Any]) -> Any:
        """Run blocking work in a thread, unless too much is waiting already."""
        if self._waiting + weight > self._max_waiting:
            raise Refused(503, "busy", "too many items are waiting; ask again in a moment")
        self._waiting += weight
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= weight


def _judge(path: str, judge: ServedJudge, items: Sequence[Item]) -> list[dict[str, Any]]:
    match path:
        case "/v1/score":
            judged = judge.score_all([(item.question, item.candidates[0]) for item in items])
            return [_public(j) for j in judged]
        case "/v1/pair":
            judged = judge.pair_all([(item.question, item.candidates[0], item.candidates[1]) for item in items])
            return [_public(j) for j in judged]
        case _:
            rankings = [judge.rank(item.question, item.candidates) for item in items]
            return [{k: v for k, v in r.to_json().items() if k != "versions"} for r in rankings]


def _public(judgment: Judgment) -> dict[str, Any]:
    data = judgment.to_json()
    del data["versions"]
    if judgment.value is None:
        # Why an endpoint failed is the operator's business; the outcome is the client's.
        data["reason"] = ""
    return data


def _prefilter(data: Any, limits: Limits) -> Any:
    results = []
    for item in read_items(data, ("candidate",), limits):
        found = degenerate(item.candidates[0])
        row = {"id": item.id, "sha256": item.digest, "degenerate": found is not None}
        results.append(
            {**row, "rule": "" if found is None else found.rule, "reason": "" if found is None else found.reason}
        )
    return {"results": results}


def _openrlhf_texts(data: Any, limits: Limits) -> tuple[list[str], list[str]]:
    if not isinstance(data, Mapping) or not {"query", "prompts"} <= set(data) <= {"query", "prompts", "labels"}:
        raise Refused(422, "bad_item", "expected query and prompts, and perhaps labels")
    queries, prompts = data["query"], data["prompts"]
    if not isinstance(queries, list) or not isinstance(prompts, list) or len(queries) != len(prompts):
        raise Refused(422, "bad_item", "query and prompts are lists of the same length")
    if not 1 <= len(queries) <= limits.max_items:
        raise Refused(413, "too_many_items", f"expected 1 to {limits.max_items} items")
    if not all(isinstance(t, str) and len(t) <= limits.max_text_chars for t in (*queries, *prompts)):
        raise Refused(422, "bad_item", f"query and prompts hold texts of at most {limits.max_text_chars} characters")
    return queries, prompts


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


async def _send(send: Send, status: int, data: bytes, extra: Sequence[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
