"""Write the GPU kernels into a C++ file: their source in one piece, PTX with nvcc, SPIR-V with clang.

usage: embed_kernels.py CSRC OUTPUT [--nvcc NVCC] [--clang CLANG --llvm-spirv LLVM_SPIRV]
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from split_spirv import split

ENTRY = "gpu/kernels/all.h"
# What NVRTC and Metal never read: threads on the CPU, C++ for OpenCL.
LEFT_OUT = {"gpu/dialect_emulator.h", "gpu/dialect_opencl.h"}
# Compute capability, and the oldest PTX version that has what the kernels for it use (mma.sync with
# int8 from 6.5 on, with 32 of them from 7.0 on). nvcc writes its own version, which older drivers
# refuse whatever is inside.
GENERATIONS = ((75, "6.5"), (80, "7.0"))
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true"]
# Loops of which a template makes nothing.
FLAGS.append("-diag-suppress=128,186")
OPENCL_ENTRY = "opencl/kernels.h"
# The translator knows no optimized code. -fwrapv: without a decoration that SPIR-V 1.3 lacks.
CLANG_FLAGS = [
    "-x",
    "clcpp",
    "-cl-std=CLC++2021",
    "-target",
    "spir64",
    "-ffp-contract=off",
    "-fwrapv",
]
CLANG_FLAGS += ["-Xclang", "-finclude-default-header", "-Xclang", "-disable-llvm-passes"]
# Extensions that clang's header of built-in functions declares nothing without.
CLANG_FLAGS += ["-Dcl_khr_subgroup_shuffle", "-Dcl_khr_subgroup_shuffle_relative"]
LITERAL = 16_000  # characters of a piece

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def amalgamate(root: Path, name: str, seen: set[str]) -> str:
    """Return a file with all files of ours that it includes, each once."""
    seen.add(name)
    lines = []
    for line in (root / name).read_text().splitlines():
        found = _INCLUDE.match(line)
        if found is None:
            lines.append("" if line.strip() == "#pragma once" else line)
        elif found[1] in LEFT_OUT:
            lines.append("#error not for this compiler")
        elif found[1] not in seen:
            lines.append(amalgamate(root, found[1], seen))
    return "\n".join(lines) + "\n"


def compile_ptx(nvcc: str, source: str, generation: int, version: str) -> str:
    """PTX under the oldest version that the toolkit's own assembler takes for it."""
    with tempfile.TemporaryDirectory() as folder:
        code, ptx = Path(folder, "kernels.cu"), Path(folder, "kernels.ptx")
        code.write_text(source)
        arch = f"-arch=compute_{generation}"
        subprocess.run([nvcc, "-ptx", arch, *FLAGS, "-o", ptx, code], check=True)
        text = ptx.read_text()
        older = relabelled(text, version)
        ptx.write_text(older)
        ptxas = Path(nvcc).resolve().with_name("ptxas")
        check: list[str | Path] = [ptxas, f"--gpu-name=sm_{generation}", "-o", "/dev/null", ptx]
        accepted = ptxas.exists() and subprocess.run(check, capture_output=True).returncode == 0
        if not accepted:
            print(f"warning: the PTX for sm_{generation} asks for a recent driver", file=sys.stderr)
        return strip_comments(older if accepted else text)


def relabelled(ptx: str, version: str) -> str:
    """PTX under an older version, without the hints of newer ones."""
    ptx = re.sub(r'^\s*\.pragma "used_bytes_mask [^\n]*\n', "", ptx, flags=re.MULTILINE)
    return re.sub(r"^\.version .*$", f".version {version}", ptx, count=1, flags=re.MULTILINE)


def embedded_ptx(nvcc: str, source: str) -> list[tuple[int, str]]:
    """Return the PTX of each generation; nvcc compiles them side by side."""
    with ThreadPoolExecutor() as pool:
        jobs = [(g, pool.submit(compile_ptx, nvcc, source, g, v)) for g, v in GENERATIONS]
        return [(generation, job.result()) for generation, job in jobs]


def compile_spirv(clang: str, llvm_spirv: str, csrc: Path) -> bytes:
    """Return all kernels as one module, none of which may fuse a product and a sum."""
    with tempfile.TemporaryDirectory() as folder:
        code, bitcode, module = (Path(folder, f"kernels.{end}") for end in ("clcpp", "bc", "spv"))
        code.write_text(f'#include "{OPENCL_ENTRY}"\n')
        compiler: list[str | Path] = [clang, *CLANG_FLAGS, f"-I{csrc}", "-emit-llvm"]
        subprocess.run([*compiler, "-c", code, "-o", bitcode], check=True)
        translator: list[str | Path] = [llvm_spirv, "--spirv-max-version=1.4"]
        translator += ["--spirv-fp-contract=off", bitcode, "-o", module]
        subprocess.run(translator, check=True)
        return module.read_bytes()


def strip_comments(ptx: str) -> str:
    lines = (re.sub(r"\s*//.*$", "", line) for line in ptx.splitlines())
    return "\n".join(line for line in lines if line.strip()) + "\n"


def literal(text: str) -> str:
    pieces = [text[i : i + LITERAL] for i in range(0, len(text), LITERAL)] or [""]
    return "\n".join(f'R"oxi({piece})oxi"' for piece in pieces)


def array(name: str, data: bytes) -> str:
    """Return xz of the data as an array in C++."""
    import lzma  # some builds of Python lack it, and without PTX and SPIR-V nothing needs it

    return f"const unsigned char {name}[] = {{{','.join(map(str, lzma.compress(data)))}}};\n"


def view(name: str) -> str:
    """Return such an array as a `std::string_view`."""
    return f"{{reinterpret_cast<const char*>({name}), sizeof {name}}}"


def main(csrc: Path, output: Path, nvcc: str, clang: str, llvm_spirv: str) -> None:
    """Write the file."""
    source = amalgamate(csrc, ENTRY, set())
    ptx = embedded_ptx(nvcc, source) if nvcc else []
    spirv = split(compile_spirv(clang, llvm_spirv, csrc)) if clang else {}
    digest = hashlib.blake2b(repr((source, ptx, spirv)).encode(), digest_size=8).hexdigest()
    arrays = [array(f"kPtx{g}", text.encode()) for g, text in ptx]
    if spirv:
        arrays.append(array("kSpirv", b"".join(spirv.values())))
    modules = "".join(f"      {{{g}, {view(f'kPtx{g}')}}},\n" for g, _ in ptx)
    kernels = "".join(f'      {{"{name}", {len(module)}}},\n' for name, module in spirv.items())
    output.write_text(
        f"""// Made by cmake/embed_kernels.py.
#include "gpu/embedded_kernels.h"

namespace oxibonsai::gpu {{
namespace {{

const char kSource[] =
{literal(source)};

{"".join(arrays)}
}}  // namespace

std::string_view kernel_source() {{ return {{kSource, sizeof kSource - 1}}; }}

std::string_view kernel_digest() {{ return "{digest}"; }}

const std::vector<EmbeddedPtx>& embedded_ptx() {{
  static const std::vector<EmbeddedPtx> all = {{
{modules}  }};
  return all;
}}

const EmbeddedSpirv& embedded_spirv() {{
  static const EmbeddedSpirv all = {{{view("kSpirv") if spirv else "{}"}, {{
{kernels}  }}}};
  return all;
}}

}}  // namespace oxibonsai::gpu
"""
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("csrc", type=Path)
    parser.add_argument("output", type=Path)
    for tool in ("--nvcc", "--clang", "--llvm-spirv"):
        parser.add_argument(tool, default="")
    main(**vars(parser.parse_args()))
