"""ONNX files: names and packs of several exporters, and what can't be held is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
pytest.importorskip("onnx", reason="needs the onnx package (extra: convert)")
import onnx_models as om
from click.testing import CliRunner
from hf_folders import logits
from onnx import TensorProto, helper, numpy_helper

import oxibonsai
from oxibonsai import FormatError, RequestError, SourceError, UnsupportedError, _core
from oxibonsai.checkpoint.onnx_names import norm_parameter, product_parameter, table_parameter
from oxibonsai.cli.convert import convert as convert_command
from oxibonsai.convert.language_model import convert

pytestmark = pytest.mark.hf

IDS: list[int] = np.random.default_rng(2).integers(4, 256, 60).tolist()
NAME = "blk.1.attn_output.weight"
KEY = "model.layers.1.self_attn.o_proj"


def decoded(path: Path, name: str) -> tuple[str, Any]:
    file = _core.GgufFile(str(path))
    info = file.tensor(name)
    return info.quant_type, _core.decode(info.quant_type, file.tensor_bytes(name)).reshape(
        info.shape
    )


def error_of(path: Path, truth: Any) -> float:
    found = oxibonsai.load(path, kv_type="f32").logits(IDS)
    return float(np.abs(found - truth).max() / np.abs(truth).max())


@pytest.mark.parametrize(
    ("style", "bits", "block", "zeros", "kind"),
    [
        ("genai", 4, 32, False, "Q4_0"),
        ("genai", 4, 128, True, "Q4_1"),
        ("browser", 2, 128, True, "Q2_0_g64"),
        ("browser", 2, 64, False, "Q2_0_g64"),
        ("browser", 4, 32, True, "Q4_1"),
        ("optimum", 4, 64, False, "Q4_0"),
        ("optimum", 8, 32, False, "Q8_0"),
    ],
)
def test_a_model_has_the_logits_of_its_values(
    style: str, bits: int, block: int, zeros: bool, kind: str, tmp_path: Path
) -> None:
    graph, model = om.build(tmp_path / "m", style, bits, block, zeros=zeros)
    graph.save(tmp_path / "m" / "model.onnx", external=bits == 2)
    truth = logits(model, IDS)
    convert(tmp_path / "m", tmp_path / "f.gguf", dtype="f32")
    assert error_of(tmp_path / "f.gguf", truth) <= 1e-4
    convert(tmp_path / "m" / "model.onnx", tmp_path / "m.gguf")
    found, values = decoded(tmp_path / "m.gguf", NAME)
    weight = model.state_dict()[f"{KEY}.weight"].numpy()
    assert found == kind
    if kind == "Q4_1":  # a minimum, scale times zero point, is rounded to float16
        assert np.abs(values - weight).max() <= 2**-11 * np.abs(weight).max() * 15
    else:
        assert np.array_equal(values, weight)
    # What is left is what rounding activations to eight bits makes of such a model.
    assert error_of(tmp_path / "m.gguf", truth) <= 0.1


def test_ternary_models_become_either_group(tmp_path: Path) -> None:
    graph, model = om.build(tmp_path / "m", "browser", 2, 128, zeros=True)
    graph.save(tmp_path / "m" / "model.onnx")
    weight = model.state_dict()[f"{KEY}.weight"].numpy()
    for dtype, kind in (("pq2_0", "Q2_0_g128"), ("ptq1_0", "PTQ1_0"), ("q2_0_g64", "Q2_0_g64")):
        convert(tmp_path / "m", tmp_path / "m.gguf", dtype=dtype)
        found, values = decoded(tmp_path / "m.gguf", NAME)
        assert found == kind
        assert np.array_equal(values, weight)
        _, table = decoded(tmp_path / "m.gguf", "token_embd.weight")
        assert np.array_equal(table, model.state_dict()["model.embed_tokens.weight"].numpy())


def test_float_products_are_turned(tmp_path: Path) -> None:
    _, model = om.build(tmp_path / "m", "genai", 4, 32, zeros=False)
    float_graph = om.Graph()
    for name, value in model.state_dict().items():
        if value.ndim == 1:
            float_graph.tensor(om.norm_name("genai", name), value.numpy())
        elif "embed" in name:
            float_graph.node("Gather", [float_graph.tensor(name, value.numpy()), "ids"], "")
        else:
            node, tensor = om.product_names("genai", name.removesuffix(".weight"))
            turned = float_graph.tensor(tensor, value.numpy().T)
            float_graph.node("MatMul", ["x", turned], node.removesuffix("_Q4"))
    float_graph.save(tmp_path / "m" / "model.onnx")
    convert(tmp_path / "m", tmp_path / "m.gguf")
    found, values = decoded(tmp_path / "m.gguf", NAME)
    assert found == "F32"
    assert np.array_equal(values, model.state_dict()[f"{KEY}.weight"].numpy())
    assert error_of(tmp_path / "m.gguf", logits(model, IDS)) <= 1e-4


@pytest.mark.parametrize("shared", ["pack", "transposed"])
def test_a_head_that_reads_the_table_is_written_once(shared: str, tmp_path: Path) -> None:
    style = "browser" if shared == "pack" else "genai"
    graph, _ = om.build(tmp_path / "m", style, 2, 64, zeros=True)
    graph.nodes = [n for n in graph.nodes if not n.name.startswith("/lm_head")]
    if shared == "pack":
        table = "model_embed_tokens_weight"
        graph.node("Reshape", [f"{table}_quant", "shape"], "")
        inputs = ["x", graph.nodes[-1].output[0], f"{table}_scales", f"{table}_zp"]
        facts = {"K": 128, "N": 320, "bits": 2, "block_size": 64}
        graph.node("MatMulNBits", inputs, "/lm_head/MatMul_Quant", **facts)
    else:
        graph.node("Transpose", ["model.embed_tokens.weight"], "")
        graph.node("MatMul", ["x", graph.nodes[-1].output[0]], "/lm_head/MatMul")
    graph.save(tmp_path / "m" / "model.onnx")
    for tied in (True, False):
        set_config(tmp_path / "m", tie_word_embeddings=tied)
        convert(tmp_path / "m", tmp_path / "m.gguf")
        file = _core.GgufFile(str(tmp_path / "m.gguf"))
        assert ("output.weight" in {t.name for t in file.tensors}) is not tied
    _, head = decoded(tmp_path / "m.gguf", "output.weight")
    assert np.array_equal(head, decoded(tmp_path / "m.gguf", "token_embd.weight")[1])


def set_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [True, False])
def test_onnxruntime_reads_the_same_values(bits: int, zeros: bool, tmp_path: Path) -> None:
    """The exporters' runtime, given the unit matrix, multiplies out what a pack holds."""
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    cols, rows = 96, 20  # an odd number of blocks: the last byte of zero points is not full
    pack = om.random_pack(np.random.default_rng(3), (rows, cols), bits, 32, zeros)
    graph = om.Graph()
    graph.product("p", "w", pack)
    for t in graph.tensors:
        if t.name == "w_scales":
            t.CopyFrom(numpy_helper.from_array(pack.scales.astype(np.float32), t.name))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [cols, cols])
    y = helper.make_tensor_value_info(graph.nodes[0].output[0], TensorProto.FLOAT, [cols, rows])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "g", [x], [y], graph.tensors),
        opset_imports=opsets,
        ir_version=10,
    )
    session = runtime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {"x": np.eye(cols, dtype=np.float32)})
    assert np.allclose(found.T, pack.values(), rtol=1e-6, atol=1e-7)


