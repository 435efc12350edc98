"""Routes for operators: probes, metrics, logs and the OpenAPI document."""
