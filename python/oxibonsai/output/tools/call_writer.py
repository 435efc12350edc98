"""Where the parser of a format puts what it finds."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Callable, Mapping

from oxibonsai.output.delta import ToolCall, ToolCallDelta
from oxibonsai.output.tools.json_scan import Malformed
from oxibonsai.output.tools.request import Tool

# The id of the call with an index.
CallIds = Callable[[int], str]


def call_ids(seed: str, *, prefix: str = "call_", length: int = 24) -> CallIds:
    """Return the ids that depend on a seed and the index alone.

    Args:
        seed: Differs from reply to reply, such as the id of the reply.
        prefix: Of every id.
        length: Letters and digits behind it, 1 to 32. Mistral's templates want 9 and no prefix.
    """
    letters = string.ascii_letters + string.digits

    def make(index: int) -> str:
        digest = hashlib.sha256(f"{seed}:{index}".encode()).digest()
        return prefix + "".join(letters[b % len(letters)] for b in digest[:length])

    return make


class CallWriter:
    """Collects the calls of a reply; the pieces wait in :attr:`deltas`.

    Args:
        tools: Those on offer, by name. A call of anything else is malformed.
        ids: Of the calls.
        parallel: Take more than one call.
    """

    def __init__(self, tools: Mapping[str, Tool], ids: CallIds, *, parallel: bool) -> None:
        self.tools = tools
        self.deltas: list[ToolCallDelta] = []
        self.calls: list[ToolCall] = []
        self._ids = ids
        self._parallel = parallel
        self._index = 0
        self._name: str | None = None
        self._id = ""
        self._arguments: list[str] = []

    @property
    def begun(self) -> ToolCall | None:
        """The call that is being written, with its arguments so far; None before its name is known."""
        if self._name is None:
            return None
        return ToolCall(self._id, self._name, "".join(self._arguments))

    def begin(self) -> None:
        """Begin a call; a name and arguments follow, in any order."""
        if self.calls and not self._parallel:
            raise Malformed

    def name(self, name: str) -> None:
        """Take the function's complete name."""
        if self._name is not None or name not in self.tools:
            raise Malformed
        self._name, self._id = name, self._ids(self._index)
        early = "".join(self._arguments)
        self.deltas.append(ToolCallDelta(self._index, self._id, name, early))

    def arguments(self, piece: str) -> None:
        """Take a piece of the arguments."""
        self._arguments.append(piece)
        if self._name is not None:
            self.deltas.append(ToolCallDelta(self._index, arguments=piece))

    def end(self) -> None:
        """End the call; one without arguments has an empty object."""
        if self._name is None:
            raise Malformed
        if not self._arguments:
            self.arguments("{}")
        self.calls.append(ToolCall(self._id, self._name, "".join(self._arguments)))
        self.abandon()

    def abandon(self) -> None:
        """Forget what there is of the current call; pieces that went out keep their index."""
        if self._name is not None:
            self._index += 1
        self._name, self._arguments = None, []
