"""Published weights on disk: writing a version all at once, and reading it back verified.

    weights/<policy>/v<step>/
        model.safetensors           all parameters (kind full), or
        adapter_model.safetensors   and adapter_config.json: a folder that PEFT loads as it is (kind lora)
        optimizer.safetensors       where the version has optimizer state
        manifest.json               digests, canary, and what the publisher tells of its making

Invariants: a version's folder is there in full or not at all (temporary folder, fsync, rename, fsync of the parent) and is never
overwritten; nothing non-finite is ever published; what is read is what was published, by digest, or an error. Trainers publish,
engines and trainers read; `weight_folders` deletes what the core retires.
"""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from coharness.records.errors import WeightsError
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef

MANIFEST_SCHEMA: Final = 1
WEIGHTS_FILE: Final[Mapping[WeightsKind, str]] = {
    WeightsKind.FULL: "model.safetensors",
    WeightsKind.LORA: "adapter_model.safetensors",
}
OPTIMIZER_FILE: Final = "optimizer.safetensors"
MANIFEST_FILE: Final = "manifest.json"

_POLICY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 hex digest over sorted names, each with its dtype, shape and raw little-endian bytes.

    The definition is that of `coharness.evolution.merging.maps.map_digest`, which this layer cannot see; a test compares them.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        # Length-prefixed, so that no name can run over into the header that follows it.
        header = f"{len(name.encode())}:{name}|{tensor.dtype}|{','.join(map(str, tensor.shape))}|{tensor.nbytes}|"
        digest.update(header.encode())
        digest.update(tensor.detach().reshape(-1).contiguous().view(torch.uint8).cpu().numpy().data)
    return digest.hexdigest()


def first_non_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The first name, in sorted order, whose floating tensor holds a NaN or an infinity; None where all are finite."""
    for name in sorted(tensors):
        values = tensors[name].detach()
        if values.numel() and values.is_floating_point():
            low, high = torch.aminmax(values.float() if values.dtype.itemsize < 2 else values)
            if not (math.isfinite(low.item()) and math.isfinite(high.item())):
                return name
    return None


class DiskWeightStore:
    """Publishes into the folder `weights` of a run directory.

    Several processes may use one store at once, as long as no two publish the same version.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def publish(
        self,
        ref: VersionRef,
        tensors: Mapping[str, Tensor],
        kind: WeightsKind,
        optimizer: Mapping[str, Tensor] | None,
        canary: float,
        manifest: Mapping[str, Any],
        texts: Mapping[str, str] | None = None,
    ) -> WeightsRef:
        """Write one version, durably and all at once.

        Args:
            ref: The version's name.
            tensors: Its weights by name, under the names that transformers (full) or PEFT (lora) give them.
            kind: FULL or LORA.
            optimizer: The optimizer's state by name, None where a continuation begins with a fresh one.
            canary: Log-probability of the canary text under these weights.
            manifest: JSON values about how the version came to be, kept under `details`.
            texts: Further files by name, such as `adapter_config.json`.

        Returns:
            The reference that names the folder. A version that is there already with the same weights and optimizer state (a job
            repeated after a crash) is returned as it is.

        Raises:
            WeightsError: a tensor or the canary is not finite, the version is there with other content, or the disk failed;
                nothing is left behind.
        """
        uri, weights_file = self._uri(ref), _weights_file(kind, f"version {ref}")
        for what, checked in (("weights", tensors), ("optimizer state", optimizer or {})):
            if (name := first_non_finite(checked)) is not None:
                raise WeightsError(
                    f"{what} of {ref}: tensor {name!r} holds a NaN or an infinity; expected finite values only "
                    "(quarantine the member, its last version is intact)"
                )
        if not math.isfinite(canary):
            raise WeightsError(f"the canary of {ref} is {canary}; expected a finite log-probability")
        weights_ref = WeightsRef(
            uri=uri,
            digest=tensor_digest(tensors),
            kind=kind,
            num_bytes=sum(tensor.nbytes for tensor in tensors.values()),
            has_optimizer=optimizer is not None,
            canary=canary,
        )
        content = {
            "schema": MANIFEST_SCHEMA,
            "policy": ref.policy,
            "step": ref.step,
            "kind": kind.value,
            "digest": weights_ref.digest,
            "optimizer_digest": None if optimizer is None else tensor_digest(optimizer),
            "num_bytes": weights_ref.num_bytes,
            "canary": canary,
            "details": dict(manifest),
        }
        target = self._run_dir / uri
        if target.exists():
            return self._repeated(target, weights_ref, content)
        files: dict[str, Mapping[str, Tensor] | str] = {weights_file: tensors, **(texts or {})}
        if optimizer is not None:
            files[OPTIMIZER_FILE] = optimizer
        files[MANIFEST_FILE] = json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"
        temporary = target.with_name(f".tmp-{target.name}-{uuid.uuid4().hex}")
        try:
            temporary.mkdir(parents=True)
            for name, body in files.items():
                _write(temporary / name, body)
            _fsync(temporary)
            temporary.rename(target)
            _fsync(target.parent)
        except (OSError, SafetensorError) as error:
            # safetensors gives the system's text but not its number.
            full = getattr(error, "errno", None) == errno.ENOSPC or "os error 28" in str(error)
            fix = "free space on this disk" if full else "check the disk and its permissions"
            raise WeightsError(f"cannot publish {ref} in {target}: {error}; {fix}, nothing was left behind") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return weights_ref

    def _uri(self, ref: VersionRef) -> str:
        if not _POLICY.fullmatch(ref.policy) or ref.step < 0:
            raise WeightsError(f"cannot publish {ref}; expected a policy named like p0 and a step of 0 or more")
        return f"weights/{ref.policy}/v{ref.step}"

    def _repeated(self, target: Path, ref: WeightsRef, content: Mapping[str, Any]) -> WeightsRef:
        there = _manifest(target)
        for field in ("digest", "optimizer_digest", "kind"):
            if there.get(field) != content[field]:
                raise WeightsError(
                    f"{target} is there already with {field} {there.get(field)}, got {content[field]}; a version is never "
                    "overwritten (after a crash, `weight_folders` names and retires what no journal knows)"
                )
        return ref


