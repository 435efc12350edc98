"""Images of prompts.

Nothing is imported here: a server of texts reads only the modules that its routes need.
"""
