"""The folder for browsers: its graph, built again from its files alone, gives the model's logits."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bert_folder
import recurrent_model
import tiny_model
from native_build import ROOT
from oxibonsai import RequestError, UnsupportedError, __version__, _core
from oxibonsai.architectures.families import BY_NAME
from oxibonsai.cli.main import _run
from oxibonsai.export.web_folder import CORE, SAMPLING, write_web_folder
from oxibonsai.loading import open_model
from oxibonsai.models import load_model
from oxibonsai.sampling import SamplingParams

TEMPLATE = {
    "tokenizer.chat_template": (
        "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}<think>",
        "str",
    )
}
TOKENS = [5, 77, 5, 210, 33, 34, 1, 0]


@pytest.fixture
def core(tmp_path: Path) -> Path:
    """In the place of what Emscripten makes, which is copied as it is."""
    folder = tmp_path / "core"
    folder.mkdir()
    for name in CORE:
        (folder / name).write_bytes(name.encode())
    return folder


def write(model: Path, folder: Path, core: Path) -> dict[str, Any]:
    sampling = {**vars(SamplingParams()), "top_k": 17, "repetition_penalty": 1.25}
    checkpoint = open_model(model)
    made = write_web_folder(
        checkpoint, folder, core=core, kv_type="f32", sampling=sampling, name="a model"
    )
    assert sorted(made) == sorted(path for path in folder.rglob("*") if path.is_file())
    document: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return document


def data_of(document: dict[str, Any], folder: Path) -> bytes:
    pieces = []
    for piece in document["pieces"]:
        content = (folder / piece["file"]).read_bytes()
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        assert (piece["bytes"], piece["integrity"]) == (len(content), f"sha256-{digest}")
        pieces.append(content)
    data = b"".join(pieces)
    assert len(data) == document["bytes"]
    return data


class Rebuilt:
    """A graph by the calls of a description, as csrc/recorded/graph_reader.h repeats them."""

    def __init__(self, document: dict[str, Any], data: bytes) -> None:
        self.graph = _core.Graph()
        self._data = np.frombuffer(data, np.uint8)
        self._weights = [self._weight(w) for w in document["weights"]]
        self._values: list[_core.Value] = []
        fields = {name: fields for name, _, fields, _ in _core.graph_ops()}
        for method, arguments, named in document["calls"]:
            given = [
                self._read(a, kind)
                for a, (_, kind, *_) in zip(arguments, fields.get(method, []), strict=False)
            ]
            if method == "add_paged_layer":
                given = [_core.PagedLayer(*arguments[0])]
            elif method == "add_slot":
                given = arguments
            elif method == "set_output":
                given = [arguments[0], self._values[arguments[1]]]
            kinds = {name: kind for name, kind, *_ in fields.get(method, [])}
            by_name = {k: self._read(a, kinds[k]) for k, a in named.items()}
            made = getattr(self.graph, method)(*given, **by_name)
            made = made if isinstance(made, list | tuple) else [made]
            self._values += [v for v in made if isinstance(v, _core.Value)]

    def _weight(self, w: dict[str, Any]) -> _core.Weight:
        group = {t["name"]: t for t in _core.quant_types()}[w["type"]]
        row = w["cols"] // group["group"] * group["bytes"]
        count = w["experts"] * w["rows"]
        blocks = self._data[w["at"] : w["at"] + count * row].reshape(count, row)
        return _core.Weight.from_blocks(w["name"], w["type"], blocks, w["cols"], w["experts"])

    def _read(self, argument: Any, kind: str) -> Any:
        if argument is None:
            return None
        if isinstance(argument, list):
            return [self._read(a, "Weight" if "Weight" in kind else kind) for a in argument]
        if isinstance(argument, dict):
            at, size = argument["at"], 4 * argument["count"]
            return self._data[at : at + size].view(np.float32)
        if kind.startswith("Value"):
            return self._values[argument]
        return self._weights[argument] if kind.startswith("Weight") else argument


def logits(graph: _core.Graph, device: _core.CpuDevice) -> npt.NDArray[np.float32]:
    batch, slots = _core.Batch(), None
    layers, entries = graph.paged_layers, graph.slot_entries
    batch.add(TOKENS, pages=[0] if layers else [], outputs=len(TOKENS))
    pools = [device.make_pages(layers, "f32", 1)] if layers else []
    if entries:
        slots = device.make_slots(entries, 1)
    return device.compile(graph).run(batch, pools, slots)["logits"]


@pytest.mark.parametrize("kind", ["qwen3", "toyhybrid"])
def test_the_description_is_the_model(
    kind: str, tmp_path: Path, core: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    if kind == "qwen3":
        tiny_model.write(path)
    else:
        monkeypatch.setitem(BY_NAME, kind, [recurrent_model.FAMILIES[kind]])
        recurrent_model.write(path, kind)
    document = write(path, tmp_path / "out", core)
    rebuilt = Rebuilt(document, data_of(document, tmp_path / "out"))
    device = _core.CpuDevice(1)
    model = load_model(open_model(path), device)
    found, wanted = logits(rebuilt.graph, device), logits(model.graph, device)
    assert found.tobytes() == wanted.tobytes()
    assert np.ptp(wanted) > 0


def write_phi3(path: Path) -> None:
    """A model whose q, k and v are one tensor, and gate and up another one."""
    keys = {k: v for k, v in tiny_model.KEYS.items() if k.startswith("qwen3.")}
    changes: dict[str, Any] = dict.fromkeys(keys)
    of_heads = ("key_length", "value_length")
    changes |= {k.replace("qwen3", "phi3"): v for k, v in keys.items() if not k.endswith(of_heads)}
    changes["phi3.rope.dimension_count"] = (tiny_model.HIDDEN // tiny_model.HEADS, "u32")
    changes["general.architecture"] = ("phi3", "str")
    tensors: dict[str, Any] = {}
    random = np.random.default_rng(3)
    for i in range(tiny_model.LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_q_norm", "attn_k_norm", "ffn_gate"):
            tensors[f"blk.{i}.{name}.weight"] = None
        width = tiny_model.HIDDEN
        for name, rows in {"qkv": 2 * width, "output": width}.items():
            values = random.normal(0, 0.1, (rows, width)).astype(np.float16)
            tensors[f"blk.{i}.attn_{name}.weight"] = (values.shape, 1, values.tobytes())
        values = random.normal(0, 0.1, (2 * tiny_model.FF, width)).astype(np.float16)
        tensors[f"blk.{i}.ffn_up.weight"] = (values.shape, 1, values.tobytes())
    tiny_model.write(path, changes=changes, tensors=tensors)


def test_rows_of_a_tensor_are_those(tmp_path: Path, core: Path) -> None:
    write_phi3(tmp_path / "model.gguf")
    document = write(tmp_path / "model.gguf", tmp_path / "out", core)
    names = [w["name"] for w in document["weights"]]
    assert len(set(names)) < len(names)
    rebuilt = Rebuilt(document, data_of(document, tmp_path / "out"))
    device = _core.CpuDevice(1)
    model = load_model(open_model(tmp_path / "model.gguf"), device)
    assert logits(rebuilt.graph, device).tobytes() == logits(model.graph, device).tobytes()


def test_what_else_the_page_needs_is_there(tmp_path: Path, core: Path) -> None:
    tiny_model.write(tmp_path / "model.gguf")
    document = write(tmp_path / "model.gguf", tmp_path / "out", core)
    assert document["end_tokens"] == [257]
    assert document["trained_context"] == tiny_model.CONTEXT
    assert document["kv_type"] == "f32"
    assert document["name"] == "a model"
    neutral = SamplingParams()
    assert document["sampling"] == {
        "temperature": neutral.temperature,
        "topK": 17,
        "topP": neutral.top_p,
        "minP": neutral.min_p,
        "repetitionPenalty": 1.25,
        "repetitionWindow": neutral.repetition_window,
        "presencePenalty": neutral.presence_penalty,
        "frequencyPenalty": neutral.frequency_penalty,
    }
    for name in CORE:
        assert (tmp_path / "out" / name).read_bytes() == name.encode()
    assert json.loads((tmp_path / "out" / "tokenizer.json").read_text())["model"]["type"] == "BPE"
    page = (tmp_path / "out" / "index.html").read_text()
    assert "http" not in page.replace("http-equiv", "")  # all of it is in the folder


def test_what_a_file_of_the_folder_loads_is_in_it(tmp_path: Path, core: Path) -> None:
    tiny_model.write(tmp_path / "model.gguf")
    out = tmp_path / "out"
    write(tmp_path / "model.gguf", out, core)
    loads = re.compile(
        r"""(?:from|import) "(\./[^"]+)"|(?:src|href)="([\w./]+)"|new URL\("(\w[\w.]+)", import\.meta"""
    )
    found = set()
    for file in [*out.rglob("*.html"), *out.glob("*.js"), *out.glob("ui/*.js")]:
        for names in loads.findall(file.read_text()):
            path = (file.parent / "".join(names)).resolve()
            assert path.is_file(), f"{file.name} loads {''.join(names)}"
            found.add(path.name)
    assert {"page.js", "worker.js", "core.wasm", "jinja.js", "markdown.js", "style.css"} <= found


