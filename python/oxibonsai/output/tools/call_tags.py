"""Texts that families of models write around the names and values of a call."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class CallTags:
    """Fixed texts of a format whose values stand between tags.

    Attributes:
        name: Of the format.
        opening, closing: Around the calls of a block.
        function, named: Around the name of a function; where ``named`` has a new line, any white
            space may stand.
        function_end: Behind the last value; empty where the block ends there.
        parameter, valued: Around the name of a parameter.
        value_end: Behind a value.
        lines: A value stands on lines of its own: the new lines next to it are no part of it.
        several: A block may hold several calls.
        typed: A tag says whether its value is a string: ``valued`` is what follows that.
    """

    name: str
    opening: str
    closing: str
    function: str
    named: str
    function_end: str
    parameter: str
    valued: str
    value_end: str
    lines: bool = False
    several: bool = False
    typed: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """All of them that may be special tokens."""
        texts = (self.opening, self.closing, self.parameter, self.valued, self.value_end)
        whole = [m for text in texts for m in re.findall(r"<[^<>=\"]*>", text)]
        return (*dict.fromkeys(whole), *((_DSML,) if _DSML in self.opening else ()))


_DSML = "\uff5cDSML\uff5c"
QWEN_XML = CallTags(
    "qwen_xml",
    "<tool_call>",
    "</tool_call>",
    function="<function=",
    named=">\n",
    function_end="</function>",
    parameter="<parameter=",
    valued=">",
    value_end="</parameter>",
    lines=True,
)
SEED = CallTags(
    "seed",
    "<seed:tool_call>",
    "</seed:tool_call>",
    function="<function=",
    named=">\n",
    function_end="</function>",
    parameter="<parameter=",
    valued=">",
    value_end="</parameter>",
)
MINIMAX_M2 = CallTags(
    "minimax_m2",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    function='<invoke name="',
    named='">\n',
    function_end="</invoke>",
    parameter='<parameter name="',
    valued='">',
    value_end="</parameter>",
    several=True,
)
GLM = CallTags(
    "glm",
    "<tool_call>",
    "</tool_call>",
    function="",
    named="\n",
    function_end="",
    parameter="<arg_key>",
    valued="</arg_key>\n<arg_value>",
    value_end="</arg_value>",
)


def dsml(block: str) -> CallTags:
    """Return DeepSeek's tags.

    Args:
        block: Name of the outer one: ``function_calls`` (V3.2) or ``tool_calls`` (V4).
    """
    return CallTags(
        "dsml",
        f"<{_DSML}{block}>",
        f"</{_DSML}{block}>",
        function=f'<{_DSML}invoke name="',
        named='">\n',
        function_end=f"</{_DSML}invoke>",
        parameter=f'<{_DSML}parameter name="',
        valued='" string=',
        value_end=f"</{_DSML}parameter>",
        several=True,
        typed=True,
    )
