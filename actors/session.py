"""The Ray session: the only `ray.init`, and the proof that workers run the same code as the driver.

Attaches to RAY_ADDRESS where it is set, else starts a cluster on this machine that it owns, reachable from this machine
alone. Workers put the driver's working directory first on their import path, whatever is installed: so the session is begun
from the project root, and then one task a node says which files it imports. A difference is refused, since it would
otherwise run silently with two versions of the code.
"""

import hashlib
import importlib.util
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.options import NAMESPACE, thread_env
from coharness.records.errors import PreflightError

_log = logging.getLogger(__name__)
PACKAGES = ("coharness", "actors", "clusters", "experiments")
OBJECT_STORE_BYTES = 256 << 20
HANDSHAKE_S = 120.0
CONNECT_S = 10.0
NUM_SECOND_LOOKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An open Ray session."""

    address: str
    owned: bool
    "Whether it started the cluster, and will end it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a process imports a package from."""

    path: str
    "Its folder; empty where it cannot be imported."
    digest: str
    "Of all its Python sources."


def project_root() -> Path:
    """The folder that holds the four packages: a checkout, or site-packages."""
    return Path(__file__).resolve().parent.parent


def origins() -> dict[str, Origin]:
    """Where this process imports each of the four packages from."""
    return {name: _origin(name) for name in PACKAGES}


@contextmanager
def session(*, num_cpus: int, threads_per_worker: int, root: Path | None = None) -> Iterator[Session]:
    """Open a session, check the workers' code, and end on leaving what it started.

    Args:
        num_cpus: cores that the run's workers ask for together.
        threads_per_worker: bound on the threads of numeric libraries in every worker.
        root: the folder workers import from; the project root where left out.

    Raises:
        PreflightError: the cluster is too small, or a worker imports other code than this process.
    """
    root = project_root() if root is None else root
    opened = _open(num_cpus, threads_per_worker, root)
    try:
        _check_size(num_cpus)
        check_worker_code()
        yield opened
    finally:
        shutdown()


def shutdown() -> None:
    """Leave the session; a cluster that the session started ends with it, one that it attached to goes on."""
    import ray

    if ray.is_initialized():
        ray.shutdown()


def check_worker_code() -> None:
    """Compare what a worker on each node imports with what this process imports.

    Raises:
        PreflightError: on the first difference, naming both paths.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    asks = {
        node: ray.remote(origins).options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        )
        for node in nodes
    }
    first = {node: ask.remote() for node, ask in asks.items()}
    for node, ask in asks.items():
        there = _answer(first[node], node)
        for _ in range(NUM_SECOND_LOOKS):
            if there == origins():
                break
            # The files may have been saved between the two readings.
            there = _answer(ask.remote(), node)
        compare_origins(origins(), there, node[:8])


def probe() -> str:
    """Open a session as a run does, check the workers' code, end it; a sentence about what was there."""
    with session(num_cpus=1, threads_per_worker=1) as opened:
        import ray

        resources = ray.cluster_resources()
        where = "started here" if opened.owned else "attached"
        return (
            f"Ray {ray.__version__} at {opened.address} ({where}), {resources.get('CPU', 0):.0f} logical cores; "
            "its workers import this code"
        )


def _answer(ref: Any, node: str) -> dict[str, Origin]:
    import ray

    try:
        there: dict[str, Origin] = ray.get(ref, timeout=HANDSHAKE_S)
    except ray.exceptions.GetTimeoutError:
        raise PreflightError(
            f"no worker of node {node[:8]} answered within {HANDSHAKE_S:.0f} s; see Ray's logs, or `coharness doctor --ray`"
        ) from None
    except ray.exceptions.RayTaskError as error:
        why = str(error.cause).strip().rpartition("\n")[2]
        raise PreflightError(
            f"a worker of node {node[:8]} cannot import this code ({why.strip(' )')}); "
            f"make {project_root()} available there at the same path, with no other folder of these names beside it"
        ) from None
    return there


def compare_origins(here: dict[str, Origin], there: dict[str, Origin], node: str) -> None:
    """Refuse the first package that a worker imports from other sources.

    Raises:
        PreflightError: naming both paths.
    """
    for name in PACKAGES:
        if here[name].digest != there[name].digest:
            raise PreflightError(
                f"package {name!r} differs between this process and the workers of node {node}: "
                f"{here[name].path or 'not found'} here, {there[name].path or 'not found'} there"
                + (" (same path, other contents)" if here[name].path == there[name].path else "")
                + "; start from one checkout that every node sees, with no other folder of that name beside it"
            )


def check_address(address: str) -> None:
    """Refuse an address to which nothing answers; Ray itself would try for minutes.

    Raises:
        PreflightError: naming the address.
    """
    if address == "auto":
        return
    host, separator, port = address.rpartition(":")
    if "://" in address or not separator or not port.isdigit():
        raise PreflightError(
            f"RAY_ADDRESS={address!r} is not understood; expected host:port of the cluster's head, or auto "
            "(the Ray Client, ray://, is not supported: start the run on a node of the cluster)"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        raise PreflightError(
            f"nothing answers at RAY_ADDRESS={address} ({error}); start the cluster, or unset it to run on this machine"
        ) from error


def _open(num_cpus: int, threads_per_worker: int, root: Path) -> Session:
    # Ray reads these when it is first imported. `uv run` would otherwise have workers run from a copy of the folder.
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    address = os.environ.get("RAY_ADDRESS")
    if address:
        check_address(address)
    import ray

    if ray.is_initialized():
        raise PreflightError("a Ray session is open in this process already; end it with actors.session.shutdown()")
    common: dict[str, Any] = {
        "namespace": NAMESPACE,
        "runtime_env": {"env_vars": thread_env(threads_per_worker)},
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    with chdir(root):
        if not address:
            with _this_machine_alone():
                context = ray.init(
                    address="local",
                    # A logical number: workers of one thread share the cores where there are fewer than workers.
                    num_cpus=max(num_cpus, os.cpu_count() or 1),
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    **common,
                )
        else:
            try:
                context = ray.init(address=address, **common)
            except ConnectionError as error:
                raise PreflightError(
                    f"the Ray cluster at RAY_ADDRESS={address} refused the connection: {error.__cause__ or error}; "
                    "a cluster with tokens needs RAY_AUTH_MODE=token and its token here"
                ) from error
    _log.info("Ray session at %s, %s", context.address_info["address"], "attached" if address else "started here")
    return Session(address=context.address_info["address"], owned=not address)


@contextmanager
def _this_machine_alone() -> Iterator[None]:
    """Have Ray bind to loopback; it would take the machine's outside address even for a cluster of one machine.

    Ray reads the variable once, at its import, which any library may have caused before us: hence its constant as well. The
    processes that it starts read the variable.
    """
    from ray._private import ray_constants

    variable = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    if variable in os.environ:
        yield
        return
    before = ray_constants.ENABLE_RAY_CLUSTER
    os.environ[variable] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        del os.environ[variable]


def _check_size(num_cpus: int) -> None:
    import ray

    there = int(ray.cluster_resources().get("CPU", 0))
    if there < num_cpus:
        raise PreflightError(
            f"the workers of this run ask for {num_cpus} cores, the cluster has {there}; lower fleet.rollout_workers, "
            "fleet.trainers or fleet.threads_per_worker"
        )


def _origin(name: str) -> Origin:
    spec = importlib.util.find_spec(name)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        return Origin(path="", digest="")
    folder = Path(folders[0]).resolve()
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return Origin(path=str(folder), digest=digest.hexdigest())
