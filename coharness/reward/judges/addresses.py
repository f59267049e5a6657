"""Addresses that candidates or clients name: none is fetched unless its host was allowed, and then only at a public address.

The name is resolved once and the caller connects to the returned address, so that a second answer of the resolver cannot lead
elsewhere. Redirects are for the caller to refuse.
"""

import ipaddress
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

Resolve = Callable[[str, int], Sequence[str]]


class AddressRefused(Exception):
    """An address that is not fetched; the message may go to a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Where to connect."""

    host: str
    "For the Host header and the certificate."
    address: str
    "The one address to connect to."
    port: int


def resolve(host: str, port: int) -> list[str]:
    """All addresses of a name."""
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def pin(url: str, allowed_hosts: Collection[str], *, resolver: Resolve = resolve) -> Pinned:
    """Where to connect for a URL.

    Raises:
        AddressRefused: no https, a host that is not allowed, a user or an odd port, or an address that is not public.
    """
    if len(url) > 2048 or any(c <= " " or c == "\x7f" or c == "\\" for c in url):
        raise AddressRefused("the address is too long or has characters that addresses do not have")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower().rstrip("."), parts.port or 443
    except ValueError as error:
        raise AddressRefused("the address cannot be read") from error
    if parts.scheme != "https" or parts.username is not None or parts.password is not None or port != 443:
        raise AddressRefused("only https on its own port and without a user is fetched")
    if host not in {allowed.lower() for allowed in allowed_hosts}:
        raise AddressRefused("the host is not among those that may be fetched from")
    try:
        found = resolver(host, port)
    except OSError as error:
        raise AddressRefused("the host has no address") from error
    # One private answer among public ones is an attack, not a mishap.
    if not found or not all(_is_public(address) for address in found):
        raise AddressRefused("the host does not lead to a public address")
    return Pinned(host=host, address=found[0], port=port)


def _is_public(address: str) -> bool:
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = mapped or ip
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
