"""gpt-oss: a message to a function.

``<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}``, of which
:class:`oxibonsai.output.channels.ChannelSplitter` has brought the head into one form before the text
comes here.
"""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.errors import RequestError
from oxibonsai.output.channels import CALL_HEAD
from oxibonsai.output.tools.call_object import expect, read_arguments, read_until, skip_space
from oxibonsai.output.tools.call_parser import CallReader, ToolFormat
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.lark import CallGrammar, Lark, arguments_of
from oxibonsai.output.tools.request import MAX_NAME, Tool


class HarmonyFormat(ToolFormat):
    """One call ends the reply."""

    name = "harmony"
    openings = (CALL_HEAD,)
    marks = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>")
    one_call_a_message = True
    joins_reasoning = True

    def read(self, writer: CallWriter, opening: str) -> CallReader:
        name, _ = yield from read_until("<", MAX_NAME)
        writer.begin()
        writer.name(name)
        yield from expect("|message|>")
        first = yield from skip_space()
        yield from read_arguments(writer, first)
        writer.end()

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        kind = f'(" " ({lark.mark("<|constrain|>")})? "json")?'
        message, channel = lark.mark("<|message|>"), lark.mark("<|channel|>")
        for i, tool in enumerate(tools):
            to = f"to=functions.{tool.name}"
            # The model may name the function before the channel or behind it.
            behind = f"{lark.mark(f'<|channel|>commentary {to}')} {kind}"
            before = f'{lark.mark(f" {to}")} {channel} ("commentary" | "analysis") {kind}'
            lark.rule(f"call_{i}", f"({behind} | {before}) {message} {arguments_of(tool)}")
        lark.rule("block", f"({lark.one_of('call', tools)})")
        return CallGrammar("", separator="", repeats=False)

    def whole(
        self, lark: Lark, tools: Sequence[Tool], *, forced: bool, answer: str | None
    ) -> str | None:
        if not all(map(lark.is_special, self.marks)):
            raise RequestError(
                f"tools: the vocabulary lacks some of the tokens {', '.join(self.marks)}, in which "
                "this model's calls are written"
            )
        self.grammar(lark, tools, parallel=False)
        lark.rule("TEXT", "/(?s:.+)/")
        more = f"TEXT? {lark.mark('<|end|><|start|>assistant')}"
        lark.rule("thought", f"{lark.mark('<|channel|>analysis<|message|>')} {more}")
        lark.rule("said", f"{lark.mark('<|channel|>commentary<|message|>')} {more}")
        if forced:
            return "thought* block"
        head = f"{lark.mark('<|channel|>final')} ({lark.mark(' <|constrain|>json')})?"
        lark.rule("final", f"{head} {lark.mark('<|message|>')} {answer or 'TEXT?'}")
        return "(thought | said)* (block | final)"
