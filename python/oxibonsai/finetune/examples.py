"""Read examples to learn from: JSON lines in the forms of trl, as token ids and what of them is learnt."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Generic, TypeVar

from oxibonsai.errors import FormatError, OxiBonsaiError, RequestError
from oxibonsai.files.text_lines import numbered_lines
from oxibonsai.hf.conversation import token_mask
from oxibonsai.hf.tokenizer import PreTrainedTokenizer

# transformers' label of a token that is not learnt.
IGNORED = -100
_FORMS = "messages; prompt and completion; or text"
_PAIR = {"chosen", "rejected"}


@dataclass(frozen=True)
class Example:
    """A sequence to learn from.

    Attributes:
        ids: Its tokens.
        labels: The same, or ``IGNORED`` where a token is given and not learnt.
    """

    ids: list[int]
    labels: list[int]

    @property
    def predicted(self) -> int:
        """Return how many tokens are learnt: the first is not predicted."""
        return sum(label != IGNORED for label in self.labels[1:])

    @property
    def longest(self) -> int:
        """Return how many tokens there are."""
        return len(self.ids)

    def cut(self, context: int) -> Example:
        """Return the first ``context`` tokens."""
        return Example(self.ids[:context], self.labels[:context])


@dataclass(frozen=True)
class PackedExample(Example):
    """Several examples, one after the other.

    Attributes:
        positions: Of each token in its own example.
    """

    positions: list[int]


@dataclass(frozen=True)
class Preference:
    """Two answers to one prompt.

    Attributes:
        chosen, rejected: The prompt with each; the answer is what is learnt.
    """

    chosen: Example
    rejected: Example

    @property
    def longest(self) -> int:
        """Return the tokens of the longer one."""
        return max(len(self.chosen.ids), len(self.rejected.ids))

    @property
    def predicted(self) -> int:
        """Return how many tokens are learnt of the answer that has fewer."""
        return min(self.chosen.predicted, self.rejected.predicted)

    def cut(self, context: int) -> Preference:
        """Return the first ``context`` tokens of both."""
        return Preference(self.chosen.cut(context), self.rejected.cut(context))


Learnt = TypeVar("Learnt", Example, Preference)


@dataclass(frozen=True)
class Examples(Generic[Learnt]):
    """The examples or the preferences of a file.

    Attributes:
        items: In the order of the file; none without a token to learn.
        cut: How many were longer than the context.
        dropped: How many had nothing to learn within the context.
    """

    items: list[Learnt]
    cut: int
    dropped: int


def read_examples(file: Path, tokenizer: PreTrainedTokenizer, context: int) -> Examples[Example]:
    """Return the examples of a file of JSON lines.

    A line has ``messages``, of which what the assistant says is learnt; or ``prompt`` and ``completion``,
    texts or lists of messages, of which the completion is learnt; or ``text``, which is learnt whole.
    Conversations may have ``tools``.

    Args:
        file: The file.
        tokenizer: The model's, with its chat template.
        context: Tokens of an example at most.

    Raises:
        RequestError: The file can't be read, or holds nothing to learn.
        FormatError: A line is something else; it is named.
    """
    reader = _Reader(tokenizer)
    whole: list[Example] = []
    for number, row in _rows(file):
        try:
            whole += reader.examples(row)
        except OxiBonsaiError as e:
            raise FormatError(f"{file}, line {number}: {e}") from e
    return _within(context, whole, file)


def holds_preferences(file: Path) -> bool:
    """Return whether the first line of a file of JSON lines has two answers to compare."""
    return any(_PAIR & row.keys() for _, row in islice(_rows(file), 1))


def read_preferences(
    file: Path, tokenizer: PreTrainedTokenizer, context: int
) -> Examples[Preference]:
    """Return the preferences of a file of JSON lines.

    A line has ``chosen`` and ``rejected``, and their ``prompt``: texts or lists of messages. Lists of
    messages may have the prompt in both, as what they begin with alike. Conversations may have ``tools``.

    Args:
        file: The file.
        tokenizer: The model's, with its chat template.
        context: Tokens of an answer with its prompt at most.

    Raises:
        RequestError: The file can't be read, or holds nothing to learn.
        FormatError: A line is something else; it is named.
    """
    reader = _Reader(tokenizer)
    whole = []
    for number, row in _rows(file):
        try:
            whole.append(reader.preference(row))
        except OxiBonsaiError as e:
            raise FormatError(f"{file}, line {number}: {e}") from e
    return _within(context, whole, file)


def _within(context: int, whole: list[Learnt], file: Path) -> Examples[Learnt]:
    """Return what there is to learn within the context."""
    items = [item.cut(context) for item in whole]
    learnt = [item for item in items if item.predicted]
    if not learnt:
        where = f" within {context} tokens" if items else ""
        raise RequestError(f"{file} has nothing to learn{where}")
    cut = sum(item.longest > context for item in whole)
    return Examples(learnt, cut, len(items) - len(learnt))


def pack_examples(examples: Sequence[Example], context: int) -> list[PackedExample]:
    """Return rows that hold the examples one after the other, the longest first, each whole.

    An example goes where the least room is left (best fit decreasing, trl's ``bfd``).

    Args:
        examples: Of at most ``context`` tokens each.
        context: Tokens of a row at most.
    """
    rows: list[list[Example]] = []
    room: list[tuple[int, int]] = []  # what is left, and of which row, in order
    for example in sorted(examples, key=lambda e: -len(e.ids)):
        at = bisect_left(room, (len(example.ids), 0))
        if at < len(room):
            left, row = room.pop(at)
        else:
            left, row = context, len(rows)
            rows.append([])
        rows[row].append(example)
        insort(room, (left - len(example.ids), row))
    return [_packed(row) for row in rows]


def _packed(examples: Sequence[Example]) -> PackedExample:
    return PackedExample(
        [token for e in examples for token in e.ids],
        # Nothing of the example before it predicts the first token of one.
        [label for e in examples for label in (IGNORED, *e.labels[1:])],
        [i for e in examples for i in range(len(e.ids))],
    )


def _rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in numbered_lines(file):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise FormatError(f"{file}, line {number} is no JSON: {e}") from e
        if not isinstance(row, dict):
            raise FormatError(f"{file}, line {number} is no JSON object")
        yield number, row


class _Reader:
    """Makes examples of the rows of a file."""

    def __init__(self, tokenizer: PreTrainedTokenizer) -> None:
        self._tokenizer = tokenizer

    def examples(self, row: dict[str, Any]) -> list[Example]:
        """Return the examples that a row holds."""
        if _PAIR & row.keys():
            raise FormatError(f"preferences are learnt from a file of them alone: give {_FORMS}")
        if "messages" in row:
            return self._conversation(row["messages"], row.get("tools"), 0)
        if "prompt" in row and "completion" in row:
            return self._completion(row["prompt"], row["completion"], row.get("tools"))
        if "text" in row:
            return [self._text("", _string(row, "text"))]
        raise FormatError(f"it has none of {_FORMS}")

    def preference(self, row: dict[str, Any]) -> Preference:
        """Return the preference that a row holds."""
        if not row.keys() >= _PAIR:
            raise FormatError(
                "it has not both chosen and rejected, which all lines of preferences have"
            )
        answers = [row["chosen"], row["rejected"]]
        prompt = row.get("prompt")
        if prompt is None and all(isinstance(answer, list) for answer in answers):
            pairs = zip(*answers, strict=False)
            alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            prompt, answers = answers[0][:alike], [answer[alike:] for answer in answers]
        given = [prompt, *answers]
        if not any(all(isinstance(x, kind) for x in given) for kind in (str, list)):
            raise FormatError(
                "prompt, chosen and rejected are neither three texts nor three lists of messages"
            )
        chosen, rejected = (self._answer(prompt, answer, row.get("tools")) for answer in answers)
        return Preference(chosen, rejected)

    def _answer(self, prompt: Any, answer: Any, tools: Any) -> Example:
        found = self._completion(prompt, answer, tools)
        if len(found) != 1:
            raise FormatError(
                "an answer has several messages, which the chat template writes apart"
            )
        return found[0]

    def _completion(self, prompt: Any, completion: Any, tools: Any) -> list[Example]:
        if isinstance(prompt, str) and isinstance(completion, str):
            return [self._text(prompt, completion)]
        if isinstance(prompt, list) and isinstance(completion, list):
            return self._conversation([*prompt, *completion], tools, len(prompt))
        raise FormatError("prompt and completion are neither two texts nor two lists of messages")

    def _text(self, prompt: str, completion: str) -> Example:
        """Return texts of which the second is learnt, with the token that ends a text."""
        given = self._ids(prompt, True) if prompt else []
        learnt = self._ids(completion, not prompt)
        if self._tokenizer.eos_token_id is not None:
            learnt.append(self._tokenizer.eos_token_id)
        return Example(given + learnt, [IGNORED] * len(given) + learnt)

    def _ids(self, text: str, first: bool) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=first)["input_ids"]
        return ids

    def _conversation(self, messages: Any, tools: Any, given: int) -> list[Example]:
        """Return a conversation as one example, where its chat template allows that.

        A template may write an answer that is followed by others differently, such as without its
        reasoning. Each of those is an example of its own, as the model will meet it.

        Args:
            messages: All of them.
            tools: That the model may call.
            given: Messages at the beginning from which nothing is learnt.
        """
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise FormatError("messages is no list of objects")
        answers = [i for i in range(given, len(messages)) if messages[i].get("role") == "assistant"]
        if not answers:
            raise FormatError("there is no message of the assistant to learn from")
        whole = self._render(messages, tools)
        spans, examples = [], []
        for i in answers:
            text = self._render(messages[: i + 1], tools)
            asked = self._render(messages[:i], tools, add_generation_prompt=True)
            # A template may ask with a mark that it leaves out of an answer, such as <think>.
            span = _common(asked, text), len(text.rstrip())
            if whole.startswith(text.rstrip()):
                spans.append(span)
            else:
                examples.append(self._masked(text, [span]))
        return [*examples, self._masked(whole, spans)] if spans else examples

    def _render(self, messages: list[Any], tools: Any, **options: Any) -> str:
        text: str = self._tokenizer.apply_chat_template(
            messages, tools=tools, tokenize=False, **options
        )
        return text

    def _masked(self, text: str, spans: list[tuple[int, int]]) -> Example:
        found = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, mask = list(found["input_ids"]), token_mask(found["offset_mapping"], spans)
        return Example(ids, [t if learnt else IGNORED for t, learnt in zip(ids, mask, strict=True)])


def _common(a: str, b: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def _string(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise FormatError(f"{name} is {value!r:.80}, which is no text")
    return value
