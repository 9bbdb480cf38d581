"""Loads the shared library that lies beside this file and registers ``torch.ops.mhla``."""

from pathlib import Path

import torch

_path = Path(__file__).with_name("libmhla_torch.so")
try:
    torch.ops.load_library(_path)
except OSError as error:
    raise ImportError(
        f"cannot load {_path.name} with torch {torch.__version__}; "
        f"it must be built against this torch (pip install --force-reinstall mhla): {error}"
    ) from error


def version() -> str:
    """Version of the compiled library."""
    return torch.ops.mhla.version()
