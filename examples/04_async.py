"""Share one engine between coroutines, as a web application does."""

import asyncio

import oxibonsai


async def tell(llm: oxibonsai.AsyncLLM, prompt: str) -> str:
    params = oxibonsai.SamplingParams(max_tokens=30, temperature=0.7, seed=1)
    text = ""
    async for output in llm.generate(prompt, params):
        text = output.outputs[0].text  # the text so far
    return prompt + text


async def main() -> None:
    async with oxibonsai.AsyncLLM("seedling-ternary") as llm:
        prompts = ("Once upon a time", "One day, a big dog")
        for story in await asyncio.gather(*(tell(llm, prompt) for prompt in prompts)):
            print(story)


asyncio.run(main())
