"""The package as its users and their tools see it."""

import doctest
import inspect
import re
import typing
from pathlib import Path

import pytest

import mhla

PUBLIC = [getattr(mhla, name) for name in mhla.__all__ if name != "nn"] + [mhla.nn.MHLA]


def functions_of(item):
    if inspect.isfunction(item):
        return [item]
    members = [getattr(member, "fget", member) for member in vars(item).values()]
    members = [getattr(member, "__func__", member) for member in members]
    written_here = str(Path(mhla.__file__).parent)
    return [m for m in members if inspect.isfunction(m) and m.__code__.co_filename.startswith(written_here)]


@pytest.mark.parametrize("item", PUBLIC, ids=lambda item: item.__name__)
def test_everything_public_has_a_docstring_and_type_hints(item):
    assert inspect.getdoc(item)
    for function in functions_of(item):
        hints = typing.get_type_hints(function)
        assert "return" in hints, function.__qualname__
        parameters = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
        assert set(parameters) <= set(hints), function.__qualname__


def test_the_package_is_marked_as_typed():
    assert Path(mhla.__file__).with_name("py.typed").exists()


def test_the_version_is_the_libraries():
    assert re.fullmatch(r"\d+\.\d+\.\d+", mhla.__version__)


def test_the_example_of_the_package_docstring_runs():
    assert doctest.testmod(mhla).failed == 0
