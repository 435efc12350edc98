"""The layer table of the design: a lower layer never imports an upper one. And the house limits."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

NATIVE = {
    "base": set(),
    "quant": {"base"},
    "format": {"base", "quant"},
    "graph": {"base", "quant"},
    "cpu": {"base", "quant", "graph"},
    "gpu": {"base", "quant", "graph"},
    "cuda": {"base", "gpu"},
    "metal": {"base", "gpu"},
    "opencl": {"base", "gpu"},
    "sampling": {"base", "cpu"},
    "recorded": {"base", "quant", "graph", "cpu", "sampling"},
    "web": {"base", "recorded"},
    "program": {"base", "recorded"},
    "bindings": {
        "base",
        "quant",
        "format",
        "graph",
        "cpu",
        "gpu",
        "cuda",
        "metal",
        "opencl",
        "sampling",
    },
}

_FILES = {"errors", "files", "sources", "checkpoint", "graph", "_core"}
_TEXT = {"tokenizer", "chat_template", "sampling", "structured", "output"}
_BELOW_ENGINE = (
    _FILES
    | _TEXT
    | {"architectures", "devices", "known_models", "lora", "models", "loading", "vision"}
)
_BELOW_SERVER = _BELOW_ENGINE | {
    "engine",
    "chat",
    "diffusion",
    "serial_queue",
    "device_names",
    "kv_types",
    "mcp",
}
PYTHON = {
    "errors": set(),
    "serial_queue": {"errors"},
    "device_names": set(),
    "kv_types": {"errors"},
    "files": {"errors"},
    "sources": {"errors", "files"},
    "checkpoint": {"errors", "files", "_core"},
    "devices": {"errors", "device_names", "files", "_core"},
    "kernels": {"errors", "devices", "_core"},
    "graph": {"errors", "_core"},
    "split": {"errors", "files", "checkpoint", "_core"},
    "lora": {"errors", "checkpoint", "_core"},
    "architectures": {"errors", "checkpoint", "graph", "_core"},
    "models": {
        "errors",
        "files",
        "checkpoint",
        "devices",
        "graph",
        "lora",
        "architectures",
        "_core",
    },
    "vision": {
        "errors",
        "serial_queue",
        "files",
        "sources",
        "checkpoint",
        "devices",
        "graph",
        "models",
        "tokenizer",
        "_core",
    },
    "quantize": {"errors", "files", "checkpoint", "_core"},
    "convert": {
        "errors",
        "files",
        "checkpoint",
        "graph",
        "tokenizer",
        "quantize",
        "architectures",
        "models",
        "_core",
    },
    "loading": {
        "errors",
        "files",
        "sources",
        "checkpoint",
        "devices",
        "lora",
        "models",
        "tokenizer",
        "vision",
        "convert",
        "quantize",
    },
    "export": {
        "errors",
        "files",
        "checkpoint",
        "architectures",
        "models",
        "convert",
        "split",
        "tokenizer",
        "chat_template",
        "sampling",
        "_core",
    },
    "finetune": {"errors", "files", "convert", "models", "loading", "hf"},
    "distill": {
        "errors",
        "files",
        "checkpoint",
        "devices",
        "loading",
        "convert",
        "export",
        "quantize",
        "hf",
        "finetune",
        "train",
        "_core",
    },
    "merging": {"errors", "files", "sources", "devices", "loading", "convert", "export"},
    "tokenizer": {"errors", "files", "checkpoint", "_core"},
    "chat_template": {"errors"},
    "sampling": {"errors", "_core"},
    "known_models": {"errors", "kv_types", "sampling"},
    "structured": {"errors", "files", "serial_queue", "tokenizer"},
    "output": {"errors", "structured"},
    "mcp": {"errors", "output"},
    "engine": _BELOW_ENGINE | {"kv_types", "serial_queue"},
    "chat": _BELOW_ENGINE | {"engine"},
    "diffusion": _BELOW_ENGINE | {"convert", "quantize"},
    "evaluate": {"errors", "engine", "loading", "tokenizer", "chat", "chat_template", "sampling"},
    "imatrix": {"errors", "files", "engine", "models", "_core"},
    "prune": {
        "errors",
        "devices",
        "checkpoint",
        "graph",
        "architectures",
        "models",
        "engine",
        "quantize",
        "_core",
    },
    "calibrate": {"errors", "files", "devices", "engine", "models", "quantize", "_core"},
    "train": {"errors", "files", "convert"},
    "hf": _BELOW_ENGINE | {"engine", "chat", "export", "kernels"},
    "llm": {"errors", "tokenizer", "sampling", "output", "engine", "chat"},
    "loadtest": {"errors", "files"},
    "server": _BELOW_SERVER | {"quantize"},
    "cli": _BELOW_SERVER
    | {
        "hf",
        "evaluate",
        "convert",
        "export",
        "quantize",
        "split",
        "loadtest",
        "server",
        "imatrix",
        "calibrate",
        "finetune",
        "distill",
        "merging",
        "prune",
        "train",
    },
    "distributed": {
        "errors",
        "checkpoint",
        "devices",
        "lora",
        "models",
        "loading",
        "sampling",
        "engine",
        "server",
        "_core",
    },
    "ray_app": {"errors", "server"},
    "serve": {"cli"},
    "__main__": {"cli"},
}

# Inside the server: what a folder may use of the others. "" are the modules beside the folders,
# ASSEMBLY those of them that put everything together and that nothing else may use.
SERVER = {
    "http": {"error_types", "lifecycle", "settings"},
    "stores": {"rate_limit"},
    "schemas": set(),
    "registry": {
        "adapters",
        "backend",
        "circuit_breaker",
        "errors",
        "generation_metrics",
        "submitter",
        "lifecycle",
        "limits",
        "model_settings",
        "pdf",
        "setting_types",
        "settings",
        "stores",
    },
    "pdf": set(),
    "": {"http", "stores", "schemas", "registry", "pdf"},
    "batches": {"", "http", "stores"},
    "openai": {"", "http", "stores", "schemas", "registry", "batches"},
    "anthropic": {"", "http", "stores", "schemas", "batches"},
    "llama_server": {"", "http", "stores", "schemas", "registry", "openai"},
    "ollama": {"", "http", "schemas", "registry", "openai"},
    "admin": {"", "stores", "schemas", "registry", "openai", "anthropic", "llama_server", "ollama"},
}
ASSEMBLY = {
    "app",
    "gunicorn_launcher",
    "launcher",
    "routes",
    "serving_process",
    "waitress_launcher",
}


def test_the_table_has_no_circle() -> None:
    left = {layer: set(used) & PYTHON.keys() for layer, used in PYTHON.items()}
    while free := {layer for layer, used in left.items() if not used}:
        left = {layer: used - free for layer, used in left.items() if layer not in free}
    assert not left, f"these import each other: {', '.join(left)}"


def native_files() -> list[Path]:
    return [p for p in sorted((ROOT / "csrc").rglob("*")) if p.suffix in (".cc", ".h")]


def python_files() -> list[Path]:
    return sorted((ROOT / "python" / "oxibonsai").rglob("*.py"))


@pytest.mark.parametrize("path", native_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_includes_point_downwards(path: Path) -> None:
    layer = path.relative_to(ROOT / "csrc").parts[0]
    included = re.findall(r'^#include "([^"/]+)/', path.read_text(), re.MULTILINE)
    assert set(included) - {layer} <= NATIVE[layer]


@pytest.mark.parametrize("path", python_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    layer = path.relative_to(ROOT / "python" / "oxibonsai").parts[0].removesuffix(".py")
    if layer == "__init__":
        return
    used = {name.split(".")[0] for name in imports(path)} - {""}
    assert used - {layer} <= PYTHON[layer]


def module_name(path: Path) -> str:
    """The name of a module inside the package; "" is the package itself."""
    parts = path.relative_to(ROOT / "python" / "oxibonsai").with_suffix("").parts
    return ".".join(p for p in parts if p != "__init__")


@cache
def modules() -> dict[str, Path]:
    """By name, "server.http.worker" say; a package by its own."""
    return {module_name(path): path for path in python_files()}


@cache
def imports(path: Path) -> frozenset[str]:
    """The package's modules that a file imports: at the top, in a function, or for types alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: write imports in full"
            names = [f"{node.module}.{a.name}" for a in node.names if a.name != "__version__"]
            known = modules().keys() | {"_core"}
            found |= {n if inside(n) in known else str(node.module) for n in names}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return frozenset(inside(n) for n in found if n.split(".")[0] == "oxibonsai")


