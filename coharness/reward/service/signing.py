"""Binding a reply to its request: a signature over method, path, request id, request body and reply body."""

import hashlib
import hmac

SIGNATURE_HEADER = "x-coharness-signature"
REQUEST_ID_HEADER = "x-request-id"


def signature(key: bytes, *, path: str, request_id: str, request: bytes, reply: bytes) -> str:
    """HMAC-SHA256 in hex. The request id is drawn by the client, so that an old reply never fits a new request."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in (path.encode(), request_id.encode(), hashlib.sha256(request).digest(), hashlib.sha256(reply).digest()):
        mac.update(len(part).to_bytes(8, "big"))
        mac.update(part)
    return mac.hexdigest()


def is_signed(key: bytes, given: str, *, path: str, request_id: str, request: bytes, reply: bytes) -> bool:
    """Whether a signature fits, in constant time."""
    expected = signature(key, path=path, request_id=request_id, request=request, reply=reply)
    return hmac.compare_digest(expected, given)


def item_digest(*texts: str) -> str:
    """Digest of one item, which its result repeats: results are matched by content, never by position."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
