"""Make the model write JSON that fits a schema, whatever the model is."""

import json

import oxibonsai

schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
        "animal": {"enum": ["fox", "duck", "robot"]},
    },
    "required": ["name", "age", "animal"],
    "additionalProperties": False,
}
options = oxibonsai.Options(structure=oxibonsai.Structure.json_schema(schema))
params = oxibonsai.SamplingParams(max_tokens=120, temperature=0.7, seed=1)

with oxibonsai.load("seedling-ternary") as engine:
    text = "".join(engine.generate("The hero of the story as JSON: ", params, options))

hero = json.loads(text)
print(hero)
assert hero["animal"] in schema["properties"]["animal"]["enum"]
