"""PDF documents in requests: their text is in the prompt, scanned pages are pictures, hostile ones end."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from odd_pictures import drawn
from pdf_files import pdf_file
from PIL import Image
from toy_tower import ToyTower, write_model

from oxibonsai.chat import ChatRequest
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.serial_queue import SerialQueue
from oxibonsai.server import documents
from oxibonsai.server.pdf import PdfReader
from oxibonsai.server.pdf import reader as pdf
from oxibonsai.server.server import Server
from oxibonsai.vision import ImageReader

pytest.importorskip("pypdf", reason="pypdf (extra: pdf) is not installed")

TEXTS = ["The bridge was built in 1932.\nIt is red.", "It was painted again in 1987."]
CONTEXT = f"On bridges.\n{'It was written later. ' * 8}"  # longer than a name, of two lines
ASK = {"type": "text", "text": "When?"}


def data_url(content: bytes) -> str:
    return f"data:application/pdf;base64,{base64.b64encode(content).decode()}"


def part(content: bytes, **more: Any) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": data_url(content), **more}}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("reads")
    write_model(folder / "model.gguf")
    made = make_model_app(folder / "model.gguf", folder, ctx_size=512, parallel=1)
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


def ask(client: FlaskClient, *parts: Any, role: str = "user", status: int = 200) -> Any:
    body = {"messages": [{"role": role, "content": [*parts, ASK]}], "max_tokens": 2}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == status, answer.text
    return answer.get_json() if status == 200 else answer.get_json()["error"]["message"]


@pytest.fixture
def prompts(app: Server, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the prompts that are made."""
    found: list[str] = []
    read = app.submitter.read_chat

    def read_chat(request: ChatRequest, *arguments: Any, **options: Any) -> Any:
        prepared = read(request, *arguments, **options)
        found.append(prepared.prompt)
        return prepared

    monkeypatch.setattr(type(app.submitter), "read_chat", lambda self, *a, **k: read_chat(*a, **k))
    return found


def test_the_text_of_all_pages_stands_where_the_document_was(
    client: FlaskClient, prompts: list[str]
) -> None:
    ask(client, part(pdf_file([*TEXTS]), filename="bridge.pdf"))
    (prompt,) = prompts
    places = [prompt.index(t) for t in ("bridge.pdf, 2 pages", *TEXTS, "When?")]
    assert places == sorted(places)
    assert prompt.index("Page 1:") < prompt.index(TEXTS[0]) < prompt.index("Page 2:")


def test_every_form_gives_the_same_prompt(client: FlaskClient, prompts: list[str]) -> None:
    content = pdf_file([*TEXTS])
    form = {"file": (io.BytesIO(content), "a.pdf"), "purpose": "user_data"}
    uploaded = client.post("/v1/files", data=form, content_type="multipart/form-data")
    file_id = uploaded.get_json()["id"]
    bare = base64.b64encode(content).decode()
    for file in ({"file_data": data_url(content)}, {"file_data": bare}, {"file_id": file_id}):
        ask(client, {"type": "file", "file": file})
        body = {
            "input": [{"role": "user", "content": [
                {"type": "input_file", **file}, {"type": "input_text", "text": "When?"},
            ]}],
            "max_output_tokens": 16,
        }  # fmt: skip
        answer = client.post("/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
    assert len(set(prompts)) == 1


def test_documents_of_anthropics_api_are_read(client: FlaskClient, prompts: list[str]) -> None:
    data = base64.b64encode(pdf_file([*TEXTS])).decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    plain = {"type": "text", "media_type": "text/plain", "data": "It was sold in 2001."}
    content = [
        {"type": "document", "source": source, "title": "bridge.pdf", "context": CONTEXT},
        {"type": "document", "source": plain, "citations": {"enabled": False}},
        ASK,
    ]
    body = {"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": content}]}
    answer = client.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    found = (CONTEXT, "Document bridge.pdf, 2 pages:", *TEXTS, plain["data"], "When?")
    places = [prompts[0].index(t) for t in found]
    assert places == sorted(places)


def test_citations_are_refused(client: FlaskClient) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "It was sold in 2001."}
    document = {"type": "document", "source": source, "citations": {"enabled": True}}
    messages = [{"role": "user", "content": [document, ASK]}]
    answer = client.post(
        "/v1/messages", json={"model": "tiny", "max_tokens": 2, "messages": messages}
    )
    assert answer.status_code == 400
    assert "citations are not supported" in answer.get_json()["error"]["message"]


