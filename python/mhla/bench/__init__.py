"""``python -m mhla.bench``: the operator from Python beside PyTorch, ``torch.compile`` included.

Shapes, method and rows are those of ``mhla bench op`` (docs/cli.md). This adds what only Python has: compiled formulas,
what a call costs the host, and (``--decode``) streaming.
"""
