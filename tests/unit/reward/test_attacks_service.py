"""Attacks on the service, its replies and its secrets: 7 and 14 to 19 of the list in test_attacks."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from coharness.records.errors import BoundaryError, ConfigError
from coharness.records.harness import RewardGenes
from coharness.records.protocols import Check
from coharness.reward.algebra.part import Part, PartOutcome
from coharness.reward.judges.rubric import rubric_from_json
from coharness.reward.score import Attempted, score_group
from coharness.reward.service.client import RewardClient
from coharness.testing.judge_server import Reply, fair_judge
from tests.unit.reward.judging import goodness, judge_on
from tests.unit.reward.serving import OTHER_TEXT, TEXT, app_on, ask, score_items

GOOD, BAD = "It is 4 because 2 and 2 are added.", "It is 4, trust me."


# 7: size ------------------------------------------------------------------------------------------------------------


def test_07_size_is_refused_before_it_is_parsed() -> None:
    with judge_on(fair_judge(goodness)) as (judge, server):
        app = app_on(judge)
        assert ask(app, "/v1/score", body=b'{"items": [' + b"9" * (9 * 2**20)).status == 413
        assert ask(app, "/v1/score", headers=[("content-length", str(50 * 2**20))], body=b"{").status == 413
        assert ask(app, "/v1/rank", {"items": [{"question": "q", "candidates": ["x"] * 10_000}]}).status == 413
        assert ask(app, "/v1/score", body=b"[" * 2**20).status == 422
        assert server.requests == []
    with pytest.raises(ConfigError, match="expected 1 to 32"):
        rubric_from_json({"name": "r", "criteria": [{"name": f"c{i}", "text": "x y"} for i in range(100_000)]})


# 14 and 19 stand in test_service; the essence once more -------------------------------------------------------------


def test_14_19_no_token_no_answer_and_no_answer_of_another_tenant() -> None:
    with judge_on(fair_judge(goodness)) as (judge, server):
        app = app_on(judge)
        assert ask(app, "/v1/score", score_items(GOOD), token=None).status == 401
        ask(app, "/v1/score", score_items(GOOD), token=TEXT)
        row = ask(app, "/v1/score", score_items(GOOD), token=OTHER_TEXT).json["results"][0]
        assert (row["cached"], len(server.requests)) == (False, 2)


# 15, 16: replies that lie -------------------------------------------------------------------------------------------

Mangle = Callable[[bytes, dict[str, str]], tuple[bytes, dict[str, str]]]


@contextmanager
def between(app: Any, mangle: Mangle) -> Iterator[str]:
    """An HTTP server that asks the application and alters what it says."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            token = self.headers["Authorization"].removeprefix("Bearer ")
            given = [("x-request-id", self.headers["x-request-id"])]
            answer = ask(app, self.path, body=body, token=token, headers=given)
            data, headers = mangle(answer.body, dict(answer.headers))
            self.send_response(answer.status)
            for name, value in headers.items():
                if name != "content-length":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5.0)


def swapped(body: bytes) -> bytes:
    data = json.loads(body)
    rows = data["results"]
    rows[0]["value"], rows[1]["value"] = rows[1]["value"], rows[0]["value"]
    return json.dumps(data).encode()


