"""Multi-Head Linear Attention: linear attention with heads along the token axis.

>>> import torch, mhla
>>> partition = mhla.Partition.grid((16, 16), (4, 4))
>>> mixing = mhla.mixing_init(partition)
>>> q = k = v = torch.rand(2, 256, 8, 32)  # [batch, tokens, heads, width]
>>> mhla.attention(q, k, v, mixing, partition=partition).shape
torch.Size([2, 256, 8, 32])
"""

from mhla import _library, fused, nn
from mhla._attention import Summaries, attention
from mhla._mixing import extend_causal_mixing, mixing_init, project_mixing, resize_mixing
from mhla._partition import Partition
from mhla._state import State

__version__: str = _library.version()

__all__ = [
    "Partition",
    "State",
    "Summaries",
    "attention",
    "extend_causal_mixing",
    "fused",
    "mixing_init",
    "nn",
    "project_mixing",
    "resize_mixing",
]
