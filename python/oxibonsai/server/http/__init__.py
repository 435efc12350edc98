"""HTTP below the application: what is built on the inner parts of gunicorn's threaded worker."""
