"""The reward service: answers, tokens, limits, signatures, tenants, swaps; by ASGI calls, and once over a real socket."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coharness.records.errors import ConfigError, PreflightError
from coharness.reward.algebra.part import PartOutcome
from coharness.reward.judges.rubric import rubric_from_json
from coharness.reward.service.client import RewardClient
from coharness.reward.service.host import check_bind, is_loopback, listen, server_of
from coharness.reward.service.limits import Limits, nesting
from coharness.reward.service.signing import SIGNATURE_HEADER, is_signed, item_digest
from coharness.reward.service.tokens import Scope, digest_of, load_tokens, new_token
from coharness.testing.judge_server import Reply, fair_judge
from tests.unit.reward.judging import RUBRIC, goodness, judge_on
from tests.unit.reward.serving import ADMIN_TEXT, OTHER_TEXT, TEXT, TOKEN, app_on, ask, score_items

GOOD, BAD = "It is 4 because 2 and 2 are added.", "It is 4, trust me."
FAIR = fair_judge(goodness)


@contextmanager
def serving(script: Any = FAIR, **options: Any) -> Iterator[tuple[Any, Any]]:
    limits = options.pop("limits", None)
    make = options.pop("make_judge", None)
    waiting = options.pop("max_waiting", 4096)
    with judge_on(script, **options) as (judge, server):
        yield app_on(judge, limits=limits, make_judge=make, max_waiting=waiting), server


# Answers ------------------------------------------------------------------------------------------------------------


def test_scores_pairs_and_rankings_name_their_items_and_versions() -> None:
    with serving() as (app, _):
        reply = ask(app, "/v1/score", score_items(GOOD, BAD))
        assert reply.status == 200
        rows = reply.json["results"]
        assert [row["value"] for row in rows] == [1.0, 0.0]
        assert [row["sha256"] for row in rows] == [item_digest("q", GOOD), item_digest("q", BAD)]
        assert reply.json["versions"]["rubric"] == f"maths@{RUBRIC.version}"
        pair = ask(app, "/v1/pair", {"items": [{"question": "q", "first": BAD, "second": GOOD, "id": "x"}]}).json
        assert (pair["results"][0]["id"], pair["results"][0]["value"]) == ("x", -1.0)
        rank = ask(app, "/v1/rank", {"items": [{"question": "q", "candidates": [BAD, GOOD]}]}).json
        assert rank["results"][0]["order"] == [1, 0]


def test_reasons_are_streamed_a_line_a_result() -> None:
    with serving() as (app, _):
        reply = ask(app, "/v1/score", score_items(GOOD, BAD, ""), query="stream=1")
        rows = [json.loads(line) for line in reply.body.splitlines()]
        assert reply.headers["content-type"] == "application/x-ndjson"
        assert {row["id"]: row["value"] for row in rows} == {"0": 1.0, "1": 0.0, "2": 0.0}
        assert all(row["reasons"] or row["flags"] == ["degenerate"] for row in rows)


def test_the_prefilter_asks_no_judge() -> None:
    with serving() as (app, server):
        rows = ask(app, "/v1/prefilter", score_items("", GOOD)).json["results"]
        assert [(row["degenerate"], row["rule"]) for row in rows] == [(True, "empty"), (False, "")]
        assert server.requests == []


def test_failures_are_outcomes_and_their_reasons_stay_inside() -> None:
    with serving(lambda _: Reply(status=500)) as (app, _):
        row = ask(app, "/v1/score", score_items(GOOD)).json["results"][0]
        assert (row["outcome"], row["value"], row["reason"]) == ("infra", None, "")


def test_the_shape_of_openrlhf_has_no_place_for_a_failure_so_the_batch_is_refused() -> None:
    body = {"query": ["q" + GOOD, "q" + BAD], "prompts": ["q", "q"], "labels": ["4", "4"]}
    with serving() as (app, _):
        reply = ask(app, "/get_reward", body).json
        assert (reply["rewards"], reply["scores"]) == ([1.0, 0.0], [1.0, 0.0])
        assert set(reply["extra_logs"]) == {"cached", "flagged"}
    with serving(lambda _: Reply(text="hm")) as (app, _):
        reply = ask(app, "/get_reward", body)
        assert (reply.status, reply.json["error"]["code"]) == (503, "not_scored")


def test_the_document_lists_every_route() -> None:
    from coharness.reward.service.app import ROUTES

    with serving() as (app, _):
        document = ask(app, "/openapi.json", method="GET", token=None).json
        assert set(document["paths"]) == {*ROUTES, "/healthz"}
        assert ask(app, "/healthz", method="GET", token=None).json == {"status": "ok"}


# Limits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        ([], 422, "no_items"),
        ({"items": []}, 413, "too_many_items"),
        ({"items": [{"question": "q"}]}, 422, "bad_item"),
        ({"items": [{"question": "q", "candidate": "c", "score": 1}]}, 422, "bad_item"),
        ({"items": [{"question": "q", "candidate": 5}]}, 422, "bad_item"),
        ({"items": [{"question": "q", "candidate": "c", "id": "a"}] * 2}, 422, "double_id"),
        ({"items": [{"question": "q", "candidate": "c"}] * 1025}, 413, "too_many_items"),
    ],
)
def test_a_request_is_read_strictly(data: Any, status: int, code: str) -> None:
    with serving() as (app, server):
        reply = ask(app, "/v1/score", data)
        assert (reply.status, reply.json["error"]["code"]) == (status, code)
        assert server.requests == []


def test_bodies_are_bounded_before_they_are_parsed() -> None:
    small = Limits(max_body_bytes=1000, max_text_chars=50)
    with serving(limits=small) as (app, _):
        assert ask(app, "/v1/score", body=b"x" * 1001).status == 413
        assert ask(app, "/v1/score", body=b"x", headers=[("content-length", "9" * 30)]).status == 413
        assert ask(app, "/v1/score", body=b"x" * 3000, headers=[("content-length", "10")], pieces=9).status == 413
        assert ask(app, "/v1/score", body=b"[" * 900).json["error"]["code"] == "too_deep"
        assert ask(app, "/v1/score", body=b'{"items": NaN}').json["error"]["code"] == "no_json"
        assert ask(app, "/v1/score", body=b"\xff\xfe").json["error"]["code"] == "no_json"
        assert ask(app, "/v1/score", score_items("y" * 51)).json["error"]["code"] == "text_too_long"


def test_nesting_is_counted_outside_strings_alone() -> None:
    for value in ([[["[[["]]], {"a": '"[{'}, "\\", ["\\\\", [1]], [], {"x": {"y": [0]}}):
        text = json.dumps(value).encode()
        assert nesting(text, 99) == depth(value)
    assert nesting(b"[" * 10**6, 16) == 17
    assert nesting(b'"unterminated [[[', 16) == 0


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((depth(v) for v in inner), default=0)


def test_a_crowd_is_told_to_wait() -> None:
    with serving(max_waiting=1) as (app, _):
        reply = ask(app, "/v1/score", score_items(GOOD, BAD))
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")


# Tokens -------------------------------------------------------------------------------------------------------------


def test_nothing_is_answered_without_the_right_token() -> None:
    with serving() as (app, server):
        body = score_items(GOOD)
        assert ask(app, "/v1/score", body, token=None).status == 401
        assert ask(app, "/v1/score", body, token="chs_wrong").status == 401
        assert ask(app, "/v1/score", body, token=None, headers=[("authorization", f"Basic {TEXT}")]).status == 401
        assert ask(app, "/v1/score", body, token=ADMIN_TEXT).status == 403
        assert ask(app, "/v1/rubric", RUBRIC.to_json()).status == 403
        assert ask(app, "/v1/state", method="GET").status == 403
        assert ask(app, "/v1/score", body, token=None, query=f"token={TEXT}").status == 400
        assert ask(app, "/nowhere", body, token=None).status == 401
        assert ask(app, "/nowhere", body).status == 404
        assert ask(app, "/v1/score", method="GET").status == 405
        assert server.requests == []


def test_a_token_ends(tmp_path: Path) -> None:
    text, token = new_token("t")
    path = tmp_path / "tokens.json"
    entry = {"name": "t", "sha256": token.digest, "tenant": "x", "scopes": ["judge"], "expires": 100.0}
    path.write_text(json.dumps([entry]))
    from coharness.reward.service.app import RewardApp
    from coharness.reward.service.judges import JudgeSlot

    with judge_on(FAIR) as (judge, _):
        for now, status in ((99.0, 200), (100.0, 401)):
            app = RewardApp(JudgeSlot(judge), load_tokens(path), now=lambda now=now: now)
            assert ask(app, "/v1/score", score_items(""), token=text).status == status


@pytest.mark.parametrize(
    "content", ["[]", "{}", "x", '[{"name": "a"}]', '[{"name":"a","sha256":"00","tenant":"t","scopes":["judge"]}]']
)
def test_a_wrong_file_of_tokens_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"tokens\.json"):
        load_tokens(path)


def test_what_is_kept_of_a_token_is_its_hash() -> None:
    text, token = new_token("t", scopes=(Scope.ADMIN,))
    assert text not in repr(token)
    assert token.digest == digest_of(text)


def test_the_service_listens_on_loopback_unless_tokens_were_chosen() -> None:
    check_bind("127.0.0.1", has_own_tokens=False)
    check_bind("::1", has_own_tokens=False)
    check_bind("0.0.0.0", has_own_tokens=True)
    for host in ("0.0.0.0", "::", "10.0.0.4", "example.org"):
        assert not is_loopback(host)
        with pytest.raises(ConfigError, match="--tokens FILE"):
            check_bind(host, has_own_tokens=False)


# Signatures, tenants, swaps -----------------------------------------------------------------------------------------


def test_a_reply_is_signed_for_its_request() -> None:
    with serving() as (app, _):
        body = json.dumps(score_items("")).encode()
        reply = ask(app, "/v1/score", body=body, headers=[("x-request-id", "r1")])
        given = reply.headers[SIGNATURE_HEADER]
        fits = {"path": "/v1/score", "request_id": "r1", "request": body, "reply": reply.body}
        assert is_signed(TOKEN.signing_key, given, **fits)
        for change in ({"path": "/v1/pair"}, {"request_id": "r2"}, {"request": b"x"}, {"reply": reply.body + b" "}):
            assert not is_signed(TOKEN.signing_key, given, **{**fits, **change})


def test_no_tenant_reads_the_cache_of_another() -> None:
    with serving() as (app, server):
        for text in (TEXT, TEXT, OTHER_TEXT):
            assert ask(app, "/v1/score", score_items(GOOD), token=text).status == 200
        assert len(server.requests) == 2, "once for each tenant"


def test_another_rubric_takes_over_only_when_the_canaries_hold() -> None:
    other = rubric_from_json({**RUBRIC.to_json(), "name": "strict"})
    with judge_on(FAIR) as (judge, _), judge_on(FAIR, rubric=other) as (better, _):
        app = app_on(judge, make_judge=lambda rubric: better)
        reply = ask(app, "/v1/rubric", other.to_json(), token=ADMIN_TEXT).json
        assert reply["accepted"]
        assert reply["versions"]["rubric"].startswith("strict@")
        assert ask(app, "/v1/score", score_items(GOOD)).json["versions"] == reply["versions"]
    with judge_on(FAIR) as (judge, _), judge_on(fair_judge(lambda q, c: 0.9), rubric=other) as (lenient, _):
        app = app_on(judge, make_judge=lambda rubric: lenient)
        reply = ask(app, "/v1/rubric", other.to_json(), token=ADMIN_TEXT).json
        assert (reply["accepted"], reply["broken"]) == (False, ["bad"])
        assert reply["versions"]["rubric"].startswith("maths@")
    with judge_on(FAIR) as (judge, _), judge_on(lambda _: Reply(status=500), rubric=other) as (down, _):
        app = app_on(judge, make_judge=lambda rubric: down)
        reply = ask(app, "/v1/rubric", other.to_json(), token=ADMIN_TEXT).json
        assert (reply["accepted"], reply["broken"], len(reply["unscored"])) == (False, [], 2)


def test_a_wrong_rubric_is_refused_with_its_place() -> None:
    with serving(make_judge=lambda rubric: None) as (app, _):
        reply = ask(app, "/v1/rubric", {"name": "r", "criteria": []}, token=ADMIN_TEXT)
        assert reply.status == 422
        assert "criteria" in reply.json["error"]["message"]


# A real socket ------------------------------------------------------------------------------------------------------


def test_without_uvicorn_serving_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with serving() as (app, _), pytest.raises(PreflightError, match="pip install"):
        server_of(app)


@contextmanager
def on_a_socket(app: Any) -> Iterator[str]:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed; the serve extra brings it")
    server = server_of(app)
    sock = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10.0)
        sock.close()


def test_the_client_and_the_service_agree_over_a_socket() -> None:
    with serving() as (app, _), on_a_socket(app) as base:
        client = RewardClient(base, TEXT, timeout_s=20.0, batch=2)
        judged = client.score_all([("q", GOOD), ("q", BAD), ("q", "")])
        assert [j.value for j in judged] == [1.0, 0.0, 0.0]
        assert client.pair_all([("q", GOOD, BAD)])[0].value == 1.0
        stranger = RewardClient(base, "chs_stranger", timeout_s=20.0)
        assert [j.outcome for j in stranger.score_all([("q", GOOD)])] == [PartOutcome.INFRA]
        client.close()
        stranger.close()


def test_nobody_listening_makes_infra_and_no_number() -> None:
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
    (judgment,) = RewardClient(f"http://127.0.0.1:{port}", TEXT, timeout_s=2.0).score_all([("q", GOOD)])
    assert (judgment.outcome, judgment.value) == (PartOutcome.INFRA, None)
