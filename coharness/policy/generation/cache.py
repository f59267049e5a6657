"""A key/value cache that grows in place.

Owns the memory of one layer's keys and values while a batch is decoded. transformers' dynamic layer concatenates, which
copies the whole cache at every token; this one writes into spare columns and copies only when they run out, so the bytes moved
grow with the length of the answer and not with its square. `decode` drives it; models see the interface of transformers.
"""

from typing import Any, Final

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer

_MIN_SPARE: Final = 32
"""Spare columns of a new buffer; a growing one doubles its answer part, so copies stay a fraction of one write."""


def new_cache(config: Any) -> Any:
    """An empty cache for a model of this configuration.

    Layers of full attention grow in place; others (sliding windows, recurrent states) are those of transformers.
    """
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


class GrowingLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one full-attention layer, [B, H, capacity, D] of which the first `length` columns are used.

    `keys` and `values` are views on the used columns.
    """

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self._buffers: tuple[Tensor, Tensor] | None = None
        self._length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate for the first states, both [B, H, T, D], and some more columns; writes none of them."""
        self.dtype, self.device = key_states.dtype, key_states.device
        columns = key_states.shape[2] + max(_MIN_SPARE, key_states.shape[2] // 2)
        self._buffers = (_with_columns(key_states[:, :, :0], columns), _with_columns(value_states[:, :, :0], columns))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append states [B, H, T, D]; returns views on all columns so far."""
        if self._buffers is None:
            self.lazy_initialization(key_states, value_states)
        assert self._buffers is not None
        end = self._length + key_states.shape[2]
        if end > self._buffers[0].shape[2]:
            spare = max(2 * (end - self._length), self._length)
            self._buffers = (_with_columns(self.keys, spare), _with_columns(self.values, spare))
        keys, values = self._buffers
        keys[:, :, self._length : end] = key_states
        values[:, :, self._length : end] = value_states
        self._length = end
        self._show()
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only these rows of the batch."""
        if self._buffers is not None:
            spare = self._buffers[0].shape[2] - self._length
            self._buffers = (_with_columns(self.keys[indices], spare), _with_columns(self.values[indices], spare))
            self._show()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns a mask must cover once `query_length` more are written, and the offset of the first."""
        return self._length + query_length, 0

    def get_seq_length(self) -> int:
        """Columns written."""
        return self._length

    def get_max_length(self) -> int:
        """-1: it has no maximum."""
        return -1

    def _show(self) -> None:
        assert self._buffers is not None
        self.keys, self.values = (buffer[:, :, : self._length] for buffer in self._buffers)


def _with_columns(states: Tensor, spare: int) -> Tensor:
    """A buffer [B, H, T + spare, D] that begins with `states` [B, H, T, D]; its spare columns are unset."""
    b, h, t, d = states.shape
    buffer = torch.empty((b, h, t + spare, d), dtype=states.dtype, device=states.device)
    buffer[:, :, :t] = states
    return buffer
