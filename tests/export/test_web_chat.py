"""The module's prompts, by Jinja of JavaScript: they are those of this package."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from chat_template.test_chat_template import TEMPLATES
from oxibonsai.chat_template import BUILTIN, ChatTemplate, builtin_template
from oxibonsai.errors import RequestError
from oxibonsai.export import web_folder
from oxibonsai.loading import open_model
from web_folders import SEEDLINGS

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node (Debian: nodejs)")

CONVERSATIONS = [
    [{"role": "user", "content": "Why? <b>&</b>\n 🐢 "}],
    [{"role": "user", "content": "Once upon a time"}],
    [
        {"role": "system", "content": " Be brief. "},
        {"role": "user", "content": "Hi\n"},
        {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\n Hello."},
        {"role": "user", "content": "é \"q\" 'x' \\ "},
    ],
]
# Parts of messages, a variable, and reasoning that is left out of earlier answers.
FURTHER = [
    "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}",
    "{% if enable_thinking is defined and enable_thinking is false %}<no>{% endif %}"
    "{% for m in messages %}{% set text = m.content.split('</think>')[-1].lstrip('\\n') %}"
    "{{ m.role }}:{{ text }}{{ loop.index0 - loop.length }}{% endfor %}",
    "{% for m in messages %}[{{ m.content.strip(' \\n').rstrip('.? ') ~ m['content'].strip() }}]"
    "{% endfor %}",
]


def sources() -> list[str]:
    own = (open_model(SEEDLINGS / f"seedling-{name}.gguf").file for name in ("1bit", "ternary"))
    named = [file.get("tokenizer.chat_template") for file in own]
    return [*map(builtin_template, BUILTIN), *TEMPLATES, *FURTHER, *map(str, named)]


def prompts(folder: Path, requests: list[dict[str, Any]]) -> list[dict[str, str]]:
    web = Path(web_folder.__file__).with_name("web")
    for file in (web / "chat.js", web / "vendor" / "jinja.js"):
        shutil.copy(file, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    script = Path(__file__).with_name("render_templates.mjs")
    done = subprocess.run(
        ["node", str(script), str(folder / "chat.js")],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def test_prompts_are_those_of_this_package(tmp_path: Path) -> None:
    requests: list[dict[str, Any]] = []
    wanted: list[str | None] = []
    for source in sources():
        template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
        described = web_folder.ChatFormat(template).described()
        for messages in CONVERSATIONS:
            taken: list[dict[str, Any]] = messages
            if template.needs_parts:
                parts = [[{"type": "text", "text": m["content"]}] for m in messages]
                taken = [{**m, "content": p} for m, p in zip(messages, parts, strict=True)]
            requests.append(
                {
                    "template": described,
                    "messages": messages,
                    "variables": {"enable_thinking": False},
                }
            )
            try:
                wanted.append(template.render(taken, enable_thinking=False))
            except RequestError:
                wanted.append(None)
    found = prompts(tmp_path, requests)
    assert [a.get("text") for a in found] == wanted
    assert wanted.count(None) == 1  # one format has no system message
    assert "refuses these messages: there is no role system" in found[wanted.index(None)]["error"]


def test_a_template_that_is_none_is_an_error(tmp_path: Path) -> None:
    described = web_folder.ChatFormat(ChatTemplate("{% for %}")).template
    request = {
        "template": {
            "template": described.source,
            "bos_token": "",
            "eos_token": "",
            "needs_parts": False,
        },
        "messages": CONVERSATIONS[0],
    }
    (answer,) = prompts(tmp_path, [request])
    assert answer["error"].startswith("the chat template can't be read: ")
