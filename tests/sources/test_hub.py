"""Models from the hub, against a local server: choice, resume, refusals, the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hf_folders
import hub_server
import pytest

from oxibonsai.sources.file_choice import preferred

RESOLVE = (
    "import sys; from oxibonsai.sources import resolve; from oxibonsai.errors import SourceError\n"
    "try: print(resolve(sys.argv[1]))\n"
    "except SourceError as e: print('refused:', e)"
)
SHARDS = [f"q/m-Q1_0-{i:05d}-of-00003.gguf" for i in (1, 2, 3)]
NOBODY = "http://127.0.0.1:9"  # the port to discard to, on which nobody listens
DATA = bytes(range(256)) * 100_000  # two and a half of the pieces that huggingface_hub writes


@pytest.fixture
def hub() -> Iterator[hub_server.Hub]:
    with hub_server.running() as hub:
        hub.repositories["org/model"] = {
            "README.md": b"x",
            "model-Q1_0.gguf": DATA,
            "model-Q2_0.gguf": b"two",
            "sub/model-F16.gguf": b"half",
            "mmproj-model.gguf": b"eyes",
        }
        hub.repositories["org/twins"] = {"m.gguf": b"top", "sub/m.gguf": b"below"}
        hub.repositories["org/split"] = {name: name[4:9].encode() for name in SHARDS}
        hub.repositories["org/one"] = {"only.gguf": b"one", "config.json": b"{}"}
        yield hub


def resolve(hub: hub_server.Hub, source: str, home: Path, **environment: str) -> str:
    """What a fresh process resolves: huggingface_hub reads its settings when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, source],
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("hf:org/one", b"one"),
        ("hf:org/model:Q1_0", DATA),
        ("hf:org/model:q2_0", b"two"),
        ("hf:org/model:model-Q2_0.gguf", b"two"),
        ("hf:org/model:sub/model-F16.gguf", b"half"),
        ("hf:org/model:F16", b"half"),
        ("hf:org/twins:m.gguf", b"top"),
        ("hf:org/twins:sub/m.gguf", b"below"),
    ],
)
def test_a_model_is_found_and_fetched(
    hub: hub_server.Hub, source: str, content: bytes, tmp_path: Path
) -> None:
    path = Path(resolve(hub, source, tmp_path))
    assert path.read_bytes() == content
    count = len(hub.requests)
    assert resolve(hub, source, tmp_path) == str(path)
    assert not any(r.startswith("GET /org") for r in hub.requests[count:])  # from the cache


BONSAI2 = "hf:prism-ml/Ternary-Bonsai-2-9B-gguf"
PACKINGS = {
    "Ternary-Bonsai-2-9B-PQ2_0.gguf": b"two bits",
    "Ternary-Bonsai-2-9B-PTQ1_0.gguf": b"base 3",
    "Ternary-Bonsai-2-9B-dspark-Q4_1.gguf": b"a drafter",
    "Ternary-Bonsai-2-9B-eagle3-F16.gguf": b"another drafter",
    "Ternary-Bonsai-2-9B-mmproj-Q8_0.gguf": b"eyes",
}


