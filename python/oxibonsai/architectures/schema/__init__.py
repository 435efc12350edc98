"""What a family of models is written in: fields, tensors with reversible operations, the family itself."""
