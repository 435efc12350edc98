"""``/completion``: llama-server's native API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, request

from oxibonsai.engine import Engine, Options
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.generation import Generation, follow
from oxibonsai.server.http.stream_writer import OutputEvent
from oxibonsai.server.inputs import PromptLimit, read_text
from oxibonsai.server.lost_work import repeatable
from oxibonsai.server.openai.completion_response import completion_response
from oxibonsai.server.openai.completions import begin_all
from oxibonsai.server.openai.infill import infill_params, infill_prompt
from oxibonsai.server.openai.logprobs import ShownToken, ShownTokens, chat_form, drawn_form
from oxibonsai.server.openai.prompts import ReadPrompt, is_several, read_prompts, text_of
from oxibonsai.server.openai.schemas.completion import InfillBody, NativeCompletionBody
from oxibonsai.server.openai.timings import PromptProgress, timings
from oxibonsai.server.response_choice import Choice
from oxibonsai.server.sampling_fields import NUMBERS
from oxibonsai.server.server import Server
from oxibonsai.server.sse import compact
from oxibonsai.server.validation import read_body
from oxibonsai.tokenizer import Tokenizer

# Members of a response without tokens.
_NOTHING = {
    "content": "", "completion_probabilities": [], "tokens_predicted": 0, "has_new_line": False,
    "stop_type": "limit", "stopping_word": "",
}  # fmt: skip
_STOP_TYPES = {"length": "limit", None: "none"}


def native_completion_blueprint(app: Server) -> Blueprint:
    """Return the route under its three names."""
    bp = Blueprint("native_completion", __name__)

    @bp.post("/completion")
    @bp.post("/completions")
    @repeatable
    def create_native_completion() -> Response:
        body = read_body(NativeCompletionBody, request)
        return completion_response(
            app, NativeCompletionHandler(app, body), streams=bool(body.stream)
        )

    @bp.post("/infill")
    @repeatable
    def infill() -> Response:
        body = read_body(InfillBody, request)
        return completion_response(
            app, NativeCompletionHandler(app, body), streams=bool(body.stream)
        )

    return bp


def _infill(body: InfillBody, tokenizer: Tokenizer, prompt_limit: PromptLimit) -> list[int]:
    prompt = read_text(body.prompt, tokenizer, prompt_limit, add_special=False)
    return infill_prompt(
        tokenizer,
        body.input_prefix,
        body.input_suffix,
        prompt_limit,
        prompt=prompt,
        files=[(file.filename, file.text) for file in body.input_extra or []],
    )


class NativeCompletionHandler:
    """The choices of one request.

    Raises:
        RequestError, ApiError, CapacityError: The request is rejected; nothing runs.
    """

    def __init__(self, app: Server, body: NativeCompletionBody) -> None:
        engine = app.submitter.engine
        self._engine, self._body = engine, body
        self._model_id = app.submitter.model_id
        # n_predict 0 only fills the prefix cache: the one generated token is not returned.
        self._silent = body.limit == 0
        self._tokenizer = engine.tokenizer
        prompt_limit = PromptLimit(engine.ctx_size)
        if isinstance(body, InfillBody):
            prompts = [ReadPrompt(_infill(body, engine.tokenizer, prompt_limit))]
        else:
            prompts = read_prompts(
                body.prompt,
                engine.tokenizer,
                "prompt",
                prompt_limit,
                image_reader=engine.image_reader,
            )
        self._prompts = [prompt.ids for prompt in prompts]
        self._params = body.sampling_params(
            app.submitter.settings,
            engine,
            max_tokens=1 if self._silent else body.limit,
            logprobs=bool(body.n_probs),
            top_logprobs=body.n_probs or 0,
            drawn_logprobs=bool(body.post_sampling_probs),
        )
        if isinstance(body, InfillBody):
            self._params = infill_params(self._params, engine.tokenizer)
        options = Options(
            structure=body.structure(),
            cache_salt=body.cache_salt or "",
            speculate=body.speculate(app.submitter.speculate),
        )
        self.group = begin_all(app, prompts, self._params, options, body.n or 1, slot=body.id_slot)

    @property
    def output_event(self) -> OutputEvent:
        """The event shared by the generations."""
        return self.group[0].output_event

    def close(self) -> None:
        """Cancel generations that still run."""
        for generation in self.group:
            generation.close()

    def result(self) -> Any:
        """Return the response body; a list if several prompts or samples were requested."""
        results = []
        for which, generation in enumerate(self.group):
            for choice in generation.choices:
                shown = ShownTokens(choice, self._tokenizer).take()
                result = self._result(which, choice, shown, choice.reply.content)
                result["index"] = self._number(which, choice)
                if self._body.return_tokens and not self._silent:
                    result["tokens"] = choice.sequence.generated
                results.append(self._chosen(result))
        many = is_several(self._body.prompt) or (self._body.n or 1) > 1
        return results if many else results[0]

    def frames(self) -> Iterator[str | None]:
        """Yield a chunk for each delta, then the final result without its text; no ``[DONE]``."""
        shown: dict[tuple[int, int], ShownTokens] = {}
        sent: dict[tuple[int, int], int] = {}
        progress = [PromptProgress(a) for a in self.group] if self._body.return_progress else []
        for which, index, delta in follow(self.group):
            for i, reports in enumerate([p.new_reports() for p in progress]):
                for report in reports:
                    yield self._progress(i, report)
            if which < 0:
                yield None
                continue
            generation = self.group[which]
            choice = generation.choices[index]
            number = self._number(which, choice)
            if delta is None:
                result = self._chosen({**self._result(which, choice, [], ""), "index": number})
                yield f"data: {compact(result)}\n\n"
                continue
            if self._silent:
                continue
            key = (which, index)
            tokens = choice.sequence.generated[sent.get(key, 0) :]
            sent[key] = sent.get(key, 0) + len(tokens)
            piece: dict[str, Any] = {
                "index": number, "content": delta.content, "tokens": tokens, "stop": False,
                "id_slot": generation.slot_id, "tokens_predicted": sent[key],
                "tokens_evaluated": generation.prompt_tokens,
            }  # fmt: skip
            if self._body.n_probs:
                taker = shown.setdefault(key, ShownTokens(choice, self._tokenizer))
                piece["completion_probabilities"] = self._probabilities(taker.take())
            if self._body.timings_per_token:
                piece["timings"] = timings(generation, choice)
            yield f"data: {compact(piece)}\n\n"

    def _number(self, which: int, choice: Choice) -> int:
        return which * (self._body.n or 1) + choice.index

    def _progress(self, which: int, report: dict[str, Any]) -> str:
        generation = self.group[which]
        started = report["processed"] == report["cache"]
        chunk: dict[str, Any] = {
            "index": which, "content": "", "tokens": [], "stop": False, "prompt_progress": report,
        }  # fmt: skip
        if self._body.timings_per_token:
            chunk["timings"] = timings(generation, generation.choices[0])
            if started:
                chunk["timings"] = dict.fromkeys(chunk["timings"], 0.0)
        return f"data: {compact(chunk)}\n\n"

    def _result(
        self, which: int, choice: Choice, shown: list[ShownToken], text: str
    ) -> dict[str, Any]:
        generation = self.group[which]
        sequence = choice.sequence
        stop = sequence.matched_stop
        ended_by = "word" if isinstance(stop, str) else "eos"
        result = {
            "index": which,
            "content": text,
            "tokens": [],
            "id_slot": generation.slot_id,
            "stop": True,
            "model": self._model_id,
            "tokens_predicted": sequence.num_generated,
            "tokens_evaluated": generation.prompt_tokens,
            "generation_settings": generation_settings(
                sequence.params, self._params, self._engine, sequence.sampler.seed
            ),
            "prompt": text_of(self._prompts[which], self._tokenizer),
            "has_new_line": "\n" in sequence.text,
            "truncated": self._is_truncated(generation, choice),
            "stop_type": _STOP_TYPES.get(sequence.finish_reason, ended_by),
            "stopping_word": stop if isinstance(stop, str) else "",
            "tokens_cached": generation.prompt_tokens + sequence.num_generated - 1,
            "timings": timings(generation, choice),
        }
        if self._body.n_probs:
            result["completion_probabilities"] = self._probabilities(shown)
        return {**result, **_NOTHING} if self._silent else result

    def _probabilities(self, shown: list[ShownToken]) -> list[dict[str, Any]]:
        form = drawn_form if self._body.post_sampling_probs else chat_form
        return form(shown, self._tokenizer)

    def _is_truncated(self, generation: Generation, choice: Choice) -> bool:
        """Return whether generation ended because the context was full."""
        full = generation.prompt_tokens + choice.sequence.num_generated
        cut = choice.sequence.num_generated != choice.sequence.params.max_tokens
        return cut and full >= self._engine.ctx_size

    def _chosen(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the members that ``response_fields`` selects; a slash separates the parts of a path."""
        fields = self._body.response_fields
        if not fields:
            return result
        chosen: dict[str, Any] = {}
        for path in fields:
            value: Any = result
            for name in path.split("/"):
                value = value.get(name, chosen) if isinstance(value, dict) else chosen
            if value is not chosen:
                chosen[path] = value
        return chosen


def generation_settings(
    params: SamplingParams, asked: SamplingParams, engine: Engine, seed: int | None
) -> dict[str, Any]:
    """Return sampling parameters under llama-server's names."""
    biases: list[dict[str, Any]] = [
        {"token": token, "bias": bias} for token, bias in asked.logit_bias.items()
    ]
    banned = set(asked.banned_tokens)
    if asked.ignore_eos:
        banned |= engine.eos_ids
    biases += [{"token": token, "bias": None} for token in sorted(banned)]
    limit = -1 if params.max_tokens is None else params.max_tokens
    return {
        "seed": seed,
        **{p.request[0]: getattr(params, p.name) for p in NUMBERS},
        "dry_sequence_breakers": list(params.dry_sequence_breakers),
        "stop": list(params.stop),
        "n_predict": limit,
        "max_tokens": limit,
        "ignore_eos": params.ignore_eos,
        "n_probs": params.top_logprobs,
        "samplers": list(params.samplers),
        "logit_bias": biases,
        "stream": False,
    }
