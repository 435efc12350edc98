"""Ollama's Python client over a socket; what each field means is in tests/server/test_ollama.py."""

import asyncio
from typing import Any

import pytest
from running_server import RunningServer
from weather import CITIES, MODEL, QUESTION, Report, address, weather

pytestmark = [pytest.mark.suite, pytest.mark.filterwarnings("ignore")]
ollama = pytest.importorskip("ollama", reason="ollama is not installed")

MESSAGES = [{"role": "user", "content": QUESTION}]
SHORT: dict[str, Any] = {"num_predict": 12, "temperature": 0}


@pytest.fixture
def client(server: RunningServer) -> Any:
    return ollama.Client(host=address(server))


def test_answers_whole_and_as_a_stream(client: Any) -> None:
    text = client.chat(MODEL, MESSAGES, options=SHORT).message.content
    assert text
    pieces = client.chat(MODEL, MESSAGES, options=SHORT, stream=True)
    assert "".join(p.message.content for p in pieces) == text
    said = client.generate(MODEL, QUESTION, options=SHORT)
    assert said.done_reason in ("length", "stop")
    assert said.eval_count > 0


def test_answers_of_an_asynchronous_client(server: RunningServer, client: Any) -> None:
    async def main() -> str:
        asked = ollama.AsyncClient(host=address(server))
        pieces = await asked.chat(MODEL, MESSAGES, options=SHORT, stream=True)
        return "".join([p.message.content async for p in pieces])

    assert asyncio.run(main()) == client.chat(MODEL, MESSAGES, options=SHORT).message.content


def test_an_object_of_a_schema(client: Any) -> None:
    options = {"num_predict": 128, "temperature": 0}
    answer = client.chat(MODEL, MESSAGES, options=options, format=Report.model_json_schema())
    assert Report.model_validate_json(answer.message.content).city in CITIES


def test_functions_of_python_are_tools(client: Any) -> None:
    options = {"num_predict": 64, "temperature": 0}
    answer = client.chat(MODEL, MESSAGES, tools=[weather], options=options)
    called = {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "weather", "arguments": {"city": "Rome"}}}
    ]}  # fmt: skip
    result = {"role": "tool", "content": weather("Rome"), "tool_name": "weather"}
    after = client.chat(MODEL, [*MESSAGES, called, result], tools=[weather], options=options)
    assert after.prompt_eval_count > answer.prompt_eval_count


def test_vectors_and_models(client: Any) -> None:
    one, two = client.embed(MODEL, ["a cat", "a dog"]).embeddings
    assert one != two
    assert [m.model for m in client.list().models]
    assert client.show(MODEL).details.family
    assert [m.model for m in client.ps().models]
