"""bench/sass.py counts the instructions of loops; truth is code whose loops were counted by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import sass
import sass_code


def found(tool: str) -> bool:
    try:
        sass.tool(tool)
    except FileNotFoundError:
        return False
    return True


needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None or not found("ptxas") or not found("nvdisasm"),
    reason="needs nvcc, ptxas and nvdisasm (pip install '.[sass]')",
)

# A loop of 7 instructions around one of 4. The outer one's IDP are on one side of a branch, with one
# instruction more where P2 holds; the inner one is left by a call of a label, as sm_80 does it.
NESTED = """
	.section	.text.nested,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=8"
.text.nested:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   ISETP.NE.AND P0, PT, R2, RZ, PT ;
        /*0020*/               @P0 BRA `(.L_x_2) ;
        /*0030*/                   IDP.4A.S8.S8 R3, R4, R5, R3 ;
        /*0040*/                   IDP.4A.S8.S8 R3, R4, R6, R3 ;
        /*0050*/                   BRA P2, `(.L_x_2) ;
        /*0060*/                   IADD3 R7, R7, 0x1, RZ ;
.L_x_2:
        /*0070*/                   FFMA R8, R8, R9, R9 ;
        /*0080*/                   BRA.DIV ~URZ, `(.L_x_5) ;
        /*0090*/               @P1 CALL.REL.NOINC `(.L_x_3) ;
        /*00a0*/                   BRA `(.L_x_2) ;
.L_x_3:
        /*00b0*/               @P3 BRA `(.L_x_1) ;
        /*00c0*/               @P4 CALL.REL.NOINC `($__internal_0_$slow) ;
        /*00d0*/                   EXIT ;
.L_x_4:
        /*00e0*/                   BRA `(.L_x_4);
.L_x_5:
        /*00f0*/                   FFMA R1, R1, R1, R1 ;
        /*0100*/                   BRA `(.L_x_2) ;
"""


def test_a_loop_is_counted_without_its_inner_loops_and_slow_paths() -> None:
    (lines,) = sass_code.functions_of(NESTED).values()
    blocks = sass_code.blocks_of(lines)
    outer, inner = sorted(sass_code.loops_of(blocks), key=lambda loop: loop.header)
    loops = [outer, inner]
    assert sass_code.round_of(blocks, loops, inner, "FFMA") == sass_code.Round(1, 4, 4)
    # ISETP, BRA, two IDP, BRA, BRA, and the IADD3 that a jump may leave out.
    assert sass_code.round_of(blocks, loops, outer, "IDP") == sass_code.Round(2, 6, 7)
    assert sass_code.round_of(blocks, loops, outer, "FFMA") == sass_code.Round(0, 3, 7)


def test_parts_take_their_share_of_the_dearest_path() -> None:
    (lines,) = sass_code.functions_of(NESTED).values()
    parts = (sass.Part("products", "IDP", 4, rare=0.5), sass.Part("sums", "FFMA", 3))
    costs = sass.cost_of(parts, sass_code.blocks_of(lines))
    assert costs == {"products": 6.5 * 4 / 2, "sums": 4 * 3}
    with pytest.raises(ValueError, match="no loops in this order"):
        sass.cost_of(parts[::-1], sass_code.blocks_of(lines))


def test_what_is_no_tree_of_loops_is_refused() -> None:
    second_entry = NESTED.replace("MOV R1, c[0x0][0x28]", "@P0 BRA `(.L_x_2)")
    assert second_entry != NESTED
    (lines,) = sass_code.functions_of(second_entry).values()
    with pytest.raises(ValueError, match="two entries"):
        sass_code.loops_of(sass_code.blocks_of(lines))
    table = NESTED.replace("BRA P2, `(.L_x_2)", "BRX R2 -0x10")
    (lines,) = sass_code.functions_of(table).values()
    with pytest.raises(ValueError, match="BRX"):
        sass_code.blocks_of(lines)


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "warps"),
    [
        (80, 128, 40, 2112, 48),  # registers: 12 blocks
        (80, 256, 32, 0, 64),  # warps
        (86, 32, 16, 0, 16),  # blocks
        (90, 256, 32, 48 << 10, 32),  # 4 x 49 KiB of 228
        (120, 128, 128, 20864, 16),  # 4 blocks by registers and by shared memory
    ],
)
def test_occupancy(arch: int, threads: int, registers: int, shared: int, warps: int) -> None:
    assert sass.warps_of(arch, threads, registers, shared) == warps


def test_loads_and_stores_by_width() -> None:
    opcodes = ("LDG.E.CONSTANT", "LDG.E.U16.CONSTANT", "LDG.E.128", "STS.64", "LDS", "FFMA")
    code = [sass_code.Instruction(opcode, False, "") for opcode in opcodes]
    assert sass.widths_of(code) == {
        "LDG": {16: 1, 32: 1, 128: 1},
        "LDS": {32: 1},
        "STS": {64: 1},
    }


def test_each_kernel_has_a_budget() -> None:
    budgets = json.loads(sass.BUDGETS.read_text())
    assert budgets.keys() == sass.KERNELS.keys()
    for budget in budgets.values():
        assert budget.keys() == {"instructions", "registers", "spills", "shared"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--archs", "90,70"], "--archs 70: the architectures are 80, 86"),
        (["--kernels", "gemv_q1_2"], "gemv_q1_2 has no entry in"),
    ],
)
def test_what_is_not_counted_is_named(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        sass.main(options)
    assert said in capsys.readouterr().err


# Five products a round, which nothing removes; a counter, a comparison and a branch.
HAND_WRITTEN = """
extern "C" __global__ void counted(int n, int* y) {
  int sum = 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int j = 0; j < 5; ++j)
      asm volatile("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(n), "r"(j + 9));
  }
  *y = sum;
}
"""


@needs_nvcc
@pytest.mark.slow
def test_a_kernel_that_was_counted_by_hand(tmp_path: Path) -> None:
    machine = sass.Compiler(tmp_path).compile(HAND_WRITTEN, ["counted"], 90)
    assert machine.resources["counted"]["spills"] == 0
    blocks = sass_code.blocks_of(machine.functions["counted"])
    (loop,) = sass_code.loops_of(blocks)
    assert sass_code.round_of(blocks, [loop], loop, "IDP") == sass_code.Round(5, 8, 8)


@needs_nvcc
@pytest.mark.slow
def test_a_kernel_above_its_budget_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--archs", "90", "--kernels", "gemv_q1_1", "--json", str(tmp_path / "report.json")]
    assert sass.main(options) == 0
    (line,) = json.loads((tmp_path / "report.json").read_text())
    assert 1 < line["parts"]["products"] < line["instructions"] < 10
    assert line["widths"]["LDG"]["32"] > 0

    budgets: dict[str, dict[str, Any]] = json.loads(sass.BUDGETS.read_text())
    budgets["gemv_q1_1"]["registers"] = line["registers"] - 1
    overrun = tmp_path / "budgets.json"
    overrun.write_text(json.dumps(budgets))
    assert sass.main([*options, "--budgets", str(overrun)]) == 1
    said = capsys.readouterr().err
    most = line["registers"] - 1
    assert said == f"gemv_q1_1 on sm_90: registers {most + 1}, the budget is {most}\n"
