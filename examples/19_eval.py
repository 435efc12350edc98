"""Measure a model on a benchmark of your own with lm-evaluation-harness (extra: eval)."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

questions = [
    {"begin": "Once upon a", "choices": ["time", "table", "teeth"], "answer": 0},
    {"begin": "The dog ran after the", "choices": ["of", "cat", "and"], "answer": 1},
    {"begin": "She was very", "choices": ["the", "were", "happy"], "answer": 2},
    {"begin": "They played in the", "choices": ["park", "did", "she"], "answer": 0},
]
task = """
task: story_words
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: begin
doc_to_choice: choices
doc_to_target: answer
"""

with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "story_words.yaml").write_text(task)
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    (Path(folder) / "questions.jsonl").write_text(lines)
    command = [
        sys.executable,
        "-m",
        "oxibonsai",
        "eval",
        "seedling-ternary",
        "--tasks",
        "story_words",
    ]
    done = subprocess.run(
        [*command, "--include-path", ".", "--json"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )

score = json.loads(done.stdout)["results"]["story_words"]
print(f"accuracy {score['acc,none']:.2f} ± {score['acc_stderr,none']:.2f}")
