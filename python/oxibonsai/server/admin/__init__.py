"""What operators need: probes, metrics, logs and the OpenAPI document."""
