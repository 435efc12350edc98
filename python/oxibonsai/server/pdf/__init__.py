"""PDF files: their pages, read in a process of their own."""

from __future__ import annotations

from oxibonsai.server.pdf.reader import MOST_BYTES, MOST_PAGE_BYTES, Allowance, Page, PdfReader

__all__ = ["MOST_BYTES", "MOST_PAGE_BYTES", "Allowance", "Page", "PdfReader"]
