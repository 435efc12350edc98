"""Two machines with a slow link between them that loses packets give the text of one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (extra: hf)")
import processes
import slow_link

import oxibonsai
from oxibonsai import SamplingParams

pytestmark = [pytest.mark.slow, pytest.mark.hf]

PROMPT, TOKENS = "ab", 24


@pytest.mark.parametrize("flag", ["--tensor-parallel", "--pipeline-parallel"])
def test_the_text_is_that_of_one_process(flag: str, tiny_path: Path) -> None:
    if reason := slow_link.reason_against():
        pytest.skip(reason)
    engine = oxibonsai.load(tiny_path, parity="off")
    params = SamplingParams(max_tokens=TOKENS, temperature=0.8, seed=3)
    expected = "".join(engine.generate(PROMPT, params))
    assert expected
    with slow_link.SlowLink(delay=0.005, loss=0.01) as link:
        port = str(processes.free_port())
        ranks = [
            subprocess.Popen(
                [
                    "ip", "netns", "exec", name, sys.executable, "-m", "oxibonsai.distributed",
                    "run", flag, "2", "--interface", link.interface, "--start-timeout", "120",
                    "--model", tiny_path, "--prompt", PROMPT, "--max-tokens", str(TOKENS),
                    "--temperature", "0.8", "--seed", "3", "--parity", "off",
                ],
                env=processes.environment(
                    rank, 2, int(port),
                    {"MASTER_ADDR": link.addresses[0], "GLOO_SOCKET_IFNAME": link.interface},
                ),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank, name in enumerate(link.names)
        ]  # fmt: skip
        results = processes.finish(ranks, 200)
    assert [code for code, _, _ in results] == [0, 0], [r[2] for r in results]
    assert results[0][1] == expected + "\n"
    assert link.carried > 100
    assert link.lost > 0
