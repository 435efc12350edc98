"""What request bodies look like: pydantic models, from which the OpenAPI document is made."""
