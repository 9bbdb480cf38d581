"""Whole numbers as arguments."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch

_LIMIT = 2**63


def integer(value: object, name: str, least: int | None = None) -> int:
    """``value`` as an int of 64 bits; a fraction, a bool or what is no number is refused by name."""
    if type(value) is not int:
        if isinstance(value, torch.SymInt):
            return value
        if isinstance(value, bool) or getattr(value, "dtype", None) is torch.bool:
            raise TypeError(f"{name} is {value!r}; it must be an integer")
        try:
            value = operator.index(value)
        except TypeError:
            raise TypeError(f"{name} is {value!r}; it must be an integer") from None
    if not -_LIMIT <= value < _LIMIT:
        raise ValueError(f"{name} is {value}; it must fit 64 bits")
    if least is not None and value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}")
    return value


def integers(values: Iterable, name: str) -> tuple[int, ...]:
    """Each of ``values`` likewise."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} is {values!r}; it must be a sequence of integers")
    for value in values:
        if type(value) is not int or not -_LIMIT <= value < _LIMIT:
            return tuple([integer(value, name) for value in values])
    return tuple(values)
