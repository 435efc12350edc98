"""Every published Bonsai and Bonsai 2: files, what they need, and what their makers say of them.

Sizes of files that could not be seen are computed from the shapes, which ``exact`` tells apart. No other
number is made here but sums and products of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.kv_types import suited_kv_type

_KIB, _MB = 1024, 10**6
_BITS = {"Q1_0": 1.125, "Q2_0_g64": 2.25, "PQ2_0": 2.125, "PTQ1_0": 1.75}


@dataclass(frozen=True)
class Size:
    """The facts that files of one model share.

    Attributes:
        name: With the family's.
        billions: Parameters, in 10^9.
        table: Parameters of the table of tokens, in 10^9, of which one row is read for a token; 0: it is
            the output matrix, too.
        kv_kib: Keys and values of a token in float16.
        state_mb: Recurrent state of a sequence, in 10^6 bytes.
        abilities: Of the model: pictures, thinking, tools; with a question mark where nothing says so.
        qualities: By the kind of weights, as its makers report it.
    """

    name: str
    billions: float
    table: float
    kv_kib: int
    state_mb: float
    abilities: tuple[str, ...]
    qualities: dict[str, str]


@dataclass(frozen=True)
class PublishedFile:
    """One file.

    Attributes:
        size: Of the model.
        weights: ``"1 bit"`` or ``"ternary"``.
        repository: On the hub.
        file: Its name there.
        type: Of its matrices.
        bytes: Its size.
        exact: Whether that is the published number; else it is computed.
    """

    size: Size
    weights: str
    repository: str
    file: str
    type: str
    bytes: int
    exact: bool

    @property
    def name(self) -> str:
        """The name that ``--model`` takes."""
        choice = self.type if self.type in self.file else self.file
        return f"hf:{self.repository}:{choice}"

    @property
    def quality(self) -> str:
        """Return what its makers report."""
        return self.size.qualities.get(self.weights, "not published")

    def memory(self, context: int) -> int:
        """Return the bytes that the file takes with a sequence of so many tokens."""
        f16 = self.size.kv_kib * _KIB
        per_token = 2 * f16 if suited_kv_type(2 * f16) == "f32" else f16
        return int(self.bytes + context * per_token + self.size.state_mb * _MB)

    def tokens_per_second(self, bandwidth: float) -> float:
        """Return the most tokens per second of one text, where reading the weights is all that counts.

        Args:
            bandwidth: Of the memory, bytes per second.
        """
        return bandwidth / (self.bytes - self.size.table * 1e9 * _BITS[self.type] / 8)


@dataclass(frozen=True)
class PublishedPart:
    """A published file or folder that is not one of the models' GGUF files.

    Attributes:
        size: Of the model that it belongs to.
        name: As ``--mmproj`` or ``--model`` takes it.
        option: Which of the two.
        what: What it is, for people.
        bytes: Its size.
    """

    size: Size
    name: str
    option: str
    what: str
    bytes: int


def _first(name: str, billions: float, table: float, kv_kib: int, ternary: str, one: str) -> Size:
    qualities = {
        "ternary": f"{ternary} (6 benchmarks)",
        "1 bit": f"{one} (6 benchmarks)",
    }
    return Size(f"Bonsai {name}", billions, table, kv_kib, 0.0, ("tools",), qualities)


_ALL = ("pictures", "thinking", "tools")
_UNSEEN = ("pictures?", "thinking?", "tools?")
_S17 = _first("1.7B", 1.72, 0.0, 112, "58.5", "49.6")
_S4 = _first("4B", 4.02, 0.0, 144, "70.7", "62.7")
_S8 = _first("8B", 8.19, 0.62, 144, "75.5", "70.5")
_S27 = Size(
    "Bonsai 27B", 26.9, 1.27, 64, 156.9, _ALL,
    {"ternary": "80.5 (15 benchmarks)", "1 bit": "76.1 (15 benchmarks)"},
)  # fmt: skip
_B2 = Size("Bonsai 2 2B", 1.88, 0.0, 12, 20.2, _UNSEEN, {})
_B4 = Size("Bonsai 2 4B", 4.20, 0.0, 32, 52.7, _UNSEEN, {})
_B9 = Size("Bonsai 2 9B", 8.95, 1.02, 32, 52.7, _UNSEEN, {})
_B27 = Size(
    "Bonsai 2 27B", 26.9, 1.27, 64, 156.9, _ALL,
    {"ternary": "84.8 (14 benchmarks)"},
)  # fmt: skip


def _bonsai2(size: Size, short: str, kind: str, nbytes: int, *, exact: bool) -> PublishedFile:
    return PublishedFile(
        size, "ternary", f"prism-ml/Ternary-Bonsai-2-{short}-gguf",
        f"Ternary-Bonsai-2-{short}-{kind}.gguf", kind, nbytes, exact,
    )  # fmt: skip


def _bonsai(size: Size, kind: str, nbytes: int, *, exact: bool) -> PublishedFile:
    short = size.name.removeprefix("Bonsai ")
    prefix, weights = ("", "1 bit") if kind == "Q1_0" else ("Ternary-", "ternary")
    return PublishedFile(
        size, weights, f"prism-ml/{prefix}Bonsai-{short}-gguf",
        f"{prefix}Bonsai-{short}-{kind}.gguf", kind, nbytes, exact,
    )  # fmt: skip


# Bonsai 2 first.
PUBLISHED = (
    _bonsai2(_B2, "2B", "PTQ1_0", 430 * _MB, exact=False),
    _bonsai2(_B2, "2B", "PQ2_0", 520 * _MB, exact=False),
    _bonsai2(_B4, "4B", "PTQ1_0", 940 * _MB, exact=False),
    _bonsai2(_B4, "4B", "PQ2_0", 1140 * _MB, exact=False),
    _bonsai2(_B9, "9B", "PTQ1_0", 1980 * _MB, exact=False),
    _bonsai2(_B9, "9B", "PQ2_0", 2400 * _MB, exact=False),
    _bonsai2(_B27, "27B", "PTQ1_0", 5_946_648_928, exact=True),
    _bonsai2(_B27, "27B", "PQ2_0", 7_206_168_928, exact=True),
    PublishedFile(
        _B27, "ternary", "prism-ml/Ternary-Bonsai-2-27B-gguf-dev",
        "Ternary-Bonsai-2-27B-Q2_0-prism-fork-required.gguf", "Q2_0_g64", 7_626_008_928, True,
    ),
    _bonsai(_S17, "Q1_0", 242 * _MB, exact=True),
    _bonsai(_S17, "PQ2_0", 457 * _MB, exact=True),
    _bonsai(_S4, "Q1_0", 566 * _MB, exact=True),
    _bonsai(_S4, "PQ2_0", 1069 * _MB, exact=True),
    _bonsai(_S8, "Q1_0", 1_151_820_864, exact=True),
    _bonsai(_S8, "PQ2_0", 2180 * _MB, exact=True),
    _bonsai(_S27, "Q1_0", 3790 * _MB, exact=False),
    _bonsai(_S27, "PQ2_0", 7150 * _MB, exact=False),
)  # fmt: skip
_TOWER = "hf:prism-ml/Ternary-Bonsai-2-27B-gguf:Ternary-Bonsai-2-27B-mmproj-{}.gguf".format
PARTS = (
    PublishedPart(_B27, _TOWER("BF16"), "--mmproj", "vision tower of Bonsai 2 27B in BF16", 931_145_856),
    PublishedPart(_B27, _TOWER("Q8_0"), "--mmproj", "vision tower of Bonsai 2 27B in Q8_0", 629_246_976),
    PublishedPart(
        _B27, "hf:prism-ml/Ternary-Bonsai-2-27B-mlx-2bit", "--model",
        "Bonsai 2 27B with its tower as a pack for MLX", 8_595_477_990,
    ),
)  # fmt: skip
CONTEXTS = (8192, 65536)
