"""Image generators and language models, as the program ``mhla`` trains them and lets them draw and write.

The models are those of the C++ library. They are in packages that were built with the program's libraries:
``pip install . -C cmake.define.MHLA_CLI=ON``.

>>> from mhla.models import DiT  # doctest: +SKIP
>>> pictures = DiT.from_pretrained("pretrained/eurosat_dit.safetensors").sample(["Forest"], count=4)  # doctest: +SKIP

>>> from mhla.models import LM  # doctest: +SKIP
>>> text = LM.from_pretrained("runs/lm").generate("Once upon a time", tokens=50)  # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from mhla._classes import load_classes
from mhla._language_model import LM
from mhla._numbers import integer, integers

__all__ = ["LM", "DiT"]


def _weights(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = sorted(path.glob("*.safetensors"))
    if len(files) != 1:
        raise ValueError(f"path is {path}, a folder with {len(files)} .safetensors files; name one of them")
    return files[0]


class DiT:
    """A trained diffusion transformer."""

    def __init__(self, generator: object, device: torch.device) -> None:
        self._generator = generator
        self.device = device

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike[str], device: str | torch.device = "cpu") -> DiT:
        """The generator in a .safetensors file of ``mhla train generate``, or in a folder with one such file."""
        load_classes()
        generator = torch.classes.mhla.Generator(str(_weights(Path(path))), str(device))
        return cls(generator, torch.device(device))

    @property
    def config(self) -> dict:
        """Sizes and options of the model."""
        return json.loads(self._generator.config())

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, empty where the file has none."""
        return self._generator.classes()

    @property
    def latent_scale(self) -> float | None:
        """What latents were multiplied by; None for a model that draws pixels."""
        return self._generator.latent_scale() if self._generator.space() == "latents" else None

    def __call__(self, x: torch.Tensor, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The predicted noise, and the variance where the model learned it: [B, C or 2 C, H, W].

        ``x`` are noised pictures, [B, C, H, W], ``t`` their times, [B], and ``y`` their classes, int64 [B].
        """
        return self._generator.forward(x, t, y)

    def sample(
        self,
        classes: str | int | Sequence[str | int] = "all",
        *,
        count: int = 1,
        first: int = 0,
        sampler: str | None = None,
        steps: int = 50,
        cfg_scale: float = 1.5,
        cfg_interval: tuple[float, float] = (0.0, 1.0),
        seed: int = 0,
        size: Sequence[int] | None = None,
        batch: int = 16,
    ) -> torch.Tensor:
        """Draws ``count`` pictures of each class: float32 [N, C, H, W] on the CPU, pixels from -1 to 1, or latents.

        They are those of ``mhla sample`` with the same options. ``size`` is that of what the network draws.
        """
        chosen = [classes] if isinstance(classes, (str, int)) else list(classes)
        return self._generator.sample(
            [str(each) for each in chosen],
            integer(count, "count", 1),
            integer(first, "first", 0),
            sampler or "",
            integer(steps, "steps"),
            float(cfg_scale),
            tuple(float(each) for each in cfg_interval),
            integer(seed, "seed", 0),
            [] if size is None else list(integers(size, "size")),
            integer(batch, "batch"),
        )