@pytest.mark.parametrize(
    ("size", "content", "reason"),
    [
        (8, b"two bits", "PQ2_0.gguf (PQ2_0 is read faster than PTQ1_0, and fits)"),
        (10**15, b"base 3", "PTQ1_0.gguf (PTQ1_0 is smaller than PQ2_0, whose 1000000.00 GB leave"),
    ],
)
def test_of_several_packings_memory_and_speed_choose_and_it_is_said(
    hub: hub_server.Hub, size: int, content: bytes, reason: str, tmp_path: Path
) -> None:
    hub.repositories["prism-ml/Ternary-Bonsai-2-9B-gguf"] = dict(PACKINGS)
    hub.sizes["Ternary-Bonsai-2-9B-PQ2_0.gguf"] = size
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, BONSAI2],
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    path = Path(done.stdout.strip())
    assert path.read_bytes() == content
    assert f"{BONSAI2}: Ternary-Bonsai-2-9B-{reason}" in done.stderr
    # The cache stands in for the hub, and a choice goes before the preference.
    assert resolve(hub, BONSAI2, tmp_path, HF_HUB_OFFLINE="1") == str(path)
    other = Path(resolve(hub, f"{BONSAI2}:PTQ1_0", tmp_path))
    assert other.read_bytes() == b"base 3"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["a-PQ2_0.gguf", "a-Q2_0.gguf", "a-Q2_0_g64.gguf"], "a-PQ2_0.gguf"),
        (["a-PQ2_0.gguf", "a-PTQ1_0.gguf", "a-Q2_0.gguf"], "a-PQ2_0.gguf"),
        (["a-PQ2_0.gguf"], None),  # the only one needs no choice
        (["a-Q4_0.gguf", "a-Q8_0.gguf"], None),
        (["a-PQ2_0.gguf", "b-PQ2_0.gguf"], None),  # two models
        (["a-PTQ1_0.gguf", "a-Q2_0.gguf"], None),
    ],
)
def test_a_preference_needs_one_model_in_several_ternary_types(
    names: list[str], chosen: str | None
) -> None:
    found = preferred(dict.fromkeys(names, 10**9), memory=8 << 30)
    assert (None if found is None else found.file) == chosen


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hf:org/model", "several models; choose with hf:org/model:FILE from: model-Q1_0.gguf"),
        ("hf:org/model:Q4_0", "no model for Q4_0; choose with hf:org/model:FILE from: model-Q1_0.gguf"),
        ("hf:org/model:mmproj-model.gguf", "no model for "),
        ("hf:org/absent", "no repository org/absent"),
        ("hf:org", "no repository; write hf:ORG/REPO"),
        ("hf:org/one:", "no repository; write hf:ORG/REPO"),
        ("hf:org/-one-", "no valid repository name"),
        ("hf:org/text", "the repository org/text holds no GGUF model"),
        ("hf:org/part", "lacks 1 of the 2 files of a split model: m-00001-of-00002.gguf"),
        ("hf:org/ghost", "lists a file of org/ghost that it does not have"),
    ],
)  # fmt: skip
def test_what_is_not_there_or_ambiguous_is_said(
    hub: hub_server.Hub, source: str, message: str, tmp_path: Path
) -> None:
    hub.repositories["org/text"] = {"README.md": b"x"}
    hub.repositories["org/part"] = {"m-00002-of-00002.gguf": b"x"}
    hub.repositories["org/ghost"] = {"m.gguf": None}
    answer = resolve(hub, source, tmp_path)
    assert answer.startswith("refused:")
    assert message in answer
    assert "\n" not in answer
    assert "mmproj" not in answer.partition("from:")[2]


@pytest.mark.parametrize("choice", ["", ":Q1_0", f":{SHARDS[1]}", f":{SHARDS[2][2:]}"])
def test_all_files_of_a_split_model_are_fetched(
    hub: hub_server.Hub, choice: str, tmp_path: Path
) -> None:
    first = Path(resolve(hub, f"hf:org/split{choice}", tmp_path))
    assert first.name == SHARDS[0][2:]
    assert {p.name for p in first.parent.iterdir()} == {s[2:] for s in SHARDS}


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, "RepoNotFound", "or it is private"),
        (403, "GatedRepo", "accept its terms"),
        (500, "", "the hub refuses"),
        (200, "", "something else answers in its place"),
    ],
)
def test_refusals_of_the_hub_are_one_sentence(
    hub: hub_server.Hub, status: int, code: str, message: str, tmp_path: Path
) -> None:
    hub.refuse["org/one"] = (status, code)
    answer = resolve(hub, "hf:org/one", tmp_path)
    assert message in answer
    assert "\n" not in answer


def test_an_interrupted_download_resumes(hub: hub_server.Hub, tmp_path: Path) -> None:
    hub.cut_next_download = 15_000_000
    path = Path(resolve(hub, "hf:org/model:Q1_0", tmp_path))
    assert path.read_bytes() == DATA
    assert any(int(r.removeprefix("bytes=").split("-")[0]) > 0 for r in hub.ranges)


def test_a_killed_download_resumes(hub: hub_server.Hub, tmp_path: Path) -> None:
    hub.hold_next_download = 15_000_000
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", RESOLVE, "hf:org/model:Q1_0"], env=environment
    )
    hub.held.wait()
    parts = tmp_path / "hub" / "models--org--model" / "blobs"
    while not any(p.stat().st_size == 15_000_000 for p in parts.glob("*.oxipart")):
        time.sleep(0.01)
    process.kill()
    process.wait()
    path = Path(resolve(hub, "hf:org/model:Q1_0", tmp_path))
    assert path.read_bytes() == DATA
    assert int(hub.ranges[-1].removeprefix("bytes=").split("-")[0]) > 8_000_000
    assert [p.name for p in parts.iterdir()] == [path.resolve().name]


