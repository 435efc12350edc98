"""``--image`` and ``/image``: pictures of files, with what is wrong in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from odd_pictures import ODD_PICTURES, drawn, saved
from PIL import Image
from toy_tower import ToyTower, write_model

import oxibonsai
from oxibonsai.chat import ChatRequest
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.cli import chat as chat_command
from oxibonsai.cli import run as run_command
from oxibonsai.cli.conversation import Conversation
from oxibonsai.cli.main import main
from oxibonsai.engine import Engine, Options
from oxibonsai.errors import RequestError
from oxibonsai.sampling import SamplingParams
from oxibonsai.vision import ImageReader


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("sees") / "model.gguf"
    write_model(path)
    engine = oxibonsai.load(path)
    engine.image_reader = ImageReader.of_tower(ToyTower())
    return engine


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "cat, dog.png"
    path.write_bytes(saved(Image.fromarray(drawn(16, 24))))
    return path


def conversation(engine: Engine) -> Conversation:
    template = ChatTemplate(engine.model.weights.checkpoint.file.get("tokenizer.chat_template"))
    params = SamplingParams(max_tokens=2, seed=1)
    return Conversation(engine, template, params, Options(), ChatRequest([]), as_json=True)


def test_a_picture_goes_with_the_next_message_alone(
    engine: Engine, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = conversation(engine)
    assert chat_command._command(talk, f"/image {picture}") == (
        "[cat, dog.png, 24 x 16, goes with the next message]"
    )
    talk.answer("What is this?")
    talk.answer("Really?")
    counts = [json.loads(line)["prompt_tokens"] for line in capsys.readouterr().out.splitlines()]
    parts = talk.messages[0]["content"]
    assert [part["type"] for part in parts] == ["image", "text"]
    assert talk.messages[2]["content"] == "Really?"
    assert counts[1] > counts[0] > 8 + len("What is this?")
    talk.answer_again()
    assert talk.messages[2]["content"] == "Really?"
    with pytest.raises(RequestError, match="with pictures"):
        talk.save(Path("x.json"))
    talk.show(picture)
    talk.reset()
    assert (talk.messages, talk.images) == ([], [])


def test_a_picture_is_found_by_the_name_that_a_terminal_writes(
    engine: Engine, tmp_path: Path
) -> None:
    talk = conversation(engine)
    cat = tmp_path / "it's a cat.png"
    cat.write_bytes(ODD_PICTURES["square"])
    (tmp_path / "b\x1b[31mred.png").write_bytes(ODD_PICTURES["square"])
    escaped = str(cat).replace("'", r"\'").replace(" ", r"\ ")
    for name in (str(cat), f'"{cat}"', escaped):
        assert chat_command._command(talk, f"/image {name}").startswith("[it's a cat.png, ")
    said = chat_command._command(talk, f"/image {tmp_path / 'b'}\x1b[31mred.png")
    assert said.startswith(r"[b\x1b[31mred.png, ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("https://example.com/a,b.png", "https://example.com/a,b.png is an address"),
        ("data:image/png;base64,AAAA", "is an address"),
        ("", "needs the name of its file"),
        ("a.png,", "needs the name of its file"),
        ("a.png, none.png", "cannot read the picture none.png: No such file"),
        ("it's.png", "cannot read the picture it's.png: No such file"),
    ],
)
def test_what_names_no_file_is_said_before_the_model_is_loaded(
    name: str, message: str, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(picture.parent)
    picture.rename("a.png")
    monkeypatch.setattr(run_command, "load_engine", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(RequestError) as raised:
        CliRunner().invoke(run_command.run, ["--image", name, "Hi"], catch_exceptions=False)
    assert message in str(raised.value)


def test_a_picture_where_the_text_belongs_is_not_read_as_text(
    picture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_command, "load_engine", lambda *_, **__: pytest.fail("loaded"))
    given = ["--image", str(picture), str(picture)]
    with pytest.raises(RequestError, match="is a picture, where a text belongs"):
        CliRunner().invoke(run_command.run, given, catch_exceptions=False)
    monkeypatch.setattr("sys.argv", ["oxibonsai", "run", *given, "What are these?"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "each picture takes an --image of its own" in capsys.readouterr().err


def test_what_is_no_picture_is_said_at_once(engine: Engine, tmp_path: Path) -> None:
    talk = conversation(engine)
    (tmp_path / "page.png").write_bytes(b"<html></html>")
    (tmp_path / "cut.png").write_bytes(ODD_PICTURES["square"][:200])
    for name, message in (
        ("page.png", "HTML"),
        ("cut.png", "damaged"),
        ("none.png", "No such file"),
    ):
        with pytest.raises(RequestError, match=message):
            chat_command._command(talk, f"/image {tmp_path / name}")
    with pytest.raises(RequestError, match="needs a file name"):
        chat_command._command(talk, "/image")
    assert talk.images == []


def test_run_takes_pictures(engine: Engine, picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "load_engine", lambda *_, **__: engine)
    common = ["--max-tokens", "2", "--seed", "1", "--json", "What is this?"]

    def count(*options: str) -> int:
        done = CliRunner().invoke(run_command.run, [*options, *common], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return len(json.loads(done.stdout)["prompt_tokens"])

    plain, one = count(), count("--image", str(picture))
    assert one == plain + 6 + 2
    plain_name = picture.with_name("b.png")
    plain_name.write_bytes(picture.read_bytes())
    assert count("--image", str(picture), "--image", str(plain_name)) == plain + 2 * 8
    assert count("--image", f"{plain_name},{plain_name}") == plain + 2 * 8
    beams = [
        "--beams",
        "2",
        "--image",
        str(picture),
        "--max-tokens",
        "2",
        "--json",
        "What is this?",
    ]
    found = CliRunner().invoke(run_command.run, beams, catch_exceptions=False)
    assert len(json.loads(found.stdout)["prompt_tokens"]) == one
    for options, message in (
        (["--raw", "--image", str(picture)], "--raw takes no --image"),
        (["--image", "/nowhere.png"], "cannot read the picture"),
    ):
        with pytest.raises(RequestError, match=message):
            CliRunner().invoke(run_command.run, [*options, *common], catch_exceptions=False)
    monkeypatch.setattr(engine, "image_reader", None)
    with pytest.raises(RequestError, match="--mmproj"):
        CliRunner().invoke(
            run_command.run, ["--image", str(picture), *common], catch_exceptions=False
        )
