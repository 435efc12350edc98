"""PDF files, written by reportlab."""

from __future__ import annotations

import io

from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas


def pdf_file(pages: list[str | Image.Image], *, password: str | None = None) -> bytes:
    """Return a file of pages with a text or a picture each."""
    file = io.BytesIO()
    canvas = Canvas(file, encrypt=password)
    for page in pages:
        if isinstance(page, str):
            for i, line in enumerate(page.splitlines()):
                canvas.drawString(72, 720 - 14 * i, line)
        else:
            canvas.drawImage(ImageReader(page), 0, 0, 200, 300)
        canvas.showPage()
    canvas.save()
    return file.getvalue()