def test_names_of_exporters_are_known() -> None:
    q = "model.layers.7.self_attn.q_proj.weight"
    for name in (
        "/model/layers.7/attn/q_proj/MatMul_Q4",
        "/model/layers.7/attn/q_proj/MatMulNBits",
        "/model/layers.7/self_attn/q_proj/MatMul_Quant",
        "model.layers.7.attn.q_proj.MatMul.weight_Q4G32",
        "model.layers.7.attn.q_proj.MatMul.qweight",
        "model_layers_7_attn_q_proj_MatMul_weight_quant",
    ):
        assert product_parameter("", name) == q
    assert product_parameter("/lm_head/MatMul_Q8") == "lm_head.weight"
    assert product_parameter("n", "model_layers_10_mlp_gate_proj_MatMul_weight_quant") == (
        "model.layers.10.mlp.gate_proj.weight"
    )
    for name in ("/model/layers.7/attn/q_proj/lora_A/MatMul", "/model/rotary_emb/MatMul", ""):
        assert product_parameter(name) is None
    assert table_parameter("", "model_embed_tokens_weight_quant") == "model.embed_tokens.weight"
    assert table_parameter("/model/rotemb/Gather", "cos_cache") is None
    assert norm_parameter("model.layers.28.final_norm_layernorm.weight", 28) == "model.norm.weight"
    assert norm_parameter("model.layers.27.final_norm_layernorm.weight", 28) is None
    assert norm_parameter("model.layers.3.attn.k_norm.layernorm.weight", 28) == (
        "model.layers.3.self_attn.k_norm.weight"
    )


NODE, TENSOR = om.product_names("genai", KEY)


