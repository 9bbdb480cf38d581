"""The shapes of ``mhla bench op``."""

from __future__ import annotations

from dataclasses import dataclass

import mhla


@dataclass(frozen=True)
class Shape:
    """Sizes of one call; a batch and heads for the CPU and for a GPU."""

    name: str
    sizes: tuple[int, ...]
    extents: tuple[int, ...]
    dim: int
    cpu: tuple[int, int]
    gpu: tuple[int, int]
    value_dim: int = 0
    causal: bool = False
    block_order: bool = False  # the composed formula gets its tokens block by block, as the authors' image models do

    @property
    def partition(self) -> mhla.Partition:
        return mhla.Partition.by_extent(self.sizes, self.extents)


SHAPES = {
    shape.name: shape
    for shape in [
        Shape("video", (21, 30, 50), (7, 6, 5), 128, (1, 12), (1, 12)),
        Shape("256px", (16, 16), (4, 4), 64, (4, 6), (256, 6), block_order=True),
        Shape("512px", (32, 32), (8, 8), 64, (2, 6), (64, 6), block_order=True),
        Shape("1024px", (64, 64), (16, 16), 64, (1, 6), (16, 6), block_order=True),
        Shape("sana", (32, 32), (8, 8), 32, (1, 36), (8, 36), block_order=True),
        Shape("long", (131072,), (512,), 128, (1, 2), (1, 12)),
        Shape("causal", (2048,), (64,), 128, (1, 4), (16, 4), value_dim=256, causal=True),
        Shape("tiny", (8, 8), (4, 4), 16, (1, 2), (1, 2), block_order=True),
        Shape("tiny-causal", (64,), (16,), 16, (1, 2), (1, 2), value_dim=24, causal=True),
    ]
}
