"""The names that ``--device`` and ``OXIBONSAI_DEVICE`` take; imported without the core."""

from __future__ import annotations

_CUDA = r"cuda(:(0|[1-9]\d{0,2}))?"
DEVICE_PATTERN = rf"auto|cpu|metal|{_CUDA}(,{_CUDA})*"
