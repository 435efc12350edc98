"""Agents: each runs a tool of ours, reads its result, and answers; PydanticAI, OpenAI's Agents SDK,
smolagents, AutoGen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from running_server import RunningServer
from weather import CITIES, MODEL, QUESTION, Place, Report, address, openai_url, weather

# They warn of their own insides.
pytestmark = [pytest.mark.suite, pytest.mark.filterwarnings("ignore")]


def needed(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed")


def pydantic_ai_model(server: RunningServer, api: str) -> Any:
    needed("pydantic_ai")
    if api == "messages":
        needed("anthropic")
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        provider = AnthropicProvider(base_url=address(server), api_key="none")
        # Which models have JSON schemas it knows by Anthropic's names.
        return AnthropicModel(
            MODEL, provider=provider, profile={"supports_json_schema_output": True}
        )
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    made = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    return made(MODEL, provider=OpenAIProvider(base_url=openai_url(server), api_key="none"))


APIS = ["chat", "responses"]
PYDANTIC_AIS = [*APIS, "messages"]
SHORT: Any = {"max_tokens": 128, "temperature": 0}


@pytest.mark.parametrize("api", PYDANTIC_AIS)
def test_pydantic_ai_answers_and_streams(server: RunningServer, api: str) -> None:
    model = pydantic_ai_model(server, api)
    from pydantic_ai import Agent

    settings: Any = {"max_tokens": 16, "temperature": 0}
    agent = Agent(model, model_settings=settings, system_prompt="Be brief.")
    whole = agent.run_sync(QUESTION)
    assert whole.output
    assert whole.usage.output_tokens > 0

    async def streamed() -> str:
        async with agent.run_stream(QUESTION) as answer:
            return "".join([piece async for piece in answer.stream_text(delta=True)])

    assert asyncio.run(streamed()) == whole.output


@pytest.mark.parametrize("api", PYDANTIC_AIS)
def test_pydantic_ai_gets_objects(server: RunningServer, api: str) -> None:
    model = pydantic_ai_model(server, api)
    from pydantic_ai import Agent, NativeOutput

    by_tool = Agent(model, model_settings={"max_tokens": 128}, output_type=Report)
    assert by_tool.run_sync(QUESTION).output.city in CITIES
    # For Anthropic's API it takes the bounds of numbers out, and random weights write digits on.
    wanted = NativeOutput(Place if api == "messages" else Report)
    native = Agent(model, model_settings=SHORT, output_type=wanted)
    assert native.run_sync(QUESTION).output.city in CITIES


@pytest.mark.parametrize("api", PYDANTIC_AIS)
def test_pydantic_ai_runs_a_tool(server: RunningServer, api: str) -> None:
    model = pydantic_ai_model(server, api)
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturnPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import Tool

    definition = Tool(weather, takes_ctx=False).tool_def
    forced = ModelRequestParameters(function_tools=[definition], allow_text_output=False)
    asked: list[Any] = [ModelRequest.user_text_prompt(QUESTION)]

    async def loop() -> Any:
        answer = await model.request(asked, {**SHORT, "parallel_tool_calls": False}, forced)
        calls = [p for p in answer.parts if isinstance(p, ToolCallPart)]
        results = [
            ToolReturnPart(c.tool_name, weather(**c.args_as_dict()), c.tool_call_id) for c in calls
        ]
        assert calls
        again = [*asked, answer, ModelRequest(results)]
        return await model.request(again, SHORT, ModelRequestParameters())

    assert asyncio.run(loop()).usage.output_tokens > 0
    agent = Agent(model, model_settings=SHORT, tools=[weather])
    assert agent.run_sync(QUESTION).usage.requests >= 1


@pytest.mark.parametrize("api", APIS)
def test_openais_agents_run_a_tool_and_get_an_object(server: RunningServer, api: str) -> None:
    agents = needed("agents")
    openai = needed("openai")
    agents.set_tracing_disabled(True)

    async def main() -> None:
        client = openai.AsyncOpenAI(base_url=openai_url(server), api_key="none", max_retries=0)
        kinds = {
            "chat": agents.OpenAIChatCompletionsModel,
            "responses": agents.OpenAIResponsesModel,
        }
        model = kinds[api](MODEL, client)
        forced = agents.ModelSettings(temperature=0, max_tokens=128, tool_choice="required")
        helper = agents.Agent(
            "helper", model=model, tools=[agents.function_tool(weather)], model_settings=forced,
            tool_use_behavior="stop_on_first_tool",
        )  # fmt: skip
        done = await agents.Runner.run(helper, QUESTION, max_turns=2)
        assert str(done.final_output).startswith("21 degrees in ")
        # After the call the choice is the model's own, and it answers in words or calls once more.
        plain = agents.ModelSettings(temperature=0, max_tokens=32)
        again = await agents.Runner.run(
            agents.Agent("writer", model=model, model_settings=plain), done.to_input_list()
        )
        assert again.raw_responses[0].usage.output_tokens > 0
        typed = agents.ModelSettings(temperature=0, max_tokens=128)
        reporter = agents.Agent("reporter", model=model, output_type=Report, model_settings=typed)
        found = await agents.Runner.run(reporter, QUESTION)
        assert found.final_output.city in CITIES
        streamed = agents.Runner.run_streamed(reporter, QUESTION)
        assert "raw_response_event" in {event.type async for event in streamed.stream_events()}
        assert streamed.final_output == found.final_output
        await client.close()

    asyncio.run(main())


def test_smolagents_call_tools_and_answer(smollm2_server: RunningServer) -> None:
    """Its schemas of tools allow further arguments, of which random weights would never see an end."""
    smolagents = needed("smolagents")
    model = smolagents.OpenAIModel(
        MODEL, api_base=openai_url(smollm2_server), api_key="none", temperature=0, max_tokens=128
    )
    messages = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    text = model.generate(messages).content
    assert text
    assert "".join(d.content or "" for d in model.generate_stream(messages)) == text
    tool = smolagents.tool(weather)
    answer = model.generate(messages, tools_to_call_from=[tool])
    assert answer.tool_calls[0].function.name == "weather"
    agent = smolagents.ToolCallingAgent(tools=[tool], model=model, max_steps=2, verbosity_level=0)
    assert agent.run(QUESTION) is not None


def autogen_client(server: RunningServer) -> Any:
    needed("autogen_agentchat")
    client = needed("autogen_ext.models.openai").OpenAIChatCompletionClient
    info = {
        "vision": False, "function_calling": True, "json_output": True, "structured_output": True,
        "family": "unknown",
    }  # fmt: skip
    return client(
        model=MODEL, base_url=openai_url(server), api_key="none", model_info=info, temperature=0,
        max_tokens=128, max_retries=0,
    )  # fmt: skip


def test_autogen_answers_streams_and_runs_a_tool(server: RunningServer) -> None:
    client = autogen_client(server)
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import CancellationToken
    from autogen_core.models import UserMessage
    from autogen_core.tools import FunctionTool

    async def main() -> None:
        messages = [UserMessage(content=QUESTION, source="user")]
        whole = await client.create(messages)
        assert whole.usage.completion_tokens > 0
        *pieces, last = [piece async for piece in client.create_stream(messages)]
        assert "".join(pieces) == last.content == whole.content
        tool = FunctionTool(weather, description="Says the weather of a city.", strict=True)
        called = await client.create(messages, tools=[tool], tool_choice="required")
        assert called.finish_reason == "function_calls"
        import json

        arguments = json.loads(called.content[0].arguments)
        assert await tool.run_json(arguments, CancellationToken()) == weather(**arguments)
        found = await client.create(messages, json_output=Report)
        assert Report.model_validate_json(found.content).city in CITIES
        agent = AssistantAgent("helper", model_client=client, tools=[tool])
        assert (await agent.run(task=QUESTION)).messages[-1] is not None
        await client.close()

    asyncio.run(main())