def read_weights(run_dir: Path, ref: WeightsRef) -> dict[str, Tensor]:
    """The tensors of a version by name, on the CPU, verified.

    Raises:
        WeightsError: the folder is missing, the file is damaged, or its digest is not the reference's.
    """
    path = run_dir / ref.uri / _weights_file(ref.kind, f"reference {ref.uri!r}")
    return _verified(path, ref.digest)


def read_optimizer(run_dir: Path, ref: WeightsRef) -> dict[str, Tensor]:
    """The optimizer state of a version by name, on the CPU, verified against its manifest.

    Raises:
        WeightsError: the version has none, or a file is missing or damaged.
    """
    folder = run_dir / ref.uri
    if not ref.has_optimizer:
        raise WeightsError(f"{folder} was published without optimizer state; start a fresh optimizer instead")
    return _verified(folder / OPTIMIZER_FILE, str(_manifest(folder).get("optimizer_digest")))


def _weights_file(kind: WeightsKind, what: str) -> str:
    if kind not in WEIGHTS_FILE:
        raise WeightsError(f"{what} is of kind {kind}, which has no file; expected {' or '.join(WEIGHTS_FILE)}")
    return WEIGHTS_FILE[kind]


def _verified(path: Path, expected: str) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        _damaged(path, str(error), f"a whole safetensors file with digest {expected}", error)
    got = tensor_digest(tensors)
    if got != expected:
        _damaged(path, f"digest {got}", f"digest {expected}", None)
    return tensors


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST_FILE
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        _damaged(path, str(error), "the manifest of a published version", error)
    return content


def _damaged(path: Path, got: str, expected: str, cause: Exception | None) -> NoReturn:
    raise WeightsError(
        f"{path} is missing or damaged: got {got}; expected {expected} (was it copied in full?)"
    ) from cause


def _write(path: Path, body: Mapping[str, Tensor] | str) -> None:
    if isinstance(body, str):
        path.write_text(body)
    else:
        save_file({name: _plain(body[name]) for name in sorted(body)}, path, metadata={"format": "pt"})
    _fsync(path)


def _plain(tensor: Tensor) -> Tensor:
    """The tensor on the CPU as the whole of its own storage, which is all that safetensors writes."""
    plain = tensor.detach().cpu().contiguous()
    return plain if plain.untyped_storage().nbytes() == plain.nbytes else plain.clone()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
