"""Answer many prompts at once, with vLLM-style results.

A text is the same alone and in a batch, so the batch changes nothing but the time it takes.
"""

import oxibonsai

prompts = ["Once upon a time", "In a small town", "One night, a little robot"]
params = oxibonsai.SamplingParams(max_tokens=30, temperature=0.7, seed=1)

with oxibonsai.LLM("seedling-ternary") as llm:
    together = llm.generate(prompts, params)
    for output in together:
        print(output.prompt + output.outputs[0].text)
    alone = [llm.generate([prompt], params)[0] for prompt in prompts]

assert [o.outputs[0].token_ids for o in together] == [o.outputs[0].token_ids for o in alone]
