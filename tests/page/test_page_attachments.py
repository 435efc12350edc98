"""Files beside a message: texts, and pictures where the model sees them."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys

from page.fake_api import FakeApi
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
AS_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"

# Hands files to the page as a paste or a drop would; no driver can reach the system's clipboard.
GIVE = """
const [kind, name, type, base64] = arguments;
const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
const data = new DataTransfer();
data.items.add(new File([bytes], name, { type }));
const draft = document.querySelector("#draft");
const event = kind === "paste"
  ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })
  : new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
draft.dispatchEvent(event);
return event.defaultPrevented;
"""


def attach(visitor: Visitor, name: str, data: bytes) -> None:
    path = visitor.folder / name
    path.write_bytes(data)
    visitor.one("#files").send_keys(str(path))


def chips(visitor: Visitor) -> list[str]:
    return visitor.texts("#attached .file span")


def test_a_text_file_goes_with_the_message(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    attach(visitor, "notes.md", "# Häuser".encode())
    visitor.wait(lambda: chips(visitor) == ["notes.md"])
    visitor.ask("What is this?")
    content = "What is this?\n\n--- File: notes.md ---\n# Häuser"
    assert api.requests[0]["messages"] == [{"role": "user", "content": content}]
    assert visitor.text(".user .file") == "notes.md"
    assert chips(visitor) == []
    visitor.reload()
    assert visitor.text(".user .file") == "notes.md"
    assert visitor.questions == ["What is this?"]


def test_a_file_alone_can_be_sent_and_one_taken_away(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    attach(visitor, "a.txt", b"first")
    attach(visitor, "b.txt", b"second")
    visitor.wait(lambda: len(chips(visitor)) == 2)
    visitor.js("document.querySelector('#attached button').click()")
    assert chips(visitor) == ["b.txt"]
    visitor.keys(Keys.ENTER)
    visitor.finish()
    assert api.requests[0]["messages"][0]["content"] == "--- File: b.txt ---\nsecond"


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.bin", b"\xff\xfe\x00", "is no text"),
        ("a.txt", b"a\x00b", "is no text"),
        ("big.txt", b"a" * 1_000_001, "larger than 1 MB"),
        ("a.png", PNG, "This model can't see pictures"),
    ],
)
def test_what_the_model_could_not_read_is_refused(
    visit: Visit, name: str, data: bytes, why: str
) -> None:
    visitor = visit()
    attach(visitor, name, data)
    visitor.wait(lambda: why in visitor.notice)
    assert name in visitor.notice
    assert chips(visitor) == []


@pytest.mark.parametrize("kind", ["chosen", "paste", "drop"])
def test_a_model_that_sees_gets_the_picture(visit: Visit, api: FakeApi, kind: str) -> None:
    api.vision = True
    visitor = visit()
    if kind == "chosen":
        attach(visitor, "dot.png", PNG)
    else:
        encoded = base64.b64encode(PNG).decode()
        assert visitor.js(GIVE, kind, "dot.png", "image/png", encoded)
    visitor.wait(lambda: chips(visitor) == ["dot.png"])
    visitor.wait(lambda: visitor.js("return document.querySelector('#attached img').naturalWidth"))
    visitor.ask("What is this?")
    parts = [
        {"type": "image_url", "image_url": {"url": AS_URL}},
        {"type": "text", "text": "What is this?"},
    ]
    assert api.requests[0]["messages"] == [{"role": "user", "content": parts}]
    visitor.reload()
    visitor.wait(lambda: visitor.js("return document.querySelector('.user img').naturalWidth"))
    visitor.ask("And?")
    assert api.requests[1]["messages"][0]["content"] == parts
    assert visitor.complaints() == []


def bring_back(visitor: Visitor, path: Path) -> None:
    """Deletes all conversations, then opens that of a file."""
    visitor.click("#clear")
    visitor.chromium.switch_to.alert.accept()
    visitor.wait(lambda: visitor.questions == [])
    visitor.one("#import-file").send_keys(str(path))
    visitor.wait(lambda: "imported" in visitor.notice)
    visitor.click("#conversations .open")


def test_a_pdf_document_goes_with_the_message_and_travels_with_an_export(
    visit: Visit, api: FakeApi
) -> None:
    data = b"%PDF-1.4 which the server reads"
    url = f"data:application/pdf;base64,{base64.b64encode(data).decode()}"
    visitor = visit()
    attach(visitor, "letter.pdf", data)
    visitor.wait(lambda: chips(visitor) == ["letter.pdf"])
    assert visitor.text("#attached b") == "PDF"
    visitor.ask("What does it say?")
    parts = [
        {"type": "file", "file": {"filename": "letter.pdf", "file_data": url}},
        {"type": "text", "text": "What does it say?"},
    ]
    assert api.requests[0]["messages"] == [{"role": "user", "content": parts}]
    visitor.reload()
    assert visitor.text(".user .file span") == "letter.pdf"
    visitor.ask("And?")
    assert api.requests[1]["messages"][0]["content"] == parts
    path = visitor.save("#export", "conversations.json")
    exported = json.loads(path.read_text())
    assert exported[0]["messages"][0]["attachments"] == [{"name": "letter.pdf", "document": url}]
    bring_back(visitor, path)
    visitor.ask("Again")
    assert api.requests[2]["messages"][0]["content"] == parts


def test_pictures_travel_with_an_export(visit: Visit, api: FakeApi) -> None:
    api.vision = True
    visitor = visit()
    attach(visitor, "dot.png", PNG)
    visitor.wait(lambda: chips(visitor) == ["dot.png"])
    visitor.ask("?")
    path = visitor.save("#export", "conversations.json")
    exported = json.loads(path.read_text())
    assert exported[0]["messages"][0]["attachments"] == [{"name": "dot.png", "picture": AS_URL}]
    bring_back(visitor, path)
    visitor.wait(lambda: visitor.js("return document.querySelector('.user img')?.naturalWidth"))


def png_of(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "green").save(file, "PNG")
    return file.getvalue()


BOXES = """
return [...document.querySelectorAll(".user .file, .user .file img")].map((part) => {
  const { left, right, width } = part.getBoundingClientRect();
  return [left, right, width];
});
"""


def test_pictures_of_any_shape_fit_into_a_narrow_window(visit: Visit, api: FakeApi) -> None:
    api.vision = True
    visitor = visit(width=390)
    names = ["a name that is longer than the window of a telephone is wide.png", "b.png", "c.png"]
    for name, size in zip(names, [(400, 300), (4, 4000), (4000, 4)], strict=True):
        attach(visitor, name, png_of(*size))
    visitor.wait(lambda: chips(visitor) == names)
    visitor.ask("What are these?")
    loaded = "return [...document.querySelectorAll('.user img')].every((i) => i.naturalWidth)"
    visitor.wait(lambda: visitor.js(loaded))
    boxes = visitor.js(BOXES)
    assert len(boxes) == 6
    assert all(left >= 0 and right <= 390 and width >= 40 for left, right, width in boxes)
    assert visitor.js("return document.querySelector('#latest').hidden"), "the answer is in view"
