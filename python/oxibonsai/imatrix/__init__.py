"""Importance matrices: which columns of a weight matter most, by the inputs that it meets."""

from __future__ import annotations

from oxibonsai.imatrix.collection import collect
from oxibonsai.imatrix.file_formats import read_imatrix, write_imatrix
from oxibonsai.imatrix.matrix import Entry, Imatrix

__all__ = ["Entry", "Imatrix", "collect", "read_imatrix", "write_imatrix"]
