"""Known request fields without a function here: ignored, ignored with a warning, or rejected.

Fields in no schema are rejected as unknown: see :func:`oxibonsai.server.validation.as_body`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from oxibonsai.server.schemas.fields import Checked, LoraScale
from oxibonsai.server.schemas.request_warnings import warn

UNSUPPORTED = "unsupported_field"


class Ignored:
    """Annotation of a field that is accepted and changes nothing, of which the response warns.

    Args:
        reason: Why it has no effect.
        neutral: Values that ask for nothing, as null does, and need no warning.
    """

    def __init__(self, reason: str, *neutral: Any) -> None:
        self._reason = reason
        self._neutral = neutral

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.with_info_after_validator_function(self._warn, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"description": f"Accepted without effect: {self._reason}."}

    def _warn(self, value: Any, info: core_schema.ValidationInfo) -> Any:
        if value is not None and value not in self._neutral:
            warn(f"{info.field_name} has no effect: {self._reason}")
        return value


# Accepted and ignored: the output doesn't depend on it.
NoEffect = Annotated[Any, Field(description="Has no effect.")]


class Unsupported:
    """Annotation of a field whose feature is not supported.

    Args:
        instead: What to do instead, for the error message.
        neutral: Values that are accepted, as null is, since they request nothing.
    """

    def __init__(self, instead: str, *neutral: Any) -> None:
        self._instead = instead
        self._neutral = neutral

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        text = f"Not supported: {self._instead}."
        return {"description": text, "enum": [None, *self._neutral]}

    def _check(self, value: Any) -> Any:
        if value is None or any(type(n) is type(value) and n == value for n in self._neutral):
            return value
        raise PydanticCustomError(UNSUPPORTED, "{instead}", {"instead": self._instead})


_LORA = Unsupported("vectors are those of the model as it was loaded", [])
_KV_TYPE = Unsupported("it is fixed when the server starts, with --kv-type")
_CHAT_TEMPLATE = Unsupported("it is fixed when the server starts, with --chat-template")
_REASONING = Unsupported("send reasoning_format, which says where reasoning is returned", True)
_COMPLETIONS = "chat completions and /v1/completions have it"
_TEXT_ONLY = "this model only reads and writes text"
OLD_TOOLS = Unsupported("use tools and tool_choice")


class EveryRequest(Checked):
    """Fields of any request, such as those for accounting."""

    model_config = ConfigDict(extra="forbid", strict=True)

    user: NoEffect = None
    request_id: NoEffect = None
    priority: NoEffect = None
    kv_type: Annotated[Any, _KV_TYPE] = None


class TextRequest(EveryRequest):
    """Fields of requests that generate text."""

    lora: list[LoraScale] | None = Field(
        None,
        max_length=64,
        description="llama-server's: scales of adapters; those that are missing are left out.",
    )
    metadata: NoEffect = None
    store: NoEffect = None
    service_tier: NoEffect = None
    prompt_cache_key: NoEffect = None
    prompt_cache_retention: NoEffect = None
    safety_identifier: NoEffect = None
    # Hints about speed and about context shifting.
    prediction: NoEffect = None
    backend_sampling: NoEffect = None
    guided_decoding_backend: NoEffect = None
    sse_ping_interval: NoEffect = None
    n_keep: NoEffect = None
    n_discard: NoEffect = None
    verbosity: Annotated[Any, Ignored("ask for it in a message", "medium")] = None
    moderation: Annotated[Any, Ignored("nothing is moderated", "low")] = None
    keep_alive: Annotated[Any, Ignored("the model stays loaded; /api/chat takes it")] = None

    use_beam_search: Annotated[Any, Unsupported(_COMPLETIONS, False)] = None
    length_penalty: Annotated[Any, Unsupported(_COMPLETIONS, 1.0, 1)] = None
    early_stopping: Annotated[Any, Unsupported(_COMPLETIONS, False)] = None
    logits_processors: Annotated[
        Any, Unsupported("send logit_bias, bad_words or a grammar", [])
    ] = None
    spaces_between_special_tokens: Annotated[Any, Unsupported("leave it out", True)] = None
    skip_special_tokens: Annotated[Any, Unsupported("special tokens are never returned", True)] = (
        None
    )
    include_stop_str_in_output: Annotated[
        Any, Unsupported("stop strings are never returned", False)
    ] = None
    return_token_ids: Annotated[Any, Unsupported("/completion has return_tokens", False)] = None
    return_tokens_as_token_ids: Annotated[
        Any, Unsupported("/completion has return_tokens", False)
    ] = None
    min_keep: Annotated[Any, Unsupported("leave it out", 0)] = None
    t_max_prompt_ms: Annotated[Any, Unsupported("close the connection to end a request", -1, 0)] = (
        None
    )
    t_max_predict_ms: Annotated[
        Any, Unsupported("close the connection to end a request", -1, 0)
    ] = None


class ConversationRequest(TextRequest):
    """Fields of ``/v1/chat/completions``."""

    modalities: Annotated[Any, Unsupported(_TEXT_ONLY, ["text"])] = None
    audio: Annotated[Any, Unsupported(_TEXT_ONLY)] = None
    mm_processor_kwargs: Annotated[Any, Unsupported(_TEXT_ONLY, {})] = None
    web_search_options: Annotated[Any, Unsupported("offer a tool that searches")] = None
    documents: Annotated[Any, Unsupported("put them into a message", [])] = None
    chat_template: Annotated[Any, _CHAT_TEMPLATE] = None
    include_reasoning: Annotated[Any, _REASONING] = None
    prompt_logprobs: Annotated[Any, Unsupported("/v1/completions has it")] = None
    truncate_prompt_tokens: Annotated[
        Any, Unsupported("/v1/completions has it; leave messages out")
    ] = None
    add_special_tokens: Annotated[Any, Unsupported("the chat template determines it", False)] = None
    echo: Annotated[Any, Unsupported("/v1/completions has it", False)] = None
    n_probs: Annotated[Any, Unsupported("send logprobs and top_logprobs", 0)] = None
    parse_tool_calls: Annotated[Any, Unsupported('send tool_choice "none"', True)] = None


class ContinuationRequest(TextRequest):
    """Fields of ``/v1/completions``."""

    add_special_tokens: Annotated[Any, Unsupported("send token ids", True)] = None


class VectorRequest(EveryRequest):
    """Fields of ``/v1/embeddings``."""

    lora: Annotated[Any, _LORA] = None

    add_special_tokens: Annotated[Any, Unsupported("send token ids", True)] = None
    input_type: Annotated[Any, Unsupported("put what the model expects in front of the text")] = (
        None
    )
