"""The service's OpenAPI document, from the same limits that requests are held against."""

from typing import Any

from coharness.reward.service.limits import Limits

_BEARER: list[dict[str, list[str]]] = [{"token": []}]


def document(limits: Limits) -> dict[str, Any]:
    """OpenAPI 3.1."""
    text = {"type": "string", "maxLength": limits.max_text_chars}
    score = _items({"question": text, "candidate": text}, limits)
    pair = _items({"question": text, "first": text, "second": text}, limits)
    texts = {"type": "array", "items": text, "minItems": 2, "maxItems": limits.max_candidates}
    rank = _items({"question": text, "candidates": texts}, limits)
    return {
        "openapi": "3.1.0",
        "info": {"title": "coharness reward service", "version": "1"},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Judgment": _JUDGMENT, "Error": _ERROR},
        },
        "paths": {
            "/healthz": {
                "get": {"summary": "Whether it runs", "security": [], "responses": {"200": {"description": "ok"}}}
            },
            "/v1/score": {"post": _operation("Score candidates; ?stream=1 for JSON lines", score, "Judgment")},
            "/v1/pair": {"post": _operation("Compare pairs, in both orders", pair, "Judgment")},
            "/v1/rank": {"post": _operation("Order candidates", rank, None)},
            "/v1/prefilter": {"post": _operation("What needs no judge", score, None)},
            "/get_reward": {"post": _operation("OpenRLHF's remote reward model", _OPENRLHF, None)},
            "/v1/rubric": {"post": _operation("Another rubric, behind the canaries", {"type": "object"}, None)},
            "/v1/state": {"get": {"summary": "State", "security": _BEARER, "responses": _responses(None)}},
        },
    }


def _items(properties: dict[str, Any], limits: Limits) -> dict[str, Any]:
    item = {
        "type": "object",
        "properties": {**properties, "id": {"type": "string", "minLength": 1, "maxLength": 128}},
        "required": list(properties),
        "additionalProperties": False,
    }
    items = {"type": "array", "items": item, "minItems": 1, "maxItems": limits.max_items}
    return {"type": "object", "properties": {"items": items}, "required": ["items"], "additionalProperties": False}


def _operation(summary: str, body: dict[str, Any], result: str | None) -> dict[str, Any]:
    return {
        "summary": summary,
        "security": _BEARER,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": _responses(result),
    }


def _responses(result: str | None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    if result is not None:
        rows = {"type": "array", "items": {"$ref": f"#/components/schemas/{result}"}}
        schema = {"type": "object", "properties": {"results": rows, "versions": {"type": "object"}}}
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    codes = {"400": "refused", "401": "no valid token", "403": "no such scope", "413": "too large", "422": "unreadable"}
    return {
        "200": {"description": "answered", "content": {"application/json": {"schema": schema}}},
        **{code: {"description": about, **error} for code, about in codes.items()},
        "503": {"description": "busy, or not scored", **error},
    }


_JUDGMENT: dict[str, Any] = {
    "type": "object",
    "required": ["id", "sha256", "outcome", "value"],
    "properties": {
        "id": {"type": "string"},
        "sha256": {"type": "string", "description": "digest of the item that this is the result of"},
        "outcome": {"enum": ["ok", "abstain", "parse", "infra", "violated"]},
        "value": {"type": ["number", "null"], "description": "null exactly where the outcome is not ok"},
        "criteria": {"type": "object"},
        "reasons": {"type": "object"},
        "flags": {"type": "array", "items": {"type": "string"}},
    },
}
_ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
}
_OPENRLHF: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "array", "items": {"type": "string"}} for name in ("query", "prompts", "labels")},
    "required": ["query", "prompts"],
}