def inside(name: str) -> str:
    return name.removeprefix("oxibonsai").removeprefix(".")


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    used = {name: imports(path) - {name} for name, path in modules().items() if name}
    while leaves := [name for name, of_it in used.items() if not of_it & used.keys()]:
        for name in leaves:
            del used[name]
    assert not used, f"a circle, or above one: {sorted(used)}"


SERVER_FOLDER = ROOT / "python" / "oxibonsai" / "server"


def in_server(name: str) -> str:
    return name.removeprefix("server").removeprefix(".")


def server_modules() -> dict[str, Path]:
    """By their names inside the server."""
    return {in_server(n): p for n, p in modules().items() if n.split(".")[0] == "server"}


@pytest.mark.parametrize("name", server_modules())
def test_server_folders_import_what_they_may(name: str) -> None:
    path = server_modules()[name]
    folder = path.relative_to(SERVER_FOLDER).parts[0] if path.parent != SERVER_FOLDER else ""
    used = {in_server(n) for n in imports(path) if n.split(".")[0] == "server"}
    if name in ASSEMBLY:
        assert used <= set(server_modules())
        return
    assert not used & ASSEMBLY
    for other in used:
        owner = other.split(".")[0] if (SERVER_FOLDER / other.split(".")[0]).is_dir() else ""
        allowed = owner == folder or owner in SERVER[folder] or other in SERVER[folder]
        assert allowed, f"{name} imports {other}"