def test_15_a_tampered_replayed_or_unsigned_reply_is_infra() -> None:
    first: list[tuple[bytes, dict[str, str]]] = []

    def replay(body: bytes, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        first.append((body, headers))
        return first[0]

    mangles: dict[str, Mangle] = {
        "swapped": lambda body, headers: (swapped(body), headers),
        "unsigned": lambda body, headers: (body, {k: v for k, v in headers.items() if "signature" not in k}),
        "raised": lambda body, headers: (body.replace(b'"value": 0.0', b'"value": 1.0'), headers),
    }
    with judge_on(fair_judge(goodness)) as (judge, _):
        app = app_on(judge)
        for name, mangle in mangles.items():
            with between(app, mangle) as base:
                client = RewardClient(base, TEXT, timeout_s=20.0)
                judged = client.score_all([("q", GOOD), ("q", BAD)])
                assert [(j.outcome, j.value) for j in judged] == [(PartOutcome.INFRA, None)] * 2, name
                client.close()
        with between(app, replay) as base:
            client = RewardClient(base, TEXT, timeout_s=20.0)
            assert client.score_all([("q", GOOD)])[0].value == 1.0
            assert client.score_all([("q", GOOD)])[0].outcome is PartOutcome.INFRA
            client.close()
        with between(app, lambda body, headers: (body, headers)) as base:
            client = RewardClient(base, TEXT, timeout_s=20.0)
            assert [j.value for j in client.score_all([("q", GOOD), ("q", BAD)])] == [1.0, 0.0]
            client.close()


def test_15_a_signed_reply_with_rows_of_other_items_is_infra() -> None:
    from coharness.reward.service.client import _judgment
    from coharness.reward.service.signing import item_digest

    versions = judge_versions()
    row = {"id": "0", "sha256": item_digest("q", BAD), "outcome": "ok", "value": 1.0}
    assert _judgment(row, item_digest("q", GOOD), versions, 0.0).outcome is PartOutcome.INFRA
    assert _judgment(None, item_digest("q", GOOD), versions, 0.0).outcome is PartOutcome.INFRA


def judge_versions() -> Any:
    from coharness.reward.judges.judgment import Versions

    return Versions(model="m", rubric="r@1", protocol=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1, True, "1.0", None, [1.0], 1e999])
def test_16_no_odd_number_reaches_an_advantage(value: Any) -> None:
    from coharness.reward.service.client import _judgment
    from coharness.reward.service.signing import item_digest

    row = {"id": "0", "sha256": item_digest("q", GOOD), "outcome": "ok", "value": value}
    judgment = _judgment(row, item_digest("q", GOOD), judge_versions(), 0.0)
    assert (judgment.outcome, judgment.value) == (PartOutcome.PARSE, None)
    with pytest.raises(ValueError, match="expected a finite number"):
        Part(name="judge/score", outcome=PartOutcome.OK, value=value if value is not None else float("nan"))


# 17: outages --------------------------------------------------------------------------------------------------------


def test_17_an_outage_makes_no_number_and_fails_whole_groups() -> None:
    count = [0]
    lock = threading.Lock()

    def flaky(request: dict[str, Any]) -> str | Reply:
        with lock:
            count[0] += 1
            sick = count[0] % 3 == 0
        return Reply(status=503) if sick else str(fair_judge(goodness)(request))

    with judge_on(flaky, attempts=1, keep=False) as (judge, _):
        texts = [f"{GOOD} {i}" for i in range(30)]
        rows = judge.judge("q", texts)
        values = {row[0].value for row in rows}
        failed = [row for row in rows if row[0].value is None]
        assert values == {1.0, None}
        assert 5 <= len(failed) <= 20
        assert all(part.outcome is PartOutcome.INFRA for row in failed for part in row)
        attempts = [
            Attempted(check=Check(correct=True, partial=1.0), tokens_used=1, max_tokens=4, judged=row) for row in rows
        ]
        rule = {"value": {"verifier_first": {"check": "exact", "judge": "judge/score"}}}
        with pytest.raises(BoundaryError, match="has no reward, the outcome is infra"):
            score_group(attempts, RewardGenes(rule=rule))


# 18: secrets --------------------------------------------------------------------------------------------------------

SECRET = "sk-planted-0123456789abcdefghijkl"


def test_18_no_key_is_written_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from coharness.reward.judges.secrets import redacted

    caplog.set_level(logging.DEBUG)
    cache = tmp_path / "cache.sqlite"
    written = []
    for script in (
        fair_judge(goodness),
        lambda request: Reply(status=401, body=f"bad key Bearer {SECRET}".encode()),
        lambda request: Reply(status=400, body=f"you sent {SECRET}".encode()),
        lambda request: Reply(body=f"{SECRET}".encode()),
    ):
        with judge_on(script, cache=cache, client={"key": SECRET}) as (judge, server):
            judgment = judge.score("q", f"{GOOD} {len(written)}")
            app = app_on(judge)
            reply = ask(app, "/v1/score", score_items(f"{BAD} {len(written)}"))
            written += [repr(judgment), json.dumps(judgment.to_json()), reply.body.decode(), repr(judge.pool.states())]
            assert server.headers[0]["Authorization"] == f"Bearer {SECRET}"
            assert SECRET not in json.dumps(server.requests)
    assert SECRET not in "".join(written)
    assert SECRET not in caplog.text
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert redacted(f"x {SECRET} Bearer abcdefgh12345") == "x [redacted] [redacted]"
