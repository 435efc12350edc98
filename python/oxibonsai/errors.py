"""The errors that oxibonsai raises on purpose; every one says what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def printable(text: str) -> str:
    """Return a text as one line that commands no terminal: other characters are escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class OxiBonsaiError(Exception):
    """Base of all errors raised on purpose by this package: one line, whatever it quotes.

    Args:
        message: What, where and what to do. Characters of a hostile file that would end the line or
            command a terminal are escaped.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class FormatError(OxiBonsaiError):
    """A file that breaks its format, is truncated or corrupt."""


class TemplateError(FormatError):
    """A chat template that can't be read."""


class UnsupportedError(OxiBonsaiError):
    """A valid file or call that asks for what this version does not implement."""


class RequestError(OxiBonsaiError, ValueError):
    """A call whose arguments make no sense: ids, shapes, ranges, an over-long prompt.

    Args:
        message: As for every error of this package.
        param: The argument or the field of a request that is wrong, where it is a single one.
    """

    def __init__(self, message: str = "", *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class CapacityError(OxiBonsaiError):
    """Not enough room: KV pages, memory, a full queue."""


class DeviceError(OxiBonsaiError):
    """A device failed: it was lost, or its driver reports an error."""


class ParityError(OxiBonsaiError):
    """This machine's kernels give other bytes than the definition."""


class SourceError(OxiBonsaiError):
    """A model that can't be found or fetched."""


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Say which extra of the package has a module that the imports within lack.

    Args:
        extra: As ``pip install 'oxibonsai[extra]'`` names it.

    Raises:
        UnsupportedError: A module is missing.
    """
    try:
        yield
    except ModuleNotFoundError as e:
        raise UnsupportedError(
            f"{e.name} is not installed: pip install 'oxibonsai[{extra}]' brings it"
        ) from e
