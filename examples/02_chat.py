"""Hold a conversation: messages in, pieces of an answer out."""

import oxibonsai

params = oxibonsai.SamplingParams(max_tokens=60, temperature=0.7, seed=1)
messages = []

with oxibonsai.load("seedling-ternary") as engine:
    for question in ("Tell me a story about a clever fox and a red ball.", "What is a bird?"):
        messages.append({"role": "user", "content": question})
        print(f"> {question}")
        reply = engine.chat(messages, params)
        for delta in reply:
            print(delta.content or "", end="", flush=True)
        print(f"\n[{reply.finish_reason}]\n")
        messages.append({"role": "assistant", "content": reply.reply.content})
