"""Look at the probabilities behind a text: which tokens were close?"""

import oxibonsai

params = oxibonsai.SamplingParams(max_tokens=8, temperature=0, logprobs=True, top_logprobs=3)

with oxibonsai.LLM("seedling-ternary") as llm:
    completion = llm.generate(["Once upon a time"], params)[0].outputs[0]

for token_id, candidates in zip(completion.token_ids, completion.logprobs, strict=True):
    chosen = candidates[token_id]
    others = [c.decoded_token for i, c in candidates.items() if i != token_id]
    print(f"{chosen.decoded_token!r:12} {chosen.logprob:7.3f}   also: {others}")
