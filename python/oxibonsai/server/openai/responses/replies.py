"""The replies that a response consists of: one, or several with calls of hosted tools between them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from flask import has_request_context

from oxibonsai.chat import PreparedPrompt
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.access import acting_for
from oxibonsai.server.generation import Generation
from oxibonsai.server.inputs import input_is_read
from oxibonsai.server.openai.responses.hosted import NO_TOOLS, HostedTools
from oxibonsai.server.openai.responses.request import later_request, prepare_response, sampling
from oxibonsai.server.openai.schemas.responses import ResponseRequest
from oxibonsai.server.openai.timings import reasoning_tokens
from oxibonsai.server.stores import Object
from oxibonsai.server.submitter import Submitter
from oxibonsai.tokenizer import Tokenizer

# In the last one the model can't call tools, so that the response ends with an answer.
MOST_REPLIES = 16

# Returns the prompt of another reply, from the output so far, the tokens of it, and whether the model
# may call tools.
NextPrompt = Callable[[Sequence[Object], int, bool], tuple[PreparedPrompt, SamplingParams]]


class Replies:
    """Generates one reply after another.

    Args:
        submitter: The model's.
        prepared: The first prompt.
        params: Sampling parameters of its reply.
        hosted: The tools of MCP servers on offer.
        approved: Approval requests whose calls come before the first reply.
        following: Makes further prompts; None where there are no hosted tools.
        owner: Whose they are.
    """

    def __init__(
        self,
        submitter: Submitter,
        prepared: PreparedPrompt,
        params: SamplingParams,
        *,
        hosted: HostedTools = NO_TOOLS,
        approved: Sequence[Object] = (),
        following: NextPrompt | None = None,
        owner: str = "",
    ) -> None:
        self.prepared, self.params = prepared, params
        self.hosted, self.approved = hosted, approved
        self.tokenizer: Tokenizer = submitter.engine.tokenizer
        self._submitter = submitter
        self._following, self._owner = following, owner
        self._generations: list[Generation] = []

    @property
    def generation(self) -> Generation | None:
        """The current or last generation; None before the first."""
        return self._generations[-1] if self._generations else None

    @property
    def tokens(self) -> int:
        """The number of tokens of all replies."""
        return sum(g.completion_tokens for g in self._generations)

    @property
    def count(self) -> int:
        """The number of replies that were begun."""
        return len(self._generations)

    def begin(self) -> None:
        """Submit the first prompt, unless approved calls come before it."""
        if self.approved:
            input_is_read()  # the calls may take long, and other requests are large, too
        else:
            self._submit(self.prepared, self.params)

    def follow(self, output: Sequence[Object], *, may_call: bool) -> None:
        """End the current reply and submit the prompt that continues the output."""
        assert self._following is not None
        self.close()
        # A stream goes on after its request's context, which says whose prompt it is.
        with contextlib.nullcontext() if has_request_context() else acting_for(self._owner):
            self._submit(*self._following(output, self.tokens, may_call))

    def close(self) -> None:
        """End the current reply; idempotent."""
        if self._generations:
            self._generations[-1].close()

    def _submit(self, prepared: PreparedPrompt, params: SamplingParams) -> None:
        self._generations.append(self._submitter.prompt(prepared, params))

    def usage(self) -> Object:
        """Return the usage of all replies together; a prompt that is read again counts again."""
        generations = self._generations
        given, made = sum(g.prompt_tokens for g in generations), self.tokens
        return {
            "input_tokens": given,
            "input_tokens_details": {
                "cached_tokens": sum(g.cached_tokens for g in generations),
                "cache_write_tokens": 0,
            },
            "output_tokens": made,
            "output_tokens_details": {
                "reasoning_tokens": sum(reasoning_tokens(g, self.tokenizer) for g in generations)
            },
            "total_tokens": given + made,
        }


def next_prompt(
    submitter: Submitter,
    request: ResponseRequest,
    conversation: Sequence[Object],
    hosted: HostedTools,
) -> NextPrompt:
    """Return what makes the prompts of later replies."""

    def make(
        output: Sequence[Object], tokens_used: int, may_call: bool
    ) -> tuple[PreparedPrompt, SamplingParams]:
        later = later_request(request, tokens_used=tokens_used, may_call=may_call)
        items = [*conversation, *output]
        prepared = prepare_response(submitter, later, items, hosted)
        return prepared, sampling(submitter.engine, later, submitter.settings, prepared.thinks)

    return make
