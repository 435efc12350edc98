"""The names that ``--device`` and ``OXIBONSAI_DEVICE`` take; imported without the core."""

from __future__ import annotations

_NUMBER = r"(:(0|[1-9]\d{0,2}))?"
_CUDA = rf"cuda{_NUMBER}"
DEVICE_PATTERN = rf"auto|cpu|metal|opencl{_NUMBER}|{_CUDA}(,{_CUDA})*"
