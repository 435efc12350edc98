"""bench/calibration.py: rows have what the files really take and cost."""

from __future__ import annotations

import pytest

import calibration
import float_model

# Matrices of each of the tiny model's two layers: q, k, v, o, and three of the feed-forward network.
WEIGHTS, DOWN = 128 * 256 * 3 + 128 * 128 * 2 + 128 * 256 * 2, 128 * 256

TYPES = "Q2_0,ffn_down=Q5_0"
OWN_BITS = (2.25 * (WEIGHTS - DOWN) + 5.5 * DOWN) / WEIGHTS


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("calibration")
    float_model.write(folder / "m.gguf")
    texts = {"a.txt": "Read while types are chosen. ", "b.txt": "What is measured, held out. "}
    for name, text in texts.items():
        (folder / name).write_text(text * 40)
    given = ["--calibration", str(folder / "a.txt"), "--held-out", str(folder / "b.txt")]
    return [str(folder / "m.gguf"), *given, "--windows", "2", "--chunks", "2"]


def rows(capsys: pytest.CaptureFixture[str]) -> tuple[str, list[list[str]]]:
    """The source's perplexity, and the table's columns."""
    first, _, _, _, *lines = capsys.readouterr().out.splitlines()
    return first.rpartition(" ")[2], [line.split(" | ") for line in lines]


def test_the_sources_own_type_costs_nothing(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    calibration.main([*words, "F32", "--ways", "gptq"])
    source, [[name, by, _, bits, kl, perplexity]] = rows(capsys)
    assert (name, by, bits) == ("F32", "--gptq", "32.00")
    assert float(kl.split()[0]) == 0.0  # in four places; the base keeps 16 bits of each logarithm
    assert perplexity == source


def test_types_of_matrices_go_before_the_mix(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    calibration.main([*words, TYPES, "--ways", "gptq"])
    _, [[name, _, _, bits, *_]] = rows(capsys)
    assert (name, bits) == (TYPES, f"{OWN_BITS:.2f}")


@pytest.mark.slow
def test_targets_are_kept(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    calibration.main([*words, TYPES, "--ways", "--target-bits", "0", "4.5"])
    _, [same, more] = rows(capsys)
    assert same[:2] == [TYPES, "--gptq --target-bits (the same)"]
    assert more[:2] == [TYPES, "--gptq --target-bits (4.5)"]
    assert float(same[3]) <= round(OWN_BITS, 2) < float(more[3]) <= 4.5
    less_lost, most_lost = (float(row[4].split()[0]) for row in (more, same))
    assert less_lost < most_lost


def test_words_that_are_no_types_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        calibration.main(["m.gguf", "Q2_0,ffn_down"])
    assert "Q2_0,ffn_down is no TYPE[,REGEX=TYPE...]" in capsys.readouterr().err
