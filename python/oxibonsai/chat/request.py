"""A chat request to a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.known_models import NO_EFFORT, Recommendation
from oxibonsai.structured import Structure


@dataclass(frozen=True)
class ChatRequest:
    """A conversation and how it is to be answered, in the form of OpenAI's chat API.

    Attributes:
        messages: Oldest first.
        continue_last: Where the last message is the assistant's, the answer continues it.
        add_generation_prompt: End the prompt with the head of the assistant's turn, where it
            continues no message.
        tools: Functions that the model may call.
        tool_choice: ``"auto"`` (None, where there are tools), ``"none"``, ``"required"`` or
            ``{"type": "function", "function": {"name": ...}}``.
        parallel_tool_calls: Allow more than one call in an answer.
        structure: What the answer must match, reasoning before it apart. Where there are tools, the
            model may call instead, and the structure is a JSON schema.
        enable_thinking: For models that reason first; None: the template's own default. False ends
            reasoning that the template itself begins.
        reasoning_effort: Variable of the template, for models that know it, in place of a word that
            the model's own template refuses the one that stands for it; where nothing else says
            whether to reason, ``"none"`` and ``"minimal"`` mean no, any other yes.
        split_reasoning: Tell reasoning from the answer; False leaves it there with its tags.
        thinking_budget: Tokens of reasoning at most; None: no bound.
        template_options: Further variables of the chat template; ``enable_thinking`` and
            ``reasoning_effort`` among them go before the fields.
    """

    messages: Sequence[Mapping[str, Any]]
    continue_last: bool = True
    add_generation_prompt: bool = True
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    structure: Structure | None = None
    enable_thinking: bool | None = None
    split_reasoning: bool = True
    thinking_budget: int | None = None
    reasoning_effort: str | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def thinks(self) -> bool | None:
        """Whether the template is told to let the model reason; None: its own default."""
        thinks: bool | None = self.template_options.get("enable_thinking", self.enable_thinking)
        if thinks is None and self.reasoning_effort is not None:
            return self.reasoning_effort not in NO_EFFORT
        return thinks

    @property
    def template_variables(self) -> dict[str, Any]:
        """Return the template's variables besides messages, tools and ``enable_thinking``."""
        given = {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}
        options = self.template_options.items()
        return given | {k: v for k, v in options if k != "enable_thinking"}

    def in_words_of(self, recommended: Recommendation) -> ChatRequest:
        """Return the request with an effort that the model's template takes, or the budget it means."""
        effort = self.template_variables.get("reasoning_effort")
        if not isinstance(effort, str):
            return self
        budget = self.thinking_budget
        return replace(
            self,
            enable_thinking=self.thinks,
            reasoning_effort=recommended.effort(effort),
            thinking_budget=recommended.budget(effort) if budget is None else budget,
            template_options={
                k: v for k, v in self.template_options.items() if k != "reasoning_effort"
            },
        )

    def __post_init__(self) -> None:
        if self.thinking_budget is not None and self.thinking_budget < 0:
            raise RequestError(f"thinking_budget is {self.thinking_budget}; it must be 0 or more")
