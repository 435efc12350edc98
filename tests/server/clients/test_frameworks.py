"""Libraries that put one face on many models: LiteLLM, Instructor, LangChain, LlamaIndex."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running_server import RunningServer
from weather import CITIES, MODEL, PARAMETERS, QUESTION, Report, address, openai_url, weather

# They warn of their own insides.
pytestmark = [pytest.mark.suite, pytest.mark.filterwarnings("ignore")]

MESSAGES = [{"role": "user", "content": QUESTION}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}


def needed(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed")


# LiteLLM's names of APIs, with what it puts behind the address by itself.
PROVIDERS = {"openai": "/v1", "hosted_vllm": "/v1", "anthropic": "", "ollama_chat": ""}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_litellm_speaks_each_api(smollm2_server: RunningServer, provider: str) -> None:
    """It leaves additionalProperties out of some schemas: random weights would go on without end."""
    server = smollm2_server
    litellm = needed("litellm")
    asked: dict[str, Any] = {
        "model": f"{provider}/{MODEL}", "api_base": address(server) + PROVIDERS[provider],
        "api_key": "none", "messages": MESSAGES, "temperature": 0, "num_retries": 0,
    }  # fmt: skip
    whole = litellm.completion(**asked, max_tokens=12)
    text = whole.choices[0].message.content
    assert text
    assert 0 < whole.usage.completion_tokens <= 12
    pieces = list(litellm.completion(**asked, max_tokens=12, stream=True))
    assert len(pieces) > 2
    assert litellm.stream_chunk_builder(pieces).choices[0].message.content == text
    if provider == "ollama_chat":  # its API has no tool_choice
        return
    called = litellm.completion(**asked, max_tokens=128, tools=[TOOL], tool_choice="required")
    call = called.choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments)["city"] in CITIES
    after = [*MESSAGES, called.choices[0].message]
    after += [
        {"role": "tool", "tool_call_id": c.id, "content": "21 degrees"}
        for c in called.choices[0].message.tool_calls
    ]
    last = litellm.completion(**{**asked, "messages": after}, max_tokens=12, tools=[TOOL])
    assert last.usage.completion_tokens > 0


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_litellm_gets_objects_and_vectors(server: RunningServer, provider: str) -> None:
    litellm = needed("litellm")
    place = {"api_base": openai_url(server), "api_key": "none", "model": f"{provider}/{MODEL}"}
    answer = litellm.completion(
        **place, messages=MESSAGES, temperature=0, max_tokens=128, response_format=Report
    )
    Report.model_validate_json(answer.choices[0].message.content)
    vectors = litellm.embedding(**place, input=["a cat", "a dog"]).data
    assert len(vectors) == 2
    assert vectors[0]["embedding"] != vectors[1]["embedding"]


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_instructor_gets_objects(server: RunningServer, mode: str) -> None:
    instructor = needed("instructor")
    made = needed("openai").OpenAI(base_url=openai_url(server), api_key="none", max_retries=0)
    client = instructor.from_openai(made, mode=getattr(instructor.Mode, mode))
    asked = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_tokens": 256}
    asked |= {"response_model": Report, "max_retries": 0}
    found = client.chat.completions.create(**asked)
    assert found.city in CITIES
    *_, last = client.chat.completions.create_partial(**asked)
    assert (last.city, last.degrees) == (found.city, found.degrees)


def test_instructor_gets_objects_by_anthropics_api(server: RunningServer) -> None:
    instructor = needed("instructor")
    anthropic = needed("anthropic")
    made = anthropic.Anthropic(base_url=address(server), api_key="none", max_retries=0)
    client = instructor.from_anthropic(made, mode=instructor.Mode.ANTHROPIC_TOOLS)
    found = client.messages.create(
        model=MODEL, messages=MESSAGES, max_tokens=256, response_model=Report, max_retries=0
    )
    assert found.city in CITIES


def langchain(server: RunningServer, **options: Any) -> Any:
    return needed("langchain_openai").ChatOpenAI(
        base_url=openai_url(server), api_key="none", model=MODEL, temperature=0, max_tokens=128,
        max_retries=0, **options,
    )  # fmt: skip


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_langchain_runs_a_tool_loop(server: RunningServer, api: str) -> None:
    model = langchain(server, use_responses_api=api == "responses")
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    asked: list[str] = []

    @tool("weather", args_schema=PARAMETERS)
    def said(city: str) -> str:
        """Says the weather of a city."""
        asked.append(city)
        return weather(city)  # type: ignore[arg-type]

    messages: list[Any] = [HumanMessage(QUESTION)]
    forced = model.bind_tools([said], tool_choice="required", strict=True)
    answer = forced.invoke(messages)
    assert answer.tool_calls
    messages.append(answer)
    for call in answer.tool_calls:
        messages.append(ToolMessage(said.invoke(call["args"]), tool_call_id=call["id"]))
    assert set(asked) <= set(CITIES)
    last = model.invoke(messages)
    assert last.usage_metadata["output_tokens"] > 0
    pieces = list(forced.stream(messages[:1]))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert [c["args"] for c in whole.tool_calls] == [c["args"] for c in answer.tool_calls]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_gets_objects(server: RunningServer, method: str) -> None:
    model = langchain(server).with_structured_output(Report, method=method)
    assert model.invoke(QUESTION).city in CITIES


def test_langchain_gets_vectors(server: RunningServer) -> None:
    embeddings = needed("langchain_openai").OpenAIEmbeddings(
        base_url=openai_url(server), api_key="none", model=MODEL, check_embedding_ctx_length=False
    )
    one, two = embeddings.embed_documents(["a cat", "a dog"])
    assert one == embeddings.embed_query("a cat")
    assert one != two


def llama_index(server: RunningServer) -> Any:
    return needed("llama_index.llms.openai_like").OpenAILike(
        model=MODEL, api_base=openai_url(server), api_key="none", is_chat_model=True,
        is_function_calling_model=True, should_use_structured_outputs=True, context_window=4096,
        max_tokens=128, temperature=0, max_retries=0,
    )  # fmt: skip


def test_llama_index_chats_and_streams(server: RunningServer) -> None:
    model = llama_index(server)
    from llama_index.core.llms import ChatMessage

    messages = [ChatMessage(role="user", content=QUESTION)]
    text = model.chat(messages).message.content
    assert text
    assert "".join(piece.delta or "" for piece in model.stream_chat(messages)) == text


def test_llama_index_calls_tools(server: RunningServer) -> None:
    model = llama_index(server)
    from llama_index.core.tools import FunctionTool

    tool = FunctionTool.from_defaults(weather, fn_schema=_closed_arguments())
    answer = model.chat_with_tools([tool], user_msg=QUESTION, tool_required=True)
    (call, *_) = model.get_tool_calls_from_response(answer)
    assert call.tool_kwargs["city"] in CITIES
    said = model.predict_and_call([tool], user_msg=QUESTION, tool_required=True)
    assert "21 degrees in " in str(said)


def _closed_arguments() -> Any:
    from typing import Literal

    from pydantic import ConfigDict, create_model

    closed = ConfigDict(extra="forbid")
    return create_model("weather", city=(Literal["Paris", "Rome"], ...), __config__=closed)


def test_llama_index_gets_objects(server: RunningServer) -> None:
    model = llama_index(server)
    from llama_index.core.prompts import PromptTemplate

    found = model.structured_predict(Report, PromptTemplate(QUESTION))
    assert found.city in CITIES


def test_llama_index_gets_vectors(server: RunningServer) -> None:
    made = needed("llama_index.embeddings.openai_like").OpenAILikeEmbedding(
        model_name=MODEL, api_base=openai_url(server), api_key="none"
    )
    assert made.get_text_embedding("a cat") != made.get_text_embedding("a dog")
