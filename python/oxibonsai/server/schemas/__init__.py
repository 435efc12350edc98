"""Schema parts that the request bodies of several APIs share."""
