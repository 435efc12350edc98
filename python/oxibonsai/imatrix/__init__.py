"""Importance matrices: which columns of a weight matter most, by the inputs that it meets."""

from __future__ import annotations

from oxibonsai.imatrix.collection import collect
from oxibonsai.imatrix.gguf_format import write_imatrix
from oxibonsai.imatrix.matrix import Entry, Imatrix
from oxibonsai.imatrix.reader import read_imatrix

__all__ = ["Entry", "Imatrix", "collect", "read_imatrix", "write_imatrix"]
