"""Structured output as people ask for it, by each way of each client: SmolLM2's objects fit the schemas."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import node_clients
import pytest
from objects import WISHES, Drawing
from pydantic import BaseModel
from running_server import RunningServer
from test_agents import pydantic_ai_model
from test_frameworks import needed
from weather import MODEL, address, openai_url

# They warn of their own insides.
pytestmark = [pytest.mark.suite, pytest.mark.filterwarnings("ignore")]

# Asks for an object of a model by a prompt.
Ask = Callable[[str, type[BaseModel]], Any]
TOKENS = 300


def instructor(server: RunningServer, mode: str) -> Ask:
    library = needed("instructor")
    kind = getattr(library.Mode, mode)
    limits: dict[str, Any] = {"max_retries": 0, "model": MODEL, "temperature": 0}
    if mode.startswith("ANTHROPIC"):
        made = needed("anthropic").Anthropic(base_url=address(server), api_key="none")
        create = library.from_anthropic(made, mode=kind).messages.create
    else:
        made = needed("openai").OpenAI(base_url=openai_url(server), api_key="none", max_retries=0)
        create = library.from_openai(made, mode=kind).chat.completions.create

    def ask(prompt: str, wanted: type[BaseModel]) -> Any:
        said = [{"role": "user", "content": prompt}]
        return create(**limits, max_tokens=TOKENS, messages=said, response_model=wanted)

    return ask


def langchain(server: RunningServer, api: str, method: str) -> Ask:
    model = needed("langchain_openai").ChatOpenAI(
        base_url=openai_url(server), api_key="none", model=MODEL, temperature=0, max_tokens=TOKENS,
        max_retries=0, use_responses_api=api == "responses",
    )  # fmt: skip

    def ask(prompt: str, wanted: type[BaseModel]) -> Any:
        return model.with_structured_output(wanted, method=method, strict=False).invoke(prompt)

    return ask


def pydantic_ai(server: RunningServer, api: str, output: str) -> Ask:
    model = pydantic_ai_model(server, api)
    import pydantic_ai as library

    def ask(prompt: str, wanted: type[BaseModel]) -> Any:
        settings: Any = {"max_tokens": TOKENS, "temperature": 0}
        form = getattr(library, output)(wanted)
        agent = library.Agent(model, model_settings=settings, output_type=form, retries=0)
        return agent.run_sync(prompt).output

    return ask


WAYS: dict[str, Callable[[RunningServer], Ask]] = {
    **{
        f"instructor {mode}": lambda s, m=mode: instructor(s, m)
        for mode in ("TOOLS", "TOOLS_STRICT", "JSON_SCHEMA", "RESPONSES_TOOLS", "ANTHROPIC_TOOLS")
    },
    **{
        f"langchain {api} {method}": lambda s, a=api, m=method: langchain(s, a, m)
        for api in ("chat", "responses")
        for method in ("json_schema", "function_calling")
    },
    **{
        f"pydantic-ai {api} {output}": lambda s, a=api, o=output: pydantic_ai(s, a, o)
        for api in ("chat", "responses", "messages")
        for output in ("ToolOutput", "NativeOutput")
    },
}


# PydanticAI takes constants out of the schemas that it sends to Anthropic's API, so any kind fits them.
WITHOUT_CONSTANTS = "pydantic-ai messages NativeOutput"


@pytest.mark.parametrize("way", WAYS)
def test_eight_of_eight_objects_fit(smollm2_server: RunningServer, way: str) -> None:
    ask = WAYS[way](smollm2_server)
    failures = {}
    for prompt, wanted in WISHES.items():
        if wanted is Drawing and way == WITHOUT_CONSTANTS:
            continue
        try:
            wanted.model_validate(ask(prompt, wanted).model_dump(), strict=True)
        except Exception as e:  # of any client
            failures[prompt] = f"{type(e).__name__}: {e}"[:600]
    del ask
    gc.collect()  # PydanticAI leaves sockets open, of which a later test would hear
    assert failures == {}


def test_eight_of_eight_objects_of_each_provider_of_vercels_fit(
    smollm2_server: RunningServer, node_folder: Path
) -> None:
    wishes = node_folder / "wishes.json"
    wishes.write_text(json.dumps({p: m.model_json_schema() for p, m in WISHES.items()}))
    url = openai_url(smollm2_server)
    answers = node_clients.run(node_folder, "objects.mjs", url, MODEL, wishes)
    assert len(answers) == len(WISHES) * 4 * 2
    assert [a for a in answers if "error" in a] == []
    for answer in answers:
        wanted = WISHES[answer["prompt"]]
        found = wanted.model_validate(answer["output"])
        # No key that nobody asked for.
        assert set(answer["output"]) <= set(wanted.model_fields), answer
        assert found.model_fields_set
