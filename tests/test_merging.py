"""Merged models against mergekit's own command, byte for byte; GGUF files among the models."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from oxibonsai.cli.main import _run
from oxibonsai.convert.language_model import convert

BASED = (
    "{merge_method: METHOD, base_model: BASE, dtype: float32, "
    "models: [{model: A, parameters: P}, {model: B, parameters: P}]}"
)
CONFIGS = {
    "linear": "{merge_method: linear, dtype: bfloat16, models: [{model: A, parameters: {weight: 0.3}}, "
    "{model: B, parameters: {weight: 0.7}}]}",
    "slerp": "{merge_method: slerp, base_model: A, dtype: float32, parameters: {t: [0.2, 0.8]}, "
    "models: [{model: A}, {model: B}]}",
    "passthrough": "{merge_method: passthrough, dtype: float16, slices: [{sources: [{model: A, "
    "layer_range: [0, 2]}]}, {sources: [{model: B, layer_range: [1, 2]}]}]}",
    "model_stock": BASED.replace("METHOD", "model_stock").replace(", parameters: P", ""),
    "task_arithmetic": BASED.replace("METHOD", "task_arithmetic").replace("P}", "{weight: 0.6}}"),
    **{
        name: BASED.replace("METHOD", name).replace("P}", "{weight: 0.6, density: 0.5}}")
        for name in ("ties", "dare_ties", "dare_linear")
    },
}


def needs_mergekit(test: Any) -> Any:
    """Mark a test that imports mergekit, which takes seconds."""
    absent = importlib.util.find_spec("mergekit") is None
    skip = pytest.mark.skipif(absent, reason="mergekit (extra `merge`) is not installed")
    return pytest.mark.slow(skip(test))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Three folders, as BASE, A and B."""
    pytest.importorskip("transformers", reason="the folders need the extra hf")
    import hf_folders
    import torch

    place = tmp_path_factory.mktemp("models")
    case = next(c for c in hf_folders.CASES if c.name == "llama")
    model: Any = hf_folders.save(case, place / "BASE")
    for name in "AB":
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape)
        model.save_pretrained(place / name)
        hf_folders.write_tokenizer(place / name, spm=False)
    return {name: str(place / name) for name in ("BASE", "A", "B")}


def write_config(text: str, models: dict[str, str], path: Path) -> Path:
    for name, folder in models.items():
        for end in (",", "}"):
            text = text.replace(f"model: {name}{end}", f"model: {folder}{end}")
    path.write_text(text)
    return path


def theirs(config: Path, out: Path, seed: int = 0) -> Path:
    """What mergekit-yaml makes."""
    from click.testing import CliRunner
    from mergekit.scripts.run_yaml import main

    line = [str(config), str(out), "--random-seed", str(seed), "--quiet"]
    done = CliRunner().invoke(main, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out


def ours(*arguments: object) -> int:
    return _run(["merge-models", *map(str, arguments)])


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@needs_mergekit
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("method", CONFIGS)
def test_a_folder_is_mergekits_byte_for_byte(
    method: str, models: dict[str, str], tmp_path: Path
) -> None:
    config = write_config(CONFIGS[method], models, tmp_path / "config.yaml")
    expected = files(theirs(config, tmp_path / "theirs" / "merged", seed=7))
    assert ours(config, tmp_path / "ours" / "merged", "--random-seed", 7) == 0
    assert "model.safetensors" in expected or "model-00001-of-00001.safetensors" in expected
    assert files(tmp_path / "ours" / "merged") == expected
    assert [p.name for p in (tmp_path / "ours").iterdir()] == ["merged"]


@needs_mergekit
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_gguf_files_are_decoded_and_written(models: dict[str, str], tmp_path: Path) -> None:
    convert(models["A"], tmp_path / "a.gguf", dtype="f32")
    mixed = {**models, "A": str(tmp_path / "a.gguf")}
    config = write_config(CONFIGS["ties"], mixed, tmp_path / "config.yaml")
    plain = write_config(CONFIGS["ties"], models, tmp_path / "plain.yaml")
    expected = theirs(plain, tmp_path / "theirs")
    assert ours(config, tmp_path / "folder") == 0
    found = files(tmp_path / "folder")
    weights = {n: b for n, b in files(expected).items() if n.endswith(".safetensors")}
    assert {n: found[n] for n in weights} == weights
    assert found["mergekit_config.yml"] == config.read_bytes()
    assert str(tmp_path / "a.gguf").encode() in found["README.md"]
    assert b".merge-" not in found["README.md"]


@needs_mergekit
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_gguf_file_is_the_folder_converted(models: dict[str, str], tmp_path: Path) -> None:
    config = write_config(CONFIGS["linear"], models, tmp_path / "config.yaml")
    expected = theirs(config, tmp_path / "theirs")
    assert ours(config, tmp_path / "out.gguf", "--type", "q8_0") == 0
    convert(expected, tmp_path / "expected.gguf", dtype="q8_0", name="out")
    assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "expected.gguf").read_bytes()


