"""The classes behind ``mhla.models``, in a library of their own."""

from pathlib import Path

import torch

from mhla import _library


def load_classes() -> None:
    """Makes ``torch.classes.mhla`` known; an ImportError where the package was built without models."""
    path = Path(_library.__file__).with_name("libmhla_generators.so")
    if not path.exists():
        raise ImportError(
            "this package was built without models; pip install . -C cmake.define.MHLA_CLI=ON builds one with them"
        )
    torch.classes.load_library(path)
