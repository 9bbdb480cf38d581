"""How tokens are split into blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from mhla import _library  # noqa: F401  registers torch.ops.mhla
from mhla._numbers import integer, integers


@dataclass(frozen=True)
class Partition:
    """N tokens split into M blocks: chunks of a line, tiles of an image or tubes of a video.

    ``sizes`` is the token grid (one to three axes, last axis fastest) and ``extents`` the extent of a block along each
    axis. Where an extent does not divide its axis, the last block is smaller. Blocks are numbered in raster order.
    """

    sizes: tuple[int, ...]
    extents: tuple[int, ...]

    def __post_init__(self) -> None:
        if not torch.compiler.is_compiling():
            object.__setattr__(self, "sizes", integers(self.sizes, "sizes"))
            object.__setattr__(self, "extents", integers(self.extents, "extents"))
            torch.ops.mhla.describe_partition(self.sizes, self.extents)

    @staticmethod
    def line(tokens: int, block_size: int) -> Partition:
        """``tokens`` tokens in chunks of ``block_size``."""
        return Partition((integer(tokens, "tokens"),), (integer(block_size, "block_size"),))

    @staticmethod
    def grid(sizes: Sequence[int], blocks: Sequence[int]) -> Partition:
        """A grid of tokens cut into ``blocks`` blocks per axis, each of extent ``ceil(size / blocks)``."""
        sizes = integers(sizes, "sizes")
        return Partition(sizes, tuple(torch.ops.mhla.grid_extents(sizes, integers(blocks, "blocks"))))

    @staticmethod
    def by_extent(sizes: Sequence[int], extents: Sequence[int]) -> Partition:
        """A grid of tokens cut into blocks of the given extent per axis."""
        return Partition(tuple(sizes), tuple(extents))

    @property
    def tokens(self) -> int:
        """N."""
        return prod(self.sizes)

    @property
    def blocks_per_axis(self) -> tuple[int, ...]:
        """Number of blocks along each axis."""
        return tuple(-(-size // extent) for size, extent in zip(self.sizes, self.extents, strict=True))

    @property
    def blocks(self) -> int:
        """M."""
        return prod(self.blocks_per_axis)

    @property
    def block_of(self) -> torch.Tensor:
        """Block of each token, ``[N]``."""
        return torch.ops.mhla.token_places(self.sizes, self.extents)[0]

    @property
    def slot_of(self) -> torch.Tensor:
        """Place of each token inside its block, counted in the raster order of a full block, ``[N]``."""
        return torch.ops.mhla.token_places(self.sizes, self.extents)[1]

    @property
    def block_order(self) -> torch.Tensor:
        """Tokens of block 0, then of block 1, ...: ``x[:, order]`` brings tokens into block order, ``[N]``."""
        return torch.ops.mhla.block_order(self.sizes, self.extents)[0]

    @property
    def block_offsets(self) -> torch.Tensor:
        """Where each block starts in block order, ``[M + 1]``."""
        return torch.ops.mhla.block_order(self.sizes, self.extents)[1]

    def __str__(self) -> str:
        return torch.ops.mhla.describe_partition(self.sizes, self.extents)