def broken(folder: Path, change: str) -> None:
    """A model with one product that is not as it should be."""
    graph, _ = om.build(folder, "genai", 4, 32, zeros=True)
    graph.nodes = [n for n in graph.nodes if n.name != NODE]
    graph.tensors = [t for t in graph.tensors if not t.name.startswith(TENSOR)]
    pack = om.random_pack(np.random.default_rng(0), (128, 256), 4, 32, True)
    odd = np.full(pack.scales.shape, 1e6 if change == "large scales" else 1e-7, np.float32)
    single = om.Pack(pack.codes, odd, pack.zeros, 4, 32)  # type: ignore[arg-type]
    small = om.random_pack(np.random.default_rng(0), (128, 256), 4, 16, True)
    two = om.Pack(pack.codes & 3, pack.scales, None, 2, 32)
    order = graph.tensor("order", np.zeros(256, np.int32))
    bias = graph.tensor("bias", np.zeros(128, np.float32))
    match change:
        case "large scales" | "tiny scales":
            graph.product(NODE, TENSOR, single)
        case "blocks of 16":
            graph.product(NODE, TENSOR, small)
        case "codes of -2":
            graph.product(NODE, TENSOR, two)
        case "no scales":
            graph.node("MatMulNBits", ["x", graph.tensor("b", pack.codes)], NODE, K=256, N=128)
        case "3 bits":
            graph.product(NODE, TENSOR, pack, bits=3)
        case "another N":
            graph.product(NODE, TENSOR, pack, N=64)
        case "huge N":
            graph.product(NODE, TENSOR, pack, N=2**60)
        case "negative K":
            graph.product(NODE, TENSOR, pack, K=-256)
        case "block size 0":
            graph.product(NODE, TENSOR, pack, block_size=0)
        case "block size 48":
            graph.product(NODE, TENSOR, pack, block_size=48)
        case "short zero points":
            graph.product(NODE, TENSOR, pack, zeros=np.zeros((128, 3), np.uint8))
        case "g_idx":
            graph.product(NODE, TENSOR, pack, more_inputs=[order])
        case "prepacked":
            graph.product(NODE, TENSOR, pack, weight_prepacked=1)
        case "bias":
            graph.product(NODE, TENSOR, pack, more_inputs=["", bias])
        case "fused":
            graph.product(NODE.replace("o_proj", "qkv_proj"), "fused", pack)
        case "unknown":
            graph.product("/model/layers.1/attn/o_proj/lora_A/MatMul", "lora", pack)
        case "computed":
            graph.node("DequantizeLinear", ["bias", "bias"], "")
            graph.node("MatMul", ["x", graph.nodes[-1].output[0]], NODE)
        case "twice":
            graph.product(NODE, TENSOR, pack)
            graph.product(NODE, f"{TENSOR}_more", pack)
        case "missing":
            pass
    graph.save(folder / "model.onnx")


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ("large scales", FormatError, r"group 0 has scale 1000000 .* no float16"),
        ("tiny scales", FormatError, r"group 0 has scale 1\.0+\d*e-07 .* no float16"),
        ("blocks of 16", FormatError, "groups of 16"),
        ("codes of -2", FormatError, r"is not exactly \{-s, 0, \+s, \+2s\}"),
        ("no scales", FormatError, "no scales"),
        ("3 bits", UnsupportedError, "packed with 3 bits"),
        ("another N", FormatError, r"no 4-bit codes of a matrix \(64, 256\)"),
        ("huge N", FormatError, "no 4-bit codes"),
        ("negative K", FormatError, r"matrix \(128, -256\)"),
        ("block size 0", FormatError, "blocks of 0"),
        ("block size 48", FormatError, "blocks of 48"),
        ("short zero points", FormatError, "zero points are bytes"),
        ("g_idx", UnsupportedError, "another order"),
        ("prepacked", UnsupportedError, "another order"),
        ("bias", UnsupportedError, "o_proj.bias"),
        ("fused", UnsupportedError, "qkv_proj"),
        ("unknown", UnsupportedError, "lora_A"),
        ("computed", UnsupportedError, "without QDQ"),
        ("twice", FormatError, "two tensors"),
        ("missing", FormatError, r"lacks 1 of the parameters"),
    ],
)
def test_other_products_are_refused(
    change: str, error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    broken(tmp_path / "m", change)
    with pytest.raises(error, match=sentence) as raised:
        convert(tmp_path / "m", tmp_path / "m.gguf")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(("bits", "zeros"), [(4, True), (4, False), (8, False)])
def test_scales_in_float32_are_rounded(bits: int, zeros: bool, tmp_path: Path) -> None:
    graph, _ = om.build(tmp_path / "m", "genai", bits, 32, zeros=zeros)
    graph.nodes = [n for n in graph.nodes if n.name != NODE]
    graph.tensors = [t for t in graph.tensors if not t.name.startswith(TENSOR)]
    pack = om.random_pack(np.random.default_rng(0), (128, 256), bits, 32, zeros)
    scales = pack.scales.astype(np.float32) * np.float32(1.0003)
    wide = om.Pack(pack.codes, scales, pack.zeros, bits, 32)  # type: ignore[arg-type]
    graph.product(NODE, TENSOR, wide)
    graph.save(tmp_path / "m" / "model.onnx")
    convert(tmp_path / "m", tmp_path / "m.gguf")
    found, truth = decoded(tmp_path / "m.gguf", NAME)[1], wide.values()
    size = np.repeat(scales, 32, axis=1) * (15 if zeros else 0)  # of a minimum, at most
    assert (np.abs(found - truth) <= 2**-11 * (np.abs(truth) + size) * 1.001).all()
    assert not np.array_equal(found, truth)


def test_a_folder_or_file_is_loaded_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    graph, _ = om.build(tmp_path / "m", "optimum", 4, 32, zeros=False)
    (tmp_path / "m" / "onnx").mkdir()
    graph.save(tmp_path / "m" / "onnx" / "model.onnx")
    convert(tmp_path / "m", tmp_path / "m.gguf")
    truth = oxibonsai.load(tmp_path / "m.gguf").logits(IDS).tobytes()
    for source in (tmp_path / "m", tmp_path / "m" / "onnx" / "model.onnx"):
        model = oxibonsai.AutoModelForCausalLM.from_pretrained(source)
        assert model.logits(IDS).tobytes() == truth
        assert model.config.name == "m"
        tokenizer = oxibonsai.AutoTokenizer.from_pretrained(source)
        assert tokenizer.encode("Hello") == model.engine.tokenizer.encode("Hello")
    graph.save(tmp_path / "m" / "model.onnx")
    with pytest.raises(FormatError, match="2 ONNX files"):
        oxibonsai.load(tmp_path / "m")
    with pytest.raises(SourceError, match=r"absent\.onnx does not exist"):
        oxibonsai.load(tmp_path / "absent.onnx")


def test_a_folder_with_safetensors_can_be_asked_for_its_onnx(tmp_path: Path) -> None:
    graph, _ = om.build(tmp_path / "m", "optimum", 4, 32, zeros=False)
    graph.save(tmp_path / "m" / "model.onnx")
    convert(tmp_path / "m" / "model.onnx", tmp_path / "truth.gguf")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"not read")
    out = tmp_path / "m.gguf"
    for source in (tmp_path / "m", tmp_path / "m" / "model.onnx"):
        CliRunner().invoke(
            convert_command, [str(source), str(out), "--onnx"], catch_exceptions=False
        )
        assert out.read_bytes() == (tmp_path / "truth.gguf").read_bytes()
        out.unlink()
    for source in (tmp_path, tmp_path / "truth.gguf", "hf:org/repo"):
        with pytest.raises(RequestError, match="is no ONNX file, and no folder with one"):
            CliRunner().invoke(
                convert_command, [str(source), str(out), "--onnx"], catch_exceptions=False
            )


