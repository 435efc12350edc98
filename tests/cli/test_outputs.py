"""Every file that a command writes: into devices, pipes, links, stdout, full disks, read-only folders.

The options come from the tree of commands: a new one without a case here fails.
"""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import lying_server
import pytest

from loadtest.fake_server import FakeServer, running
from oxibonsai import AutoModelForCausalLM
from oxibonsai.cli.main import COMMANDS, _group, _run
from oxibonsai.cli.output import OutputFile, OutputFolder
from oxibonsai.split import split

GGUF, PNG, SNAPSHOT = b"GGUF\3", b"\x89PNG", b"OXISNAP\n"
TEXT = "The quick brown fox jumps over the lazy dog. " * 40
DOWNLOADED = bytes(range(256)) * 1000

# Paths that a command only reads. All others are outputs, and have the types that this test knows.
READ = {
    "config", "file", "files", "chat_template_file", "tools", "load_path", "prompt_file", "image",
    "batch_prompts_file", "config_from_metadata", "references", "folder", "prompts", "kl_base",
    "imatrix_path", "texts", "tokenizer", "held_out", "init", "teacher", "system_prompt_file",
    "mcp_servers_config", "include_path", "data", "core", "calibration", "calibration_text",
    "all_logits",  # of llama-perplexity, which writes it, too: then it becomes an OutputFile
}  # fmt: skip


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    """All options and arguments, each with the name of its command."""

    def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
        if isinstance(command, click.Group):
            for part, inner in command.commands.items():
                yield from walk(f"{name} {part}", inner)
        for parameter in command.params:
            yield name, parameter

    group = _group()
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from walk(name, command)


def of_type(kind: type[click.Path]) -> set[tuple[str, str]]:
    return {(name, p.name or "") for name, p in parameters() if isinstance(p.type, kind)}


@dataclass(frozen=True)
class World:
    """What the commands read."""

    folder: Path
    model: Path
    shard: Path
    saved: Path
    text: Path
    server: str
    web: str