def test_a_scanned_page_is_a_picture_for_a_model_that_sees(
    app: Server, client: FlaskClient, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = Image.fromarray(drawn(16, 24))
    said = ask(client, part(pdf_file([scan]), filename="scan.pdf"), status=400)
    assert "scan.pdf has no text, only scanned pages" in said
    ask(client, part(pdf_file([TEXTS[0], scan])))
    assert "Page 2 has no text." in prompts[0]
    reader = ImageReader.of_tower(ToyTower())
    monkeypatch.setattr(app.submitter.engine, "image_reader", reader)
    url = io.BytesIO()
    scan.convert("RGB").save(url, "PNG")
    picture = f"data:image/png;base64,{base64.b64encode(url.getvalue()).decode()}"
    text = {"type": "text", "text": "Document the document, 1 page:\n"}
    told = {"type": "text", "text": "Page 1 is a picture:\n"}
    by_hand = ask(client, text, told, {"type": "image_url", "image_url": {"url": picture}})
    read = ask(client, part(pdf_file([scan])))
    assert read["usage"]["prompt_tokens"] == by_hand["usage"]["prompt_tokens"]
    # Pictures of other pixels have keys of their own in the prefix cache.
    assert read["usage"]["prompt_tokens_details"]["cached_tokens"] == 64
    assert prompts[-1] == prompts[-2]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (part(b"no pdf at all"), "is no PDF file"),
        (part(pdf_file([TEXTS[0]])[:400], filename="cut.pdf"), "cut.pdf"),
        (part(pdf_file([TEXTS[0]], password="secret")), "is encrypted"),
        (part(pdf_file(["x"] * 501)), "has 501 pages, more than the 500"),
        ({"type": "file", "file": {"file_data": "data:text/plain;base64,aaaa"}}, "no other kind"),
        ({"type": "file", "file": {"file_data": "%%%"}}, "is not base64"),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,é"}}, "is not base64"),
        ({"type": "file", "file": {"file_id": "file-none"}}, "file-none"),
        ({"type": "file", "file": {}}, "given as file_data"),
        ({"type": "file", "file": "a.pdf"}, "file is not an object"),
        ({"type": "file", "file_url": "http://127.0.0.1:9/a.pdf"}, "file is not an object"),
    ],
)
def test_what_cannot_be_read_is_named(
    client: FlaskClient, given: dict[str, Any], reason: str
) -> None:
    status = 404 if "file-none" in reason else 400
    assert reason in ask(client, given, status=status)


def test_a_document_stands_in_a_message_of_the_user(client: FlaskClient) -> None:
    assert "of the user" in ask(client, part(pdf_file(["x"])), role="system", status=400)


def test_addresses_are_not_fetched(client: FlaskClient) -> None:
    given = {"type": "input_file", "file_url": "http://127.0.0.1:9/a.pdf"}
    body = {"input": [{"role": "user", "content": [given]}]}
    answer = client.post("/v1/responses", json=body)
    assert answer.status_code == 400
    assert "file_url is not fetched" in answer.text


@pytest.fixture
def reader() -> PdfReader:
    return PdfReader(SerialQueue("documents to read", 1))


def test_a_file_that_takes_too_long_or_too_much_memory_ends(
    reader: PdfReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf, "_SECONDS", 1)
    slow = pdf_file(["word " * 2000] * 400)
    with pytest.raises(RequestError, match="takes more than 1 s"):
        reader.pages("slow.pdf", slow, scans=False)
    monkeypatch.setattr(pdf, "_SECONDS", 30)
    monkeypatch.setattr(pdf, "_MEMORY_BYTES", 48 << 20)
    with pytest.raises(RequestError, match=r"^large\.pdf "):
        reader.pages("large.pdf", slow, scans=False)


def test_what_a_file_unpacks_to_is_bounded(
    reader: PdfReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf, "MOST_PAGE_BYTES", 64)
    with pytest.raises(RequestError, match="MiB of pages that are read"):
        reader.pages("large.pdf", pdf_file(["word " * 20]), scans=False)
    noise = Image.fromarray(drawn(16, 24))
    with pytest.raises(RequestError, match="MiB of pages that are read"):
        reader.pages("large.pdf", pdf_file([noise]), scans=True)


def test_a_process_that_ends_within_a_line_is_no_error_of_the_server(
    reader: PdfReader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "killed.py"
    script.write_text("print('{\"text\": \"wor', end='', flush=True); raise SystemExit(137)")
    monkeypatch.setattr(pdf, "_SCRIPT", script)
    with pytest.raises(RequestError, match="takes more than"):
        reader.pages("slow.pdf", pdf_file(["x"]), scans=False)


def test_documents_of_a_request_are_bounded_together(
    reader: PdfReader, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = part(pdf_file(["word " * 20]))
    assert "there are 101 documents" in ask(client, *[one] * 101, status=400)
    monkeypatch.setattr(documents, "MOST_PAGE_BYTES", 200)
    assert "the documents have more than" in ask(client, one, one, one, status=400)
    allowance = pdf.Allowance(1e-3)
    content = pdf_file(["x"])
    first = reader.pages("a.pdf", content, scans=False, allowance=allowance)
    with pytest.raises(RequestError, match=r"^b\.pdf is not read"):
        reader.pages("b.pdf", pdf_file(["y"]), scans=False, allowance=allowance)
    # What was read before takes no time.
    assert reader.pages("a.pdf", content, scans=False, allowance=allowance) is first


def test_a_document_of_every_turn_is_read_once(
    reader: PdfReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = pdf_file([*TEXTS])
    first = reader.pages("a.pdf", content, scans=False)
    monkeypatch.setattr(pdf, "_read", lambda *_, **__: pytest.fail("it was read again"))
    assert reader.pages("a.pdf", content, scans=False) is first


def test_without_pypdf_the_extra_is_named(
    reader: PdfReader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pypdf.py").write_text("raise ModuleNotFoundError(name='pypdf')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match=r"oxibonsai\[pdf\]"):
        reader.pages("a.pdf", pdf_file(["x"]), scans=False)
