"""What both sides merge: parents near a base, as tensors or as files. Imports nothing of coharness, so that a peer can run it."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

NUM_PARENTS = 4
WEIGHTS = (0.1, 0.2, 0.3, 0.4)
DENSITY = 0.5
RULES = ("linear", "task_arithmetic", "ties")


def tensors(seed: int, width: int) -> "tuple[Tensor, list[Tensor]]":
    """(base, parents), each [width, width] float32."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    base = 0.02 * torch.randn(width, width, generator=generator)
    return base, [base + 1e-3 * torch.randn(width, width, generator=generator) for _ in range(NUM_PARENTS)]


def write_files(folder: Path, seed: int, width: int, num_tensors: int) -> None:
    """base.safetensors and p0 ... p3.safetensors, bfloat16, `num_tensors` matrices each."""
    import torch
    from safetensors.torch import save_file

    maps: list[dict[str, Tensor]] = [{} for _ in range(NUM_PARENTS + 1)]
    for index in range(num_tensors):
        base, parents = tensors(1000 * seed + index, width)
        for found, tensor in zip(maps, [base, *parents], strict=True):
            found[f"model.layers.{index}.mlp.up_proj.weight"] = tensor.to(torch.bfloat16)
    for name, found in zip(["base", *(f"p{i}" for i in range(NUM_PARENTS))], maps, strict=True):
        save_file(found, folder / f"{name}.safetensors", metadata={"format": "pt"})