def test_the_file_is_named_where_there_are_several(tmp_path: Path) -> None:
    graph, _ = om.build(tmp_path / "m", "genai", 4, 32, zeros=False)
    (tmp_path / "m" / "onnx").mkdir()
    for name in ("model.onnx", "model_q4.onnx"):
        graph.save(tmp_path / "m" / "onnx" / name)
    with pytest.raises(FormatError, match=r"2 ONNX files: .*onnx/model\.onnx, onnx/model_q4\.onnx"):
        convert(tmp_path / "m", tmp_path / "m.gguf")
    convert(tmp_path / "m" / "onnx" / "model_q4.onnx", tmp_path / "m.gguf")
    assert _core.GgufFile(str(tmp_path / "m.gguf")).get("general.name") == "m"
    with pytest.raises(RequestError, match="would be converted"):
        convert(tmp_path / "m" / "onnx" / "model.onnx", tmp_path / "m" / "onnx" / "model.onnx")
    set_config(tmp_path / "m", model_type="llama")
    with pytest.raises(UnsupportedError, match="model_type is 'llama'"):
        convert(tmp_path / "m" / "onnx" / "model.onnx", tmp_path / "m.gguf")


def test_zero_points_may_be_floats(tmp_path: Path) -> None:
    graph, _ = om.build(tmp_path / "m", "genai", 4, 32, zeros=True)
    graph.nodes = [n for n in graph.nodes if n.name != NODE]
    graph.tensors = [t for t in graph.tensors if not t.name.startswith(TENSOR)]
    pack = om.random_pack(np.random.default_rng(0), (128, 256), 4, 32, True)
    assert pack.zeros is not None
    graph.product(NODE, TENSOR, pack, zeros=pack.zeros.astype(np.float16))
    graph.save(tmp_path / "m" / "model.onnx")
    convert(tmp_path / "m", tmp_path / "m.gguf", dtype="f32")
    assert np.array_equal(decoded(tmp_path / "m.gguf", NAME)[1], pack.values())
