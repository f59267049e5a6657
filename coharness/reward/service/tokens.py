"""Who may ask what: tokens by their hash, with a tenant, scopes and an end.

A token's text is shown once, when it is made; what is kept is its SHA-256. The same hash keys the signature of replies, so that a
client needs nothing but its token to check them.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from coharness.records.errors import ConfigError
from coharness.reward.service.limits import Refused


class Scope(StrEnum):
    """What a token allows."""

    JUDGE = "judge"
    "Scores, pairs, rankings."
    ADMIN = "admin"
    "Loading another rubric, reading the service's state."


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as the service knows it."""

    name: str
    digest: str
    "SHA-256 of its text, hex."
    tenant: str
    scopes: frozenset[Scope]
    expires: float | None = None
    "Seconds since the epoch; None for never."

    @property
    def signing_key(self) -> bytes:
        """The key of signatures on replies to this token."""
        return signing_key_of(self.digest)


def digest_of(text: str) -> str:
    """SHA-256 of a token's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def signing_key_of(digest: str) -> bytes:
    """The key that replies are signed with, from the token's digest."""
    return hmac.new(bytes.fromhex(digest), b"coharness reply", hashlib.sha256).digest()


def new_token(name: str, *, tenant: str = "default", scopes: Iterable[Scope] = (Scope.JUDGE,)) -> tuple[str, Token]:
    """A fresh token: its text, to be shown once, and what is kept."""
    text = "chs_" + secrets.token_urlsafe(32)
    return text, Token(name=name, digest=digest_of(text), tenant=tenant, scopes=frozenset(scopes))


def load_tokens(path: Path) -> tuple[Token, ...]:
    """Tokens of a JSON file: [{"name", "sha256", "tenant", "scopes", "expires"?}].

    Raises:
        ConfigError: the file cannot be read or holds no such list.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        tokens = tuple(
            Token(
                name=str(entry["name"]),
                digest=bytes.fromhex(entry["sha256"]).hex(),
                tenant=str(entry["tenant"]),
                scopes=frozenset(Scope(scope) for scope in entry["scopes"]),
                expires=None if entry.get("expires") is None else float(entry["expires"]),
            )
            for entry in data
        )
    except OSError as error:
        raise ConfigError(f"cannot read the tokens {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f'{path} is no list of tokens ({type(error).__name__}); expected [{{"name": "trainer", "sha256": "...", '
            f'"tenant": "default", "scopes": ["judge"]}}]'
        ) from error
    if not tokens or any(len(token.digest) != 64 for token in tokens):
        raise ConfigError(
            f"{path} holds no token with a SHA-256 of 64 hex digits; `sha256` is the hash of the token's text"
        )
    return tokens


def authenticate(authorization: str | None, query: str, tokens: Sequence[Token], scope: Scope, now: float) -> Token:
    """The token of a request.

    Every known token is compared, each in constant time, so that the time taken tells nothing.

    Raises:
        Refused: 400 a token in the address, 401 none or unknown or expired, 403 without the scope.
    """
    if any(part.partition("=")[0].lower() in ("token", "access_token", "api_key", "key") for part in query.split("&")):
        raise Refused(
            400, "token_in_address", "a token in the address ends up in logs; send it as Authorization: Bearer"
        )
    kind, _, text = (authorization or "").partition(" ")
    given = digest_of(text.strip())
    found = None
    for token in tokens:
        if hmac.compare_digest(given, token.digest):
            found = token
    if kind.lower() != "bearer" or found is None or (found.expires is not None and now >= found.expires):
        raise Refused(401, "unauthorized", "a valid token is needed: Authorization: Bearer <token>")
    if scope not in found.scopes:
        raise Refused(403, "forbidden", f"the token has no scope {scope}")
    return found
