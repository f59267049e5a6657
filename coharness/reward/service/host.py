"""Running the application on a socket, through uvicorn: on loopback, or elsewhere with tokens that a person chose."""

import importlib
import ipaddress
import socket
from typing import Any

from coharness.records.errors import ConfigError, PreflightError
from coharness.reward.service.app import RewardApp

INSTALL = "pip install 'coharness-evolution[serve]'"


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind(host: str, *, has_own_tokens: bool) -> None:
    """Refuse an address that others reach with a token that was only made for this terminal.

    Raises:
        ConfigError: the address is not of loopback and no file of tokens was given.
    """
    if not is_loopback(host) and not has_own_tokens:
        raise ConfigError(
            f"--host {host} can be reached from other machines; give --tokens FILE with the tokens that may ask, "
            "or stay on 127.0.0.1"
        )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        PreflightError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise PreflightError(f"cannot listen on {host}:{port} ({error.strerror}); choose another --port") from error
    made.listen(512)
    return made


def server_of(app: RewardApp) -> Any:
    """The uvicorn server of an application; `run(sockets=[...])` serves until a signal or `should_exit` ends it.

    Raises:
        PreflightError: uvicorn is not installed.
    """
    try:
        uvicorn: Any = importlib.import_module("uvicorn")
    except ImportError as error:
        raise PreflightError(f"serving needs the package uvicorn; install it with: {INSTALL}") from error
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=30,
        limit_concurrency=512,
        h11_max_incomplete_event_size=64 * 1024,
    )
    return uvicorn.Server(config)
