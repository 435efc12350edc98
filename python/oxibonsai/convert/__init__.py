"""Folders of Hugging Face models to GGUF files.

Nothing is imported here: threads of a server may be the first to import several of these modules at
the same time, which deadlocks where a package imports its own modules.
"""