@needs_mergekit
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_an_adapter_of_a_gguf_file_is_added_with_its_weight(
    models: dict[str, str], tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft", reason="adapters are made with peft (extra `test`)")
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    base = AutoModelForCausalLM.from_pretrained(models["A"], dtype="float32")
    name = "model.layers.0.self_attn.q_proj"
    before = base.get_submodule(name).weight.detach().clone()
    tuned = peft.get_peft_model(
        base, peft.LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj"], init_lora_weights=False)
    )
    layer = base.get_submodule(name)
    change = 3 * (layer.lora_B["default"].weight @ layer.lora_A["default"].weight).detach()
    tuned.save_pretrained(tmp_path / "adapter")
    convert(models["A"], tmp_path / "a.gguf", dtype="f32")
    config = tmp_path / "config.yaml"
    config.write_text(
        "{merge_method: linear, dtype: float32, models: ["
        f"{{model: {tmp_path}/a.gguf, parameters: {{weight: 0.75}}}}, "
        f"{{model: {tmp_path}/a.gguf+{tmp_path}/adapter, parameters: {{weight: 0.25}}}}]}}"
    )
    assert ours(config, tmp_path / "out") == 0
    weights = [load_file(f) for f in (tmp_path / "out").glob("*.safetensors")]
    found = next(w[f"{name}.weight"] for w in weights if f"{name}.weight" in w)
    torch.testing.assert_close(found, before + 0.25 * change, rtol=0, atol=1e-5)
    assert change.abs().max() > 0.1


@needs_mergekit
@pytest.mark.parametrize(
    ("text", "arguments", "code", "message"),
    [
        ("a: [", [], 3, "is no YAML"),
        ("- a", [], 3, "holds no names with values"),
        ("merge_method: linear", [], 2, "Exactly one of 'models'"),
        ("{merge_method: magic, models: [{model: A}]}", [], 2, "mergekit refuses"),
        (
            "{merge_method: linear, models: [{model: absent.gguf}]}",
            [],
            3,
            "absent.gguf does not exist",
        ),
        (CONFIGS["linear"], ["--type", "f16"], 2, "name OUT.gguf"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    text: str, arguments: list[str], code: int, message: str,
    models: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    config = write_config(text, models, tmp_path / "config.yaml")
    assert ours(config, tmp_path / "out", *arguments) == code
    said = capfd.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["config.yaml"]


@needs_mergekit
def test_a_folder_with_files_is_not_replaced(
    models: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = write_config(CONFIGS["linear"], models, tmp_path / "config.yaml")
    assert ours(config, tmp_path) == 2
    assert "is there already" in capfd.readouterr().err


def test_without_mergekit_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    assert ours(tmp_path / "config.yaml", tmp_path / "out") == 2
    assert "pip install 'oxibonsai[merge]'" in capfd.readouterr().err
