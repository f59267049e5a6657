"""The processes of one trainer group as each of them sees the others: joining, exchanging values, failing together.

Invariants: every exchange is made by all ranks in the same order, and waits at most the group's deadline; a failure inside
`together` is raised by all ranks or by none, so that none waits for one that has gone elsewhere. Driven by `deepspeed_rank`.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from coharness.records.errors import Boundary, BoundaryError, boundary


class Ranks:
    """This process among the `size` of its group."""

    def __init__(self, rank: int, size: int, deadline_s: float) -> None:
        """Name a place in a group that `join` has made."""
        self.rank, self.size, self.deadline_s = rank, size, deadline_s

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes and answers for all."""
        return self.rank == 0

    def gather(self, value: Any) -> list[Any]:
        """Every rank's JSON value, in the order of ranks; tuples come back as lists."""
        text = json.dumps(value).encode()
        if self.size == 1:
            return [json.loads(text)]
        size = torch.tensor([len(text)])
        sizes = [torch.zeros_like(size) for _ in range(self.size)]
        dist.all_gather(sizes, size)
        # An exchange is of tensors of one size.
        padded = torch.zeros(max(int(s) for s in sizes), dtype=torch.uint8)
        padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        texts = [torch.zeros_like(padded) for _ in range(self.size)]
        dist.all_gather(texts, padded)
        return [json.loads(bytes(t[: int(s)].tolist())) for t, s in zip(texts, sizes, strict=True)]

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of all ranks' tensors, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    @contextmanager
    def together(self, where: Boundary) -> Iterator[None]:
        """Run the block, which must exchange nothing, and learn how it went elsewhere.

        Raises:
            BoundaryError: it failed on a rank; all raise the error of the first that failed.
        """
        caught: BoundaryError | None = None
        try:
            with boundary(where):
                yield
        except BoundaryError as error:
            caught = error
        ends = self.gather(None if caught is None else (caught.boundary, caught.message))
        if (first := next((end for end in ends if end is not None), None)) is not None:
            raise BoundaryError(Boundary(first[0]), first[1]) from caught


def join(rank: int, size: int, meeting_point: Path, deadline_s: float) -> Ranks:
    """Join the group that meets at the file `meeting_point`, over the loopback interface.

    A file needs no port, so groups that start at once cannot take one another's.
    """
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting_point}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=deadline_s),
    )
    return Ranks(rank, size, deadline_s)


def loopback_interface() -> str:
    """Name of the interface that reaches this machine alone.

    Raises:
        OSError: there is none.
    """
    names = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    if not names:
        raise OSError("no interface named lo..., expected a loopback interface for the processes of a trainer group")
    return min(names, key=len)
