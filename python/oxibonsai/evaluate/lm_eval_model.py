"""EleutherAI's lm-evaluation-harness on an engine: importing this registers its model ``oxibonsai``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oxibonsai.chat.template import model_template
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.engine import Engine, load
from oxibonsai.errors import RequestError, needs_extra
from oxibonsai.evaluate.continuations import Continuation, ContinuationScore, score_continuations
from oxibonsai.loading import LoraChoice
from oxibonsai.sampling import SamplingParams

with needs_extra("eval"):
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
    from tqdm import tqdm

DEFAULT_PARALLEL = 16
# What a task may say of its generation beside its length and its ends.
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")


@register_model("oxibonsai")
class OxiBonsaiLM(TemplateLM):  # type: ignore[misc]  # the harness may not be installed
    """A model of the harness that runs on our engine.

    Args:
        pretrained: What :func:`oxibonsai.load` takes, or an engine, which has its own ``ctx``,
            ``threads``, ``device``, ``kv_type`` and ``lora``.
        ctx: Positions of a text; longer ones lose their beginning, as with ``hf``. None: the model's.
        threads: Worker threads.
        device: Where it runs.
        kv_type: Type of keys and values.
        lora: Low-rank adapters, as :func:`oxibonsai.load` takes them; a string is the path of one.
        batch_size: Sequences that run at once; no result depends on it. ``auto`` is the default. An
            engine's own ``parallel`` must be at least that.
        max_gen_toks: Tokens of an answer at most, where the task names no number.
        prefix_token_id: What stands before a text without a context. None: the tokenizer's
            beginning of a text, else its end.
        seed: Of tasks that sample.
        unknown: Any other argument, which is refused.

    Raises:
        RequestError: An argument is unknown or out of range, or of loading and beside an engine.
    """

    def __init__(
        self,
        pretrained: str | Engine,
        *,
        ctx: int | None = None,
        threads: int | None = None,
        device: str | None = None,
        kv_type: str | None = None,
        lora: LoraChoice | None = None,
        batch_size: int | str = "auto",
        max_gen_toks: int = 256,
        prefix_token_id: int | None = None,
        seed: int = 0,
        **unknown: Any,
    ) -> None:
        super().__init__()
        if unknown:
            known = "pretrained, ctx, threads, device, kv_type, lora, batch_size, max_gen_toks, "
            raise RequestError(
                f"the model oxibonsai has no argument {', '.join(sorted(unknown))}; it has {known}"
                "prefix_token_id and seed"
            )
        self._parallel = _parallel(batch_size)
        loading: dict[str, Any] = {
            "ctx_size": ctx,
            "threads": threads,
            "device": device,
            "kv_type": kv_type,
            "lora": lora,
        }
        given = {name: value for name, value in loading.items() if value is not None}
        if not isinstance(pretrained, Engine):
            self.engine = load(pretrained, parallel=self._parallel, mmproj=False, **given)
        elif given:
            raise RequestError(f"the engine is loaded already: load it with {', '.join(given)}")
        else:
            self.engine = pretrained
        self.max_length = self.engine.ctx_size
        if max_gen_toks < 1:
            raise RequestError(f"max_gen_toks is {max_gen_toks}; it must be at least 1")
        self.max_gen_toks = max_gen_toks
        self._prefix = prefix_token_id
        self._seed = seed
        self._template = model_template(self.engine)

    @property
    def batch_size(self) -> int:
        """Return the sequences that run at once."""
        return self._parallel

    @property
    def eot_token_id(self) -> int:
        """Return the token that ends a text."""
        eos = self.engine.tokenizer.eos_id
        if eos is None:
            raise RequestError("the model's tokenizer has no end of a text: give prefix_token_id")
        return eos

    @property
    def prefix_token_id(self) -> int:
        """Return what stands before a text without a context."""
        if self._prefix is not None:
            return self._prefix
        bos = self.engine.tokenizer.bos_id
        return self.eot_token_id if bos is None else bos

    @property
    def tokenizer_name(self) -> str:
        """Return what the harness keeps prepared requests under."""
        return str(self.engine.model.weights.checkpoint.path).replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the source of the model's template, where one is wanted.

        Raises:
            RequestError: The model has none, or another is named.
        """
        if not chat_template:
            return None
        if isinstance(chat_template, str):
            raise RequestError(
                f"the model has one chat template, none named {chat_template!r}: leave out the name"
            )
        return self._known_template().source

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation as a text; without a generation prompt, its last turn stays open."""
        template = self._known_template()
        if add_generation_prompt:
            return template.render(chat_history)
        text = template.render(chat_history, add_generation_prompt=False)
        content = chat_history[-1]["content"].strip()
        end = text.rfind(content)
        if end < 0:
            raise RequestError("the chat template changes the turn that is to go on")
        return text[: end + len(content)]

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Return the ids of a text, in which the text of a control token is that token."""
        tokenizer = self.engine.tokenizer
        if add_special_tokens is None:
            bos = tokenizer.bos_id
            begun = bos is not None and string.startswith(tokenizer.vocabulary.texts[bos])
            add_special_tokens = not begun
        return tokenizer.encode(string, add_special=add_special_tokens, parse_special=True)

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """Return the likelihood of each whole text, over windows as ``hf`` cuts them."""
        windows: list[Continuation] = []
        counts = []
        for request in requests:
            cut = [
                make_disjoint_window(window)
                for window in get_rolling_token_windows(
                    token_list=self.tok_encode(request.args[0]),
                    prefix_token=self.prefix_token_id,
                    max_seq_len=self.max_length,
                    context_len=1,
                )
            ]
            windows += [self._continuation(context, tokens) for context, tokens in cut]
            counts.append(len(cut))
        of_window = dict(self._scores(windows, disable_tqdm))
        scores = (of_window[i].log_likelihood for i in range(len(windows)))
        results = [sum(next(scores) for _ in range(count)) for count in counts]
        for request, result in zip(requests, results, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, result)
        return results

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """Return the text that follows each prompt, up to a stop string, the end or the limit."""
        sequences = [self._submit(*request.args) for request in requests]
        results = []
        try:
            for request, sequence in zip(
                tqdm(requests, disable=disable_tqdm, desc="Generating"), sequences, strict=True
            ):
                while not sequence.finished:
                    self.engine.advance(sequence)
                sequence.raise_error()
                results.append(sequence.text)
                self.cache_hook.add_partial("generate_until", request.args, sequence.text)
        finally:
            for sequence in sequences:
                self.engine.cancel(sequence)
        return results

    def _submit(self, context: str, gen_kwargs: dict[str, Any]) -> Any:
        wanted = dict(normalize_gen_kwargs(gen_kwargs, self.max_gen_toks))
        stops = tuple(dict.fromkeys(stop for stop in wanted.pop("until") if stop))
        limit = wanted.pop("max_gen_toks")
        if not wanted.pop("do_sample"):
            wanted["temperature"] = 0.0
        if strange := sorted(set(wanted) - set(_SAMPLING)):
            raise RequestError(
                f"generation has no argument {', '.join(strange)} here; it has until, max_gen_toks, "
                f"do_sample, {', '.join(_SAMPLING)}"
            )
        if not 0 < limit < self.max_length:
            raise RequestError(
                f"max_gen_toks is {limit}; it must be 1 to {self.max_length - 1}: load the model "
                "with a larger ctx"
            )
        params = SamplingParams(
            **{"seed": self._seed, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **wanted},
            max_tokens=limit,
            stop=stops,
        )
        prompt = self.tok_encode(context)[-(self.max_length - limit) :] or [self.prefix_token_id]
        return self.engine.submit(prompt, params)

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **_: Any,
    ) -> list[tuple[float, bool]]:
        texts = [self._continuation(context, tokens) for _, context, tokens in requests]
        results: dict[int, tuple[float, bool]] = {}
        for i, score in self._scores(texts, disable_tqdm):
            results[i] = score.log_likelihood, score.is_greedy
            self.cache_hook.add_partial("loglikelihood", requests[i][0], results[i])
        return [results[i] for i in range(len(texts))]

    def _continuation(self, context: list[int], tokens: list[int]) -> Continuation:
        """Cut what is too long from the beginning of the context."""
        if len(tokens) > self.max_length:
            raise RequestError(
                f"a continuation has {len(tokens)} tokens, but the context only {self.max_length}: "
                "load the model with a larger ctx"
            )
        room = self.max_length + 1 - len(tokens)
        return Continuation(tuple(context[-room:]), tuple(tokens))

    def _scores(
        self, texts: list[Continuation], disable_tqdm: bool
    ) -> Iterator[tuple[int, ContinuationScore]]:
        scores = score_continuations(self.engine, texts, parallel=self._parallel)
        yield from tqdm(scores, total=len(texts), disable=disable_tqdm, desc="Scoring")

    def _known_template(self) -> ChatTemplate:
        if self._template is None:
            raise RequestError("the model's file has no chat template: leave out the template")
        return self._template


def _parallel(batch_size: int | str) -> int:
    if batch_size == "auto":
        return DEFAULT_PARALLEL
    try:
        count = int(batch_size)
    except ValueError:
        count = 0
    if count < 1:
        raise RequestError(f"batch_size is {batch_size}; it must be a number from 1, or auto")
    return count
