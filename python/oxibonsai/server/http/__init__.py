"""HTTP below the application: gunicorn's threaded worker with deadlines, streams, disconnects."""