def test_content_that_is_not_what_the_hub_says_is_refused(
    hub: hub_server.Hub, tmp_path: Path
) -> None:
    hub.corrupt = True
    answer = resolve(hub, "hf:org/model:Q1_0", tmp_path)
    assert "it is another file" in answer
    hub.corrupt = False
    assert Path(resolve(hub, "hf:org/model:Q1_0", tmp_path)).read_bytes() == DATA


def test_offline_mode_takes_what_the_cache_has(hub: hub_server.Hub, tmp_path: Path) -> None:
    path = resolve(hub, "hf:org/model:Q2_0", tmp_path)
    count = len(hub.requests)
    assert resolve(hub, "hf:org/model", tmp_path, HF_HUB_OFFLINE="1") == path
    answer = resolve(hub, "hf:org/one", tmp_path, HF_HUB_OFFLINE="1")
    assert answer == "refused: HF_HUB_OFFLINE is set, and the cache holds nothing of org/one"
    answer = resolve(hub, "hf:org/model:Q1_0", tmp_path, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE is set, and the cached copy of org/model holds no model for" in answer
    assert len(hub.requests) == count


def test_offline_mode_names_the_shards_that_the_cache_lacks(
    hub: hub_server.Hub, tmp_path: Path
) -> None:
    Path(resolve(hub, "hf:org/split", tmp_path)).with_name(SHARDS[1][2:]).unlink()
    answer = resolve(hub, "hf:org/split", tmp_path, HF_HUB_OFFLINE="1")
    assert "the cached copy of org/split lacks 1 of the 3 files" in answer
    assert answer.endswith(SHARDS[1][2:])


def test_the_cache_answers_by_the_newest_revision_that_has_the_model(
    hub: hub_server.Hub, tmp_path: Path
) -> None:
    old = resolve(hub, "hf:org/model:Q1_0", tmp_path)
    hub.commit = hub.commit[::-1]
    new = resolve(hub, "hf:org/model:Q2_0", tmp_path)
    assert resolve(hub, "hf:org/model:Q1_0", tmp_path, HF_HUB_OFFLINE="1") == old
    assert resolve(hub, "hf:org/model", tmp_path, HF_HUB_OFFLINE="1") == new


def test_a_hub_out_of_reach_is_one_sentence(hub: hub_server.Hub, tmp_path: Path) -> None:
    hub.url = NOBODY
    answer = resolve(hub, "hf:org/one", tmp_path)
    assert "cannot reach the hub for org/one" in answer
    assert answer.endswith("and the cache holds nothing of org/one")
    assert "\n" not in answer


def test_a_hub_out_of_reach_does_not_matter_for_what_the_cache_has(
    hub: hub_server.Hub, tmp_path: Path
) -> None:
    path = resolve(hub, "hf:org/one", tmp_path)
    hub.url = NOBODY
    assert resolve(hub, "hf:org/one:only.gguf", tmp_path) == path


@pytest.mark.parametrize("status", [200, 429, 503], ids=["another's page", "busy", "broken"])
def test_a_hub_that_cannot_answer_does_not_matter_for_what_the_cache_has(
    hub: hub_server.Hub, status: int, tmp_path: Path
) -> None:
    path = resolve(hub, "hf:org/one", tmp_path)
    hub.refuse["org/one"] = (status, "")
    assert resolve(hub, "hf:org/one", tmp_path) == path


def test_a_hub_that_says_no_is_not_overruled_by_the_cache(
    hub: hub_server.Hub, tmp_path: Path
) -> None:
    resolve(hub, "hf:org/one", tmp_path)
    hub.refuse["org/one"] = (403, "GatedRepo")
    assert "accept its terms" in resolve(hub, "hf:org/one", tmp_path)


def test_a_cache_that_cannot_be_written_is_one_sentence(
    hub: hub_server.Hub, tmp_path: Path
) -> None:
    (tmp_path / "hub").write_text("a file where the cache should be")
    answer = resolve(hub, "hf:org/one", tmp_path)
    assert "cannot fetch org/one from the hub" in answer
    assert "\n" not in answer


FOLDER = """
import sys
from oxibonsai.errors import SourceError
from oxibonsai.sources.model_folder import model_folder
try:
    with model_folder(sys.argv[1]) as folder:
        top = folder if folder.is_dir() else folder.parents[folder.parent.name == "onnx"]
        print(folder.name if folder.is_file() else "folder", end=": ")
        print(*sorted(str(p.relative_to(top)) for p in top.rglob("*.*")))
except SourceError as e:
    print("refused:", e)
"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "hf:org/encoder",
            "folder: 1_Pooling/config.json config.json model.safetensors tokenizer.json",
        ),
        (
            "hf:org/one",
            "refused: the repository org/one holds no config.json with safetensors or an ONNX file",
        ),
        (
            "hf:org/encoder:model.onnx",
            "model.onnx: 1_Pooling/config.json config.json onnx/model.onnx tokenizer.json",
        ),
        (
            "hf:org/encoder:a",
            "refused: hf:org/encoder:a names a file; a folder is converted whole: ",
        ),
        ("hf:org/nothing", "refused: the hub has no repository org/nothing"),
        ("hf:encoder", "refused: hf:encoder is no repository"),
    ],
)
def test_a_folder_to_convert_is_fetched_without_what_conversion_leaves(
    hub: hub_server.Hub, source: str, said: str, tmp_path: Path
) -> None:
    names = ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"]
    others = ["pytorch_model.bin", "onnx/model.onnx", "openvino/m.safetensors", "README.md"]
    hub.repositories["org/encoder"] = {n: b"{}" for n in names + others}
    assert folder_of(hub, source, tmp_path).startswith(said)


def folder_of(hub: hub_server.Hub, source: str, home: Path, **environment: str) -> str:
    """What a fresh process finds to convert: the folder or the ONNX file, and what is around it."""
    done = subprocess.run(
        [sys.executable, "-c", FOLDER, source],
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def exports(hub: hub_server.Hub) -> hub_server.Hub:
    """A repository of ONNX files alone, as exports for browsers are."""
    files = ["onnx/model.onnx", "onnx/model_q4.onnx", "onnx/model_q4.onnx_data", "deep/er/m.onnx"]
    texts = ["config.json", "tokenizer.json", "chat_template.jinja", "README.md"]
    hub.repositories["org/exports"] = {n: n.encode() for n in files + texts}
    return hub


@pytest.mark.parametrize("choice", ["model_q4.onnx", "onnx/model_q4.onnx"])
def test_an_onnx_file_comes_with_its_data_and_texts(
    exports: hub_server.Hub, choice: str, tmp_path: Path
) -> None:
    said = folder_of(exports, f"hf:org/exports:{choice}", tmp_path)
    assert said == (
        "model_q4.onnx: chat_template.jinja config.json onnx/model_q4.onnx onnx/model_q4.onnx_data "
        "tokenizer.json"
    )


@pytest.mark.parametrize(
    ("source", "problem"),
    [("hf:org/exports", "several ONNX files"), ("hf:org/exports:m.onnx", "no m.onnx")],
)
def test_onnx_files_to_choose_from_are_listed(
    exports: hub_server.Hub, source: str, problem: str, tmp_path: Path
) -> None:
    assert folder_of(exports, source, tmp_path) == (
        f"refused: the repository org/exports holds {problem}; choose with hf:org/exports:FILE from: "
        "onnx/model.onnx, onnx/model_q4.onnx"
    )


def test_weights_in_the_cache_do_without_the_hub(exports: hub_server.Hub, tmp_path: Path) -> None:
    source = "hf:org/exports:model_q4.onnx"
    offline = {"HF_HUB_OFFLINE": "1"}
    assert folder_of(exports, source, tmp_path, **offline) == (
        "refused: HF_HUB_OFFLINE is set, and the cache holds no weights of org/exports"
    )
    found = folder_of(exports, source, tmp_path)
    count = len(exports.requests)
    assert folder_of(exports, source, tmp_path, **offline) == found
    assert len(exports.requests) == count


LOAD = "import sys, oxibonsai; print(oxibonsai.load(sys.argv[1]).logits([1, 2, 3]).tobytes().hex())"


def test_a_repository_of_safetensors_is_loaded_as_its_folder_is(
    hub: hub_server.Hub, tmp_path: Path
) -> None:
    pytest.importorskip("transformers", reason="needs transformers and torch")
    folder = tmp_path / "model"
    hf_folders.save(hf_folders.CASES[0], folder, tokenizer=False)
    hub.repositories["org/llama"] = {p.name: p.read_bytes() for p in folder.iterdir()}
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    environment["OXIBONSAI_CACHE"] = str(tmp_path / "cache")
    logits = [
        subprocess.run(
            [sys.executable, "-c", LOAD, source],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for source in ("hf:org/llama", str(folder))
    ]
    assert logits[0] == logits[1] != ""