def test_ranges_are_those_of_the_parameters(tmp_path: Path, core: Path) -> None:
    tiny_model.write(tmp_path / "model.gguf")
    ranges = write(tmp_path / "model.gguf", tmp_path / "out", core)["ranges"]
    assert set(ranges) == set(SAMPLING.values())
    for name, word in SAMPLING.items():
        low, high, above = (ranges[word][key] for key in ("low", "high", "above"))
        step = 1 if ranges[word]["integer"] else 1e-6
        SamplingParams(**{name: high})
        SamplingParams(**{name: low + step if above else low})
        for outside in (low if above else low - step, high + max(step, high * 1e-6)):
            with pytest.raises(RequestError, match=re.escape(ranges[word]["is"])):
                SamplingParams(**{name: outside})


def test_scripts_of_others_are_the_recorded_ones() -> None:
    """As its package on npm has it; third_party/renew_page_scripts.py renews it."""
    from oxibonsai.export import web_folder

    vendor = Path(web_folder.__file__).parent / "web" / "vendor"
    recorded: dict[str, str] = {}
    for record in json.loads((vendor / "versions.json").read_text()):
        recorded |= record["sha256"]
    found = {name: hashlib.sha256((vendor / name).read_bytes()) for name in web_folder.VENDOR}
    assert {name: digest.hexdigest() for name, digest in found.items()} == recorded


