"""Use it where a program expects transformers: the same calls, numpy arrays in and out."""

import oxibonsai

model = oxibonsai.AutoModelForCausalLM.from_pretrained("seedling-ternary")
tokenizer = oxibonsai.AutoTokenizer.from_pretrained("seedling-ternary")

inputs = tokenizer("Once upon a time", return_tensors="np")
output = model.generate(**inputs, max_new_tokens=20, do_sample=False)
print(tokenizer.decode(output[0], skip_special_tokens=True))