def test_tier_files_share_only_plain_headers() -> None:
    cpu = ROOT / "csrc" / "cpu"
    folders = [
        cpu / "body",
        *(p.parent for p in cpu.glob("*/tier.cc") if p.parent.name != "scalar"),
    ]
    assert {"avx512vbmi", "neon_dotprod"} < {folder.name for folder in folders}
    allowed = {"cpu/kernel_table.h", "cpu/tile_format.h", "cpu/features.h", "cpu/tiers.h"}
    allowed |= {"simd.h", "dot.h", "bytes.h"}  # of the tier that a body is compiled for
    for path in (path for folder in folders for path in folder.iterdir()):
        for header in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            inside = header.startswith(("cpu/body/", "cpu/avx", "cpu/neon", "cpu/simd128"))
            assert inside or header in allowed, f"{path.name} includes {header}"


def test_test_files_have_names_of_their_own() -> None:
    """Pytest imports a test file by its name alone."""
    names = [p.name for p in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)


SYSTEM = ROOT / "csrc" / "base" / "os"
# Those of compilers. C++'s own have no suffix; every other one in <> is a system's.
COMPILERS = {
    "arm_neon.h",
    "cpuid.h",
    "immintrin.h",
    "stdint.h",
    "wasm_simd128.h",
    "xmmintrin.h",
}


@pytest.mark.parametrize("path", native_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_only_one_folder_includes_headers_of_the_system(path: Path) -> None:
    if path.parent == SYSTEM:
        return
    text = path.read_text()
    included = re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE)
    with_suffix = {name for name in included if re.search(r"[./]", name)}
    languages = ("pybind11/", "emscripten/", "nlohmann/")  # of Python, JavaScript and JSON
    assert {name for name in with_suffix if not name.startswith(languages)} <= COMPILERS
    assert not re.search(r"\b(_WIN32|__linux__|__APPLE__|__unix__)\b", text)


def test_the_folder_of_the_system_has_a_file_for_each() -> None:
    """One header is all that others see; each system's file defines all that it declares."""
    assert {p.name for p in SYSTEM.iterdir()} == {"os.h", "posix.cc", "wasm.cc", "windows.cc"}
    declared = re.findall(
        r"^[^/\n]*?\b(\w+)\([^;{]*\);", (SYSTEM / "os.h").read_text(), re.MULTILINE
    )
    assert "map_file" in declared
    for name in ("posix.cc", "wasm.cc", "windows.cc"):
        text = (SYSTEM / name).read_text()
        outside = re.sub(r"namespace \{.*?\}  // namespace\n", "", text, flags=re.DOTALL)
        defined = set(re.findall(r"^\w[^\n;=(]*?\b(\w+)\([^;]*?\) \{", outside, re.MULTILINE))
        assert set(declared) == defined
