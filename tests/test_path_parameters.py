"""A path is given to the Python API as text or as any path-like object, wherever it takes one."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import oxibonsai

# Their functions are the commands and routes; the page of each of their options says what it takes.
NO_API = {"cli", "server", "serve", "__main__", "ray_app"}


def public() -> Iterator[tuple[str, Any]]:
    """What the package and its parts name in ``__all__``, with the names to import."""
    yield from ((f"oxibonsai.{name}", getattr(oxibonsai, name)) for name in oxibonsai.__all__)
    for part in pkgutil.iter_modules(oxibonsai.__path__):
        if part.name in NO_API:
            continue
        module = import_module(f"oxibonsai.{part.name}")
        for name in getattr(module, "__all__", ()):
            try:
                yield f"oxibonsai.{part.name}.{name}", getattr(module, name)
            except ImportError:  # an extra is not installed
                continue


def callables() -> dict[str, Any]:
    """Functions, constructors and public methods, each once."""
    found = {}
    for name, thing in public():
        if inspect.isclass(thing) and thing.__module__.startswith("oxibonsai"):
            own = [c for c in thing.__mro__ if c.__module__.startswith("oxibonsai")]
            members = {k: v for c in reversed(own) for k, v in vars(c).items()}
            for attribute, value in members.items():
                if attribute == "__init__" or not attribute.startswith("_"):
                    inner = getattr(value, "__func__", value)
                    if inspect.isfunction(inner):
                        found[inner] = f"{name}.{attribute}"
        elif inspect.isfunction(thing):
            found[thing] = name
    return {name: function for function, name in found.items()}


CALLABLES = callables()


def test_the_api_was_found() -> None:
    assert len(CALLABLES) > 100
    assert {"oxibonsai.engine.save", "oxibonsai.quantize.write"} <= set(CALLABLES)


RESULTS = {"oxibonsai.train.Result.__init__"}  # made by the package alone


@pytest.mark.parametrize("name", sorted(set(CALLABLES) - RESULTS))
def test_a_path_may_be_text_or_path_like(name: str) -> None:
    for parameter in inspect.signature(CALLABLES[name]).parameters.values():
        annotation = str(parameter.annotation)
        if "Path" in annotation:
            assert "os.PathLike[str]" in annotation, f"{parameter.name}: {annotation}"
            assert "str | os.PathLike" in annotation, f"{parameter.name}: {annotation}"
