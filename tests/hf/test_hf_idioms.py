"""What programs do with transformers' models and tokenizers: the same lines run on both, on the same
random weights. Each idiom gives texts, numbers, ids or tensors, which must be the same."""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest

from oxibonsai.errors import UnsupportedError
from oxibonsai.hf import CausalLM, PreTrainedTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.hf, pytest.mark.slow]

PROMPT = "Once upon a time there was"
PROMPTS = ["Once upon a time", "the", "Hello there!"]
CHAT = [{"role": "user", "content": "Hello"}]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
SHORT: dict[str, Any] = {"max_new_tokens": 8, "pad_token_id": 0, "do_sample": False}

IDIOMS: dict[str, Callable[[Any, Any], Any]] = {}


def idiom(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    IDIOMS[function.__name__] = function
    return function


@idiom
def encode_generate_decode(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt").to(model.device)
    output = model.generate(**inputs, **SHORT)
    return tokenizer.decode(output[0], skip_special_tokens=True)


@idiom
def a_padded_batch_and_its_new_tokens(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPTS, return_tensors="pt", padding=True)
    output = model.generate(**inputs, **SHORT)
    return tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :])


@idiom
def a_conversation(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer.apply_chat_template(
        CHAT, chat_template=TEMPLATE, return_tensors="pt", return_dict=True
    )
    return model.generate(**inputs, **SHORT)


@idiom
def conversations_as_texts(model: Any, tokenizer: Any) -> Any:
    return tokenizer.apply_chat_template([CHAT, CHAT * 2], chat_template=TEMPLATE, tokenize=False)


@idiom
def perplexity_of_a_text(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    with torch.no_grad():
        return model(**inputs, labels=inputs["input_ids"]).loss


@idiom
def perplexity_in_windows(model: Any, tokenizer: Any) -> Any:
    ids = tokenizer(PROMPT * 3, return_tensors="pt").input_ids
    losses, before = [], 0
    for begin in range(0, ids.size(1), 8):
        end = min(begin + 16, ids.size(1))
        window = ids[:, begin:end]
        labels = window.clone()
        labels[:, : -(end - before)] = -100
        with torch.inference_mode():
            losses.append(model(window, labels=labels).loss)
        before = end
        if end == ids.size(1):
            break
    return torch.stack(losses)


@idiom
def log_probability_of_a_continuation(model: Any, tokenizer: Any) -> Any:
    context, whole = tokenizer(PROMPT).input_ids, tokenizer(f"{PROMPT} a king").input_ids
    with torch.no_grad():
        logits = model(torch.tensor([whole])).logits.log_softmax(-1)
    places = range(len(context) - 1, len(whole) - 1)
    return torch.stack([logits[0, i, whole[i + 1]] for i in places]).sum()


@idiom
def the_likeliest_next_tokens(model: Any, tokenizer: Any) -> Any:
    logits = model(**tokenizer(PROMPT, return_tensors="pt")).logits[0, -1]
    found = torch.softmax(logits, dim=-1).topk(5)
    return [found.values, found.indices]


@idiom
def the_best_of_several_answers(model: Any, tokenizer: Any) -> Any:
    texts = [f"{PROMPT} {end}" for end in ("a king", "no one", "rain")]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
    logits = model(**inputs).logits[:, :-1].log_softmax(-1)
    of_next = logits.gather(-1, inputs["input_ids"][:, 1:, None])[..., 0]
    return (of_next * inputs["attention_mask"][:, 1:]).sum(-1)


@idiom
def a_vector_from_hidden_states(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPTS, return_tensors="pt", padding=True, padding_side="right")
    states = model(**inputs, output_hidden_states=True).hidden_states[-1]
    mask = inputs["attention_mask"][..., None]
    return (states * mask).sum(1) / mask.sum(1)


@idiom
def how_sure_it_was_of_each_token(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    options = {"return_dict_in_generate": True, "output_scores": True, **SHORT}
    output = model.generate(**inputs, **options)
    return model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)


@idiom
def scores_of_beams(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    options = {"num_beams": 3, "num_return_sequences": 3, "return_dict_in_generate": True}
    output = model.generate(**inputs, **options, output_scores=True, **SHORT)
    return [output.sequences, output.sequences_scores]


@idiom
def hidden_states_while_generating(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    options = {"return_dict_in_generate": True, "output_hidden_states": True, **SHORT}
    return [step[-1] for step in model.generate(**inputs, **options).hidden_states]


@idiom
def printed_as_it_comes(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    with redirect_stdout(io.StringIO()) as shown:
        streamer = transformers.TextStreamer(tokenizer, skip_prompt=True)
        model.generate(**inputs, streamer=streamer, **SHORT)
    return shown.getvalue()


@idiom
def read_from_another_thread(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    streamer = transformers.TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=60)
    options = {**inputs, "streamer": streamer, **SHORT}
    thread = threading.Thread(target=model.generate, kwargs=options)
    thread.start()
    text = "".join(streamer)
    thread.join()
    return text


@idiom
def until_a_token(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    plain = model.generate(**inputs, **SHORT)[0]
    ends = transformers.StoppingCriteriaList([transformers.EosTokenCriteria(int(plain[-3]))])
    return model.generate(**inputs, stopping_criteria=ends, **SHORT)


@idiom
def words_that_must_not_come(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    plain = model.generate(**inputs, **SHORT)[0]
    banned = [[int(plain[-2])], [int(plain[-1])], *tokenizer(["the"]).input_ids]
    return model.generate(**inputs, bad_words_ids=banned, **SHORT)


@idiom
def words_that_should_come(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    bias = [[[40], 6.0], [[41, 42], 9.0]]
    return model.generate(**inputs, sequence_bias=bias, **SHORT)


@idiom
def one_of_several_texts(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    start = inputs["input_ids"].shape[1]
    allowed = tokenizer(["a king", "a queen", "rain"], add_special_tokens=False).input_ids

    def following(_: int, ids: Any) -> list[int]:
        so_far = ids[start:].tolist()
        more = {a[len(so_far)] for a in allowed if a[: len(so_far)] == so_far and a != so_far}
        return sorted(more) or [7]

    return model.generate(
        **inputs, prefix_allowed_tokens_fn=following, eos_token_id=7, **{**SHORT, "num_beams": 3}
    )


class Loud(transformers.LogitsProcessor):
    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return torch.where(torch.arange(scores.shape[-1]) % 5 == 0, scores + 4.0, scores)


@idiom
def a_processor_of_ones_own_and_draws(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    transformers.set_seed(5)
    return model.generate(
        **inputs, logits_processor=transformers.LogitsProcessorList([Loud()]), temperature=0.7,
        top_k=9, top_p=0.95, **{**SHORT, "do_sample": True},
    )  # fmt: skip


@idiom
def processors_of_the_library(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    options = {"encoder_repetition_penalty": 1.3, "renormalize_logits": True}
    options |= {"begin_suppress_tokens": [12, 40], "min_length": 9, "guidance_scale": 1.5}
    options |= {"exponential_decay_length_penalty": (2, 1.5), "eos_token_id": 90}
    return model.generate(**inputs, **options, **SHORT)


@idiom
def defaults_of_ones_own(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    config = copy.deepcopy(model.generation_config)
    config.update(max_new_tokens=5, repetition_penalty=1.3, pad_token_id=0)
    return model.generate(**inputs, generation_config=config)


@idiom
def a_prefix_that_is_read_once(model: Any, tokenizer: Any) -> Any:
    prefix = tokenizer(PROMPT, return_tensors="pt").input_ids
    with torch.no_grad():
        cache = model(prefix, use_cache=True).past_key_values
    found = []
    for end in (" a king", " a queen"):
        ids = tokenizer(end, return_tensors="pt", add_special_tokens=False).input_ids
        found.append(model(ids, past_key_values=copy.deepcopy(cache)).logits)
    return found


@idiom
def generation_after_a_cached_prefix(model: Any, tokenizer: Any) -> Any:
    prefix = tokenizer(PROMPT, return_tensors="pt")
    cache = model(**prefix, use_cache=True).past_key_values
    inputs = tokenizer(PROMPT + " a king", return_tensors="pt")
    return model.generate(**inputs, past_key_values=cache, **SHORT)


@idiom
def a_conversation_that_goes_on_in_its_cache(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT, return_tensors="pt")
    options = {"return_dict_in_generate": True, **SHORT}
    first = model.generate(**inputs, **options)
    more = tokenizer(" and then", return_tensors="pt", add_special_tokens=False).input_ids
    ids = torch.cat([first.sequences, more], dim=1)
    return model.generate(
        ids, attention_mask=torch.ones_like(ids), past_key_values=first.past_key_values, **SHORT
    )


@idiom
def a_greedy_loop_with_a_mask(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPTS[:2], return_tensors="pt", padding=True)
    ids, mask, cache, found = inputs["input_ids"], inputs["attention_mask"], None, []
    for _ in range(5):
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = model(
            ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        cache = output.past_key_values
        ids = output.logits[:, -1].argmax(-1, keepdim=True)
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
        found.append(ids)
    return found


@idiom
def drafts_from_the_prompt(model: Any, tokenizer: Any) -> Any:
    inputs = tokenizer(PROMPT * 2, return_tensors="pt")
    return model.generate(**inputs, prompt_lookup_num_tokens=3, **SHORT)


@idiom
def a_pipeline_that_leaves_the_prompt_out(model: Any, tokenizer: Any) -> Any:
    made = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
    return made(PROMPTS, return_full_text=False, batch_size=2, **SHORT)


@idiom
def a_pipeline_over_a_generator(model: Any, tokenizer: Any) -> Any:
    made = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
    return [found[0]["generated_text"] for found in made((p for p in PROMPTS), **SHORT)]


@idiom
def a_collator_for_language_models(model: Any, tokenizer: Any) -> Any:
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    batch = collate([tokenizer(p) for p in PROMPTS])
    return [batch["input_ids"], batch["labels"], batch["attention_mask"]]


@idiom
def a_collator_that_pads(model: Any, tokenizer: Any) -> Any:
    collate = transformers.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)
    return dict(collate([tokenizer(p) for p in PROMPTS]))


@idiom
def windows_of_a_long_text(model: Any, tokenizer: Any) -> Any:
    options = {"truncation": True, "stride": 4, "return_overflowing_tokens": True}
    found = tokenizer([PROMPT * 2, "the", PROMPT], max_length=12, padding=True, **options)
    exact = tokenizer(PROMPT, max_length=len(tokenizer(PROMPT).input_ids), **options)
    return [dict(found), exact["input_ids"]]


@idiom
def lengths_of_texts(model: Any, tokenizer: Any) -> Any:
    return tokenizer(PROMPTS, return_length=True)["length"]


@idiom
def a_text_to_a_tensor(model: Any, tokenizer: Any) -> Any:
    ids = tokenizer.encode(PROMPT, return_tensors="pt")
    return [ids, tokenizer.decode(ids[0]), len(tokenizer.encode(PROMPT, add_special_tokens=False))]


@idiom
def rows_for_all_tokens(model: Any, tokenizer: Any) -> Any:
    model.resize_token_embeddings(model.config.vocab_size)
    return model.config.vocab_size


@idiom
def where_and_what_it_is(model: Any, tokenizer: Any) -> Any:
    first = next(model.parameters())
    return [str(first.device), str(model.device), str(model.dtype), model.config.model_type]


def check_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.Tensor) and theirs.is_floating_point():
        # float32 against the engine's fixed order of operations; logits are of the order of 10.
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-3, atol=2e-3)
    elif isinstance(theirs, torch.Tensor):
        assert torch.equal(ours, theirs)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            check_same(ours[name], theirs[name])
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            check_same(mine, other)
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", IDIOMS)
def test_idiom(
    model: CausalLM, tokenizer: PreTrainedTokenizer, theirs: Any, their_tokenizer: Any, name: str
) -> None:
    run = IDIOMS[name]
    check_same(run(model, tokenizer), run(theirs, their_tokenizer))


@pytest.mark.parametrize("wanted", [{"new_num_tokens": 7}, {"pad_to_multiple_of": 10_007}])
def test_rows_for_more_tokens_are_refused(model: CausalLM, wanted: dict[str, int]) -> None:
    with pytest.raises(UnsupportedError, match="rows of embeddings"):
        model.transformers_model.resize_token_embeddings(**wanted)