def test_a_folder_without_the_core_is_refused(tmp_path: Path, core: Path) -> None:
    tiny_model.write(tmp_path / "model.gguf")
    (core / "core.wasm").unlink()
    with pytest.raises(RequestError, match=r"has no core\.wasm: build it with Emscripten"):
        write(tmp_path / "model.gguf", tmp_path / "out", core)
    assert not (tmp_path / "out").exists()


def test_a_model_that_does_not_continue_texts_is_refused(tmp_path: Path, core: Path) -> None:
    bert_folder.write(tmp_path / "model")
    with pytest.raises(UnsupportedError, match="no model that continues a text"):
        write(tmp_path / "model", tmp_path / "out", core)
    assert not (tmp_path / "out").exists()


def test_the_command_names_what_it_leaves_out(
    tmp_path: Path, core: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = {
        "general.sampling.temp": (0.25, "f32"),
        "general.sampling.xtc_probability": (0.5, "f32"),
    }
    tiny_model.write(tmp_path / "model.gguf", changes={**stated, **TEMPLATE})
    line = ["export-web", str(tmp_path / "model.gguf"), str(tmp_path / "out"), "--core", str(core)]
    assert _run([*line, "--json"]) == 0
    printed = capsys.readouterr()
    assert "xtc_probability 0.5" in printed.err
    facts = json.loads(printed.out)
    written = {path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {Path(f["path"]) for f in facts["files"]} == written
    document = json.loads((tmp_path / "out" / "model.json").read_text())
    assert math.isclose(document["sampling"]["temperature"], 0.25)
    assert document["name"] == "tiny"
    assert document["chat"]["template"] == TEMPLATE["tokenizer.chat_template"][0]
    assert document["chat"]["reasoning"] == ["<think>", "</think>"]


def test_chats_whose_reasoning_a_browser_could_not_show_are_left_out(
    tmp_path: Path, core: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens, kind = tiny_model.tokenizer_keys()["tokenizer.ggml.tokens"]
    tokens = ["<think>" if text == "<|im_start|>" else text for text in tokens]  # a control token
    changes = {**TEMPLATE, "tokenizer.ggml.tokens": (tokens, kind)}
    tiny_model.write(tmp_path / "model.gguf", changes=changes)
    out = tmp_path / "out"
    line = ["export-web", str(tmp_path / "model.gguf"), str(out), "--core", str(core)]
    assert _run(line) == 0
    assert "marks its reasoning by control tokens (<think>)" in capsys.readouterr().err
    assert json.loads((out / "model.json").read_text())["chat"] is None


def test_the_npm_package_holds_what_it_names(tmp_path: Path, core: Path) -> None:
    runpy.run_path(str(ROOT / "packaging" / "build_npm.py"))["build"](core, tmp_path / "npm")
    package = json.loads((tmp_path / "npm" / "package.json").read_text())
    files = {path.name for path in (tmp_path / "npm").iterdir()}
    assert files == {*package["files"], "package.json"}
    assert set(package["exports"]["."].values()) == {"./oxibonsai.d.ts", "./oxibonsai.js"}
    assert package["version"] == __version__
    scripts = [(tmp_path / "npm" / name).read_text() for name in ("oxibonsai.js", "chat.js")]
    assert set(re.findall(r'"\./([\w.]+)"', "".join(scripts))) <= files