@pytest.fixture(scope="module")
def world(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    (folder / "text.txt").write_text(TEXT)
    AutoModelForCausalLM.from_pretrained(tiny_path).save_pretrained(folder / "saved")
    shard = split(tiny_path, folder / "m", max_tensors=10)[0]
    with running(FakeServer()) as fake, lying_server.running() as web:
        web.script = [lying_server.serve(DOWNLOADED)]
        yield World(
            folder, tiny_path, shard, folder / "saved", folder / "text.txt", fake.url, web.url
        )


@dataclass(frozen=True)
class Case:
    """How a command writes a file.

    Attributes:
        line: Its arguments, where the file's name is ``OUT``.
        begins: The first bytes of what it writes.
        stdin: What it is given.
    """

    line: Callable[[World], list[Any]]
    begins: bytes
    stdin: str = ""

    def run(self, world: World, out: Path | str, monkeypatch: pytest.MonkeyPatch) -> int:
        monkeypatch.setattr("sys.stdin", io.StringIO(self.stdin))
        return _run([str(out) if part == "OUT" else str(part) for part in self.line(world)])


BENCH = ["--max-tokens", 2, "--concurrency", 1, "--requests", 1, "--warmup", 0]
IMAGE = ["image", "-m", "seedling-picture", "-p", "a", "--seed", 1, "--steps", 1, "-o", "OUT"]
CASES = {
    ("chat", "save_path"): Case(
        lambda w: ["chat", "-m", w.model, "-n", 2, "--save", "OUT"], SNAPSHOT, "ab\n/exit\n"
    ),
    ("image", "output"): Case(lambda w: IMAGE, PNG),
    ("pull", "output"): Case(lambda w: ["pull", w.web, "-o", "OUT"], DOWNLOADED),
    ("bench serve", "json_file"): Case(
        lambda w: ["bench", "serve", "--url", w.server, *BENCH, "--json", "OUT"], b'{\n  "'
    ),
    ("bench serve", "plot_file"): Case(
        lambda w: ["bench", "serve", "--url", w.server, *BENCH, "--plot", "OUT"], PNG
    ),
    ("perplexity", "save_kl_base"): Case(
        lambda w: ["perplexity", w.model, "-f", w.text, "-c", 32, "--chunks", 2, "--save-kl-base", "OUT"],
        b"_logits_",
    ),
    ("compare", "output"): Case(
        lambda w: ["compare", w.model, w.model, "-f", w.text, "-c", 32, "--chunks", 2, "-p", 0,
                   "-n", 0, "--no-plots", "-o", "OUT"], b"# Comparison",
    ),
    ("imatrix", "out"): Case(
        lambda w: ["imatrix", w.model, "-f", w.text, "-c", 32, "--chunks", 3, "-o", "OUT",
                   "--output-frequency", 1], GGUF,
    ),
    ("convert", "out"): Case(lambda w: ["convert", w.saved, "OUT"], GGUF),
    ("convert", "outfile"): Case(lambda w: ["convert", w.saved, "--outfile", "OUT"], GGUF),
    ("quantize", "out"): Case(lambda w: ["quantize", w.model, "OUT", "Q8_0"], GGUF),
    ("prune", "out"): Case(lambda w: ["prune", w.model, "OUT", "--prune-layers", 0], GGUF),
    ("merge", "out"): Case(lambda w: ["merge", w.shard, "OUT"], GGUF),
}  # fmt: skip


@pytest.fixture(params=sorted(CASES), ids=" ".join)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    found = CASES[request.param]
    if found.begins == PNG and request.param[0] == "bench serve":
        pytest.importorskip("matplotlib", reason="plots need the bench extra")
    return found


@pytest.fixture
def node(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a device like one of /dev; it may be lost, which those may not."""

    def make(name: str) -> Path:
        path = tmp_path / f"{name}.png"
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.stat(f"/dev/{name}").st_rdev)
            path.open("wb", buffering=0).close()
        except PermissionError:
            pytest.skip("devices can be made and opened here by nobody")
        return path

    return make


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two pages; what is mounted is unmounted again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=8k", "none", disk]
    if subprocess.run(line, capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def remount_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


def test_every_output_has_a_case() -> None:
    taken_apart = {("quantize", "out")}  # among the words of llama-quantize
    assert of_type(OutputFile) | taken_apart == set(CASES)
    assert of_type(OutputFolder) == {
        ("split", "out"), ("train", "out"), ("image", "steps_folder"), ("eval", "output"),
        ("merge-models", "out"), ("finetune", "out"), ("distill", "out"), ("export-web", "out"),
    }  # fmt: skip


def test_every_path_is_an_output_or_is_only_read() -> None:
    others = of_type(click.Path) - of_type(OutputFile) - of_type(OutputFolder)
    assert {name for _, name in others} == READ


def test_a_device_stays_one(
    case: Case, world: World, node: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    null = node("null")
    assert case.run(world, null, monkeypatch) == 0
    assert stat.S_ISCHR(null.stat().st_mode)
    assert [p.name for p in null.parent.iterdir()] == [null.name]


def test_a_pipe_stays_one_and_gets_the_file(
    case: Case, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert case.run(world, pipe, monkeypatch) == 0
    reader.join()
    assert read[0].startswith(case.begins)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to none yet"])
def test_a_link_stays_one_and_its_target_is_replaced(
    case: Case, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if there and case is CASES["image", "output"]:
        pytest.skip("a picture that is there is kept")
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "link.png", tmp_path / "far" / "target.png"
    link.symlink_to(Path("far") / "target.png")
    if there:
        target.write_text("old")
        target.chmod(0o600)
    assert case.run(world, link, monkeypatch) == 0
    assert link.is_symlink()
    assert target.read_bytes().startswith(case.begins)
    assert [p.name for p in target.parent.iterdir()] == ["target.png"]
    if there:
        assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_holds_the_file_and_nothing_else(
    case: Case,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert case.run(world, name, monkeypatch) == 0
    piped = capfdbinary.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert case.run(world, tmp_path / "file.png", monkeypatch) == 0
    whole = (tmp_path / "file.png").read_bytes()
    if case.begins in (GGUF, DOWNLOADED, b"_logits_"):
        assert piped == whole  # the others hold times, or a drawn seed
    assert piped.startswith(case.begins)
    assert piped.endswith({PNG: b"IEND\xaeB`\x82", b'{\n  "': b"}\n"}.get(case.begins, b""))


def test_standard_output_that_is_appended_to_keeps_what_it_has(
    world: World, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"before")
    line = ["python", "-m", "oxibonsai", "merge", str(world.shard), "-"]
    with log.open("ab") as out:
        subprocess.run(line, stdout=out, check=True)
    assert log.read_bytes().startswith(b"before" + GGUF)


def test_a_full_device_is_one_sentence(
    case: Case,
    world: World,
    node: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = node("full")
    assert case.run(world, full, monkeypatch) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last == f"oxibonsai: cannot write {full}: No space left on device"
    assert stat.S_ISCHR(full.stat().st_mode)


def test_a_full_disk_is_one_sentence_and_keeps_nothing(
    case: Case,
    world: World,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if case.begins not in (GGUF, DOWNLOADED, b"_logits_"):  # all others are small
        (small_disk / "filler").write_bytes(bytes(8192))
    assert case.run(world, small_disk / "file.png", monkeypatch) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("oxibonsai: ")
    assert "room" in last or "No space left on device" in last
    assert str(small_disk) in last
    assert {p.name for p in small_disk.iterdir()} <= {"filler"}


def test_a_read_only_folder_is_one_sentence(
    case: Case,
    world: World,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    remount_read_only(small_disk)
    assert case.run(world, small_disk / "file.png", monkeypatch) == 1
    *_, last = capsys.readouterr().err.splitlines()
    place = small_disk / "file.png"
    assert last == f"oxibonsai: cannot write {place}: the folder {small_disk} is read-only"


def test_a_device_in_a_read_only_folder_is_written_to(
    world: World, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        os.mknod(small_disk / "null", 0o666 | stat.S_IFCHR, os.stat("/dev/null").st_rdev)
        subprocess.run(["mount", "-o", "remount,dev", small_disk], check=True)
        (small_disk / "null").open("wb").close()
    except PermissionError:
        pytest.skip("devices can be made and opened here by nobody")
    remount_read_only(small_disk)
    assert CASES["merge", "out"].run(world, small_disk / "null", monkeypatch) == 0


def test_links_in_a_circle_are_one_sentence(
    case: Case,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.png").symlink_to("b.png")
    (tmp_path / "b.png").symlink_to("a.png")
    assert case.run(world, tmp_path / "a.png", monkeypatch) in (1, 2)
    *_, last = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "a.png") in last


def test_a_picture_makes_no_folder_unasked(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [str(tmp_path / "missing" / "x.png") if x == "OUT" else str(x) for x in IMAGE]
    assert _run(line) == 2
    assert f"there is no folder {tmp_path / 'missing'}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "sentence"),
    [(["--seed", "1,2"], "takes one picture"), (["--metadata"], "--metadata is a file beside")],
)
def test_standard_output_takes_one_picture_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run([*("-" if x == "OUT" else str(x) for x in IMAGE), *more]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_previews_and_what_is_beside_a_picture_follow_links(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "steps").symlink_to("far")
    beside = tmp_path / "x.metadata.json"
    beside.symlink_to("far/record.json")
    line = [str(tmp_path / "x.png") if x == "OUT" else str(x) for x in IMAGE]
    steps = ["--stepwise-image-output-dir", str(tmp_path / "steps")]
    assert _run([*line, "--metadata", *steps]) == 0
    assert beside.is_symlink()
    assert {p.name for p in (tmp_path / "far").iterdir()} == {"record.json", "x_step1of1.png"}
    assert json.loads((tmp_path / "far" / "record.json").read_text())["seed"] == 1


def run_split(world: World, out: Path | str) -> int:
    return _run(["split", str(world.model), str(out), "--max-tensors", "15"])


def run_train(world: World, out: Path | str) -> int:
    import small_texts

    texts, tokenizer = world.folder / "texts.jsonl", world.folder / "tokenizer"
    if not tokenizer.exists():
        small_texts.write_texts(texts, 20, seed=1)
        small_texts.write_tokenizer(tokenizer)
    sizes = ["--steps", 2, "--warmup", 1, "--batch", 2, "--context", 16, "--layers", 1, "--heads", 1,
             "--kv-heads", 1, "--ffn-size", 128, "--hidden-size", 128]  # fmt: skip
    return _run(list(map(str, ["train", texts, out, "--tokenizer", tokenizer, *sizes])))


def run_steps(world: World, out: Path | str) -> int:
    line = ["/dev/null" if x == "OUT" else str(x) for x in IMAGE]
    return _run([*line, "--stepwise-image-output-dir", str(out)])


def run_eval(world: World, out: Path | str) -> int:
    tasks = world.folder / "tasks"
    if not tasks.exists():
        tasks.mkdir()
        data = tasks / "data.jsonl"
        data.write_text('{"question": "a", "choices": ["b", "c"]}\n')
        lines = {
            "task": "one_choice", "dataset_path": "json", "test_split": "test",
            "dataset_kwargs": {"data_files": {"test": str(data)}}, "output_type": "multiple_choice",
            "doc_to_text": "{{question}}", "doc_to_choice": "{{choices}}", "doc_to_target": 0,
        }  # fmt: skip
        (tasks / "one.yaml").write_text(json.dumps(lines))  # which is YAML, too
    line = ["eval", str(world.model), "--tasks", "one_choice", "--include-path", str(tasks)]
    return _run([*line, "-o", str(out)])


def run_merge_models(world: World, out: Path | str) -> int:
    config = world.folder / "merge.yaml"
    models = [{"model": str(world.model), "parameters": {"weight": 1.0}}]
    config.write_text(json.dumps({"merge_method": "linear", "dtype": "float32", "models": models}))
    return _run(["merge-models", str(config), str(out)])


def run_finetune(world: World, out: Path | str) -> int:
    data = world.folder / "data.jsonl"
    data.write_text('{"text": "One two."}\n')
    return _run(["finetune", str(world.model), str(data), str(out), "--steps", "1"])


def run_distill(world: World, out: Path | str) -> int:
    data = world.folder / "data.jsonl"
    data.write_text('{"text": "One two."}\n')
    return _run(["distill", str(world.model), str(data), str(out), "--steps", "1"])


def run_export_web(world: World, out: Path | str) -> int:
    core = world.folder / "core"
    core.mkdir(exist_ok=True)
    for name in ("core.mjs", "core.wasm"):
        (core / name).touch()
    return _run(["export-web", str(world.model), str(out), "--core", str(core)])


FOLDERS = {("split", "out"): run_split, ("train", "out"): run_train,
           ("image", "steps_folder"): run_steps, ("eval", "output"): run_eval,
           ("merge-models", "out"): run_merge_models,
           ("finetune", "out"): run_finetune, ("distill", "out"): run_distill,
           ("export-web", "out"): run_export_web}  # fmt: skip
Write = Callable[[World, "Path | str"], int]


@pytest.fixture(params=sorted(FOLDERS), ids=" ".join)
def write(request: pytest.FixtureRequest) -> Write:
    if request.param[0] == "eval":
        pytest.importorskip("lm_eval", reason="needs the extra eval")
    if request.param[0] in ("finetune", "distill"):
        for name in ("torch", "transformers", "peft", "matplotlib"):
            pytest.importorskip(name, reason="training needs the extra finetune")
    if request.param[0] == "merge-models":
        pytest.importorskip("mergekit", reason="needs the extra merge")
    if request.param[0] == "train":
        for name in ("torch", "transformers", "matplotlib"):
            pytest.importorskip(name, reason="training needs the train extra")
    return FOLDERS[request.param]


def test_every_folder_has_a_case() -> None:
    assert of_type(OutputFolder) == set(FOLDERS)


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_several_files_do_not_go_to_standard_output(
    write: Write,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert write(world, name) == 2
    assert f"{name} is standard output, but several files are written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_several_files_go_through_a_link_to_a_folder(
    write: Write, world: World, tmp_path: Path
) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far")
    place = tmp_path / "link"
    assert write(world, place / "m" if write is run_split else place) == 0
    assert place.is_symlink()
    assert len(list((tmp_path / "far").iterdir())) >= 1


def test_several_files_on_a_read_only_disk_are_one_sentence(
    write: Write, world: World, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remount_read_only(small_disk)
    assert write(world, small_disk / "m") == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("oxibonsai: ")
    assert str(small_disk) in last
    assert "read-only" in last.lower()


def test_several_files_on_a_full_disk_are_one_sentence(
    write: Write, world: World, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_disk / "filler").write_bytes(bytes(4096))
    assert write(world, small_disk / "m") == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("oxibonsai: ")
    assert "No space left on device" in last
    assert not list(small_disk.glob("**/*.part"))


@pytest.mark.parametrize("write", [run_train, run_steps])
def test_a_pipe_is_no_folder_and_stays_one(
    write: Write, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if write is run_train:
        pytest.importorskip("torch", reason="training needs the train extra")
    os.mkfifo(tmp_path / "pipe")
    assert write(world, tmp_path / "pipe") in (1, 2)
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("oxibonsai: ")
    assert str(tmp_path / "pipe") in last
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_shards_go_through_links_pipes_and_devices_of_their_names(
    world: World, tmp_path: Path, node: Callable[[str], Path]
) -> None:
    assert run_split(world, tmp_path / "plain") == 0
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    first.symlink_to("target.gguf")
    os.mkfifo(second)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(second.read_bytes()))
    reader.start()
    assert run_split(world, tmp_path / "m") == 0
    reader.join()
    plain = [(tmp_path / f"plain-0000{i}-of-00002.gguf").read_bytes() for i in (1, 2)]
    assert [(tmp_path / "target.gguf").read_bytes(), read[0]] == plain
    assert first.is_symlink()
    null = node("null")
    first.unlink()
    null.rename(first)
    second.unlink()
    assert run_split(world, tmp_path / "m") == 0
    assert stat.S_ISCHR(first.stat().st_mode)
    assert second.read_bytes() == plain[1]
