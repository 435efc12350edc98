"""Runs every case of the official Python client against a server, in any environment that has it.

    python openai_matrix.py URL MODEL [CASE...]

Prints a JSON object: how many calls of cases passed, and what went wrong with each that failed.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from typing import Any

import openai
import openai_chat
import openai_resources

# The assistants are deprecated at OpenAI, and here to stay.
warnings.filterwarnings("ignore", category=DeprecationWarning)


def main() -> None:
    url, model, *only = sys.argv[1:]
    client = openai.OpenAI(
        base_url=url, api_key="none", max_retries=0, timeout=120, _strict_response_validation=True
    )
    failures: dict[str, str] = {}
    passed = 0
    for case in (*openai_chat.CASES, *openai_resources.CASES):
        for stream in (False, True):
            name = f"{case.__name__}{' as a stream' * stream}"
            if only and case.__name__ not in only:
                continue
            try:
                case(client, model, stream)
            except Exception:
                failures[name] = traceback.format_exc(limit=-4)
            else:
                passed += 1
    report: dict[str, Any] = {"client": openai.__version__, "passed": passed, "failures": failures}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
