"""The schema of a family: its fields, its tensors with reversible operations, the family itself."""
