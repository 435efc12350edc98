"""The HTTP server: Flask under gunicorn, one worker process, a blueprint a resource.

It owns no engine logic: a :class:`~oxibonsai.server.backend.Backend` does the work.
"""
