"""Forward passes and generation side by side with transformers, on the same random weights."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recurrent_models

from oxibonsai import AutoModelForCausalLM, RequestError, UnsupportedError
from oxibonsai.hf import CausalLM

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.hf

IDS = torch.tensor([[65, 66, 67, 68, 69, 70], [80, 81, 82, 83, 84, 85]])
PADDED = torch.tensor([[0, 0, 65, 66, 67, 68], [80, 81, 82, 83, 84, 85]])
MASK = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
# float32 against the engine's fixed order of operations; logits are of the order of 10.
CLOSE = {"rtol": 1e-3, "atol": 2e-3}


def same(ours: Any, theirs: Any) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs.detach(), **CLOSE)


def test_logits(model: CausalLM, theirs: Any) -> None:
    ours = model(IDS)
    assert type(ours).__name__ == type(theirs(IDS)).__name__ == "CausalLMOutputWithPast"
    same(ours.logits, theirs(IDS).logits)
    same(ours[0], theirs(IDS)[0])


def test_arrays_and_lists_are_taken(model: CausalLM) -> None:
    expected = model(IDS).logits
    assert torch.equal(model(IDS.numpy()).logits, expected)
    assert torch.equal(model(IDS.tolist()).logits, expected)
    assert torch.equal(model(input_ids=IDS).logits, expected)
    assert torch.equal(model.forward(IDS).logits, expected)


def test_padding_is_left_out(model: CausalLM, theirs: Any) -> None:
    shown = MASK.bool()
    # transformers 5 counts positions of a padded text from its first column.
    positions = (MASK.cumsum(-1) - 1).clamp(min=0)
    ours = model(PADDED, attention_mask=MASK, position_ids=positions)
    expected = theirs(PADDED, attention_mask=MASK, position_ids=positions)
    same(ours.logits[shown], expected.logits[shown])
    assert not ours.logits[~shown].any()


def test_loss(model: CausalLM, theirs: Any) -> None:
    labels = IDS.clone()
    labels[0, :3] = -100
    same(model(IDS, labels=labels).loss, theirs(IDS, labels=labels).loss)


def test_hidden_states(model: CausalLM, theirs: Any) -> None:
    ours = model(IDS, output_hidden_states=True)
    expected = theirs(IDS, output_hidden_states=True)
    assert len(ours.hidden_states) == len(expected.hidden_states) == 4
    for mine, other in zip(ours.hidden_states, expected.hidden_states, strict=True):
        same(mine, other)
    assert torch.equal(ours.logits, model(IDS).logits)


@pytest.mark.parametrize("keep", [1, 2])
def test_logits_to_keep(model: CausalLM, theirs: Any, keep: int) -> None:
    same(model(IDS, logits_to_keep=keep).logits, theirs(IDS, logits_to_keep=keep).logits)


def test_unknown_arguments_are_named(model: CausalLM) -> None:
    with pytest.raises(TypeError, match="attention_maks"):
        model(IDS, attention_maks=MASK)
    with pytest.raises(ValueError, match="max_new_token'"):
        model.generate(IDS, max_new_token=3)


def test_tuples(model: CausalLM, theirs: Any) -> None:
    ours = model(IDS, return_dict=False)
    assert isinstance(ours, tuple)
    same(ours[0], theirs(IDS, return_dict=False)[0])


def test_past_key_values_give_the_same_bytes_as_the_whole(model: CausalLM) -> None:
    whole = model(IDS).logits
    first = model(IDS[:, :4])
    assert first.past_key_values.get_seq_length() == 4
    second = model(IDS[:, 4:], past_key_values=first.past_key_values)
    assert torch.equal(torch.cat([first.logits, second.logits], 1), whole)
    assert second.past_key_values.get_seq_length() == 6
    assert model(IDS, use_cache=False).past_key_values is None


def test_a_cache_can_be_cropped_and_reordered(model: CausalLM) -> None:
    cache = model(IDS).past_key_values
    cache.crop(-2)
    again = model(IDS[:, 4:], past_key_values=cache)
    assert torch.equal(again.logits, model(IDS).logits[:, 4:])
    cache.reorder_cache(torch.tensor([1, 0]))
    more = torch.tensor([[5], [6]])
    swapped = model(torch.cat([IDS.flip(0), more], 1)).logits[:, -1:]
    assert torch.equal(model(more, past_key_values=cache).logits, swapped)


def test_a_loop_by_hand(model: CausalLM, theirs: Any) -> None:
    def greedy(m: Any) -> list[int]:
        ids, past, out = IDS[:1], None, []
        for _ in range(8):
            result = m(ids, past_key_values=past, use_cache=True)
            past, ids = result.past_key_values, result.logits[:, -1:].argmax(-1)
            out.append(int(ids))
        return out

    assert greedy(model) == greedy(theirs)


def no_e(ids: Any, scores: Any) -> Any:
    scores[:, 69::7] = -float("inf")
    return scores


GENERATE: dict[str, dict[str, Any]] = {
    "plain": {},
    "length": {"max_length": 12},
    "beams": {"num_beams": 3, "max_new_tokens": 6},
    "beams-several": {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 6},
    "repetition": {"repetition_penalty": 1.5, "max_new_tokens": 12},
    "no-repeat-ngram": {"no_repeat_ngram_size": 2, "max_new_tokens": 12},
    "bad-words": {"bad_words_ids": [[12], [40, 41]], "max_new_tokens": 8},
    "suppressed": {"suppress_tokens": list(range(0, 320, 3)), "max_new_tokens": 8},
    "forced-end": {"forced_eos_token_id": 7, "max_new_tokens": 5},
    "min-new-tokens": {"min_new_tokens": 6, "eos_token_id": list(range(100, 320))},
    "eos-list": {"eos_token_id": list(range(200, 320)), "pad_token_id": 3},
    "processor": {"logits_processor": transformers.LogitsProcessorList([no_e])},
    "prefix-function": {"prefix_allowed_tokens_fn": lambda batch, ids: [batch + 5, 90]},
    "beams-with-penalty": {"num_beams": 2, "repetition_penalty": 1.3, "max_new_tokens": 6},
    "early-stopping": {"num_beams": 2, "early_stopping": True, "eos_token_id": 90},
    "no-cache": {"use_cache": False, "max_new_tokens": 5},
}


@pytest.mark.parametrize("name", GENERATE)
def test_generate(model: CausalLM, theirs: Any, name: str) -> None:
    options = {"pad_token_id": 0, "max_new_tokens": 10, **GENERATE[name]}
    if "max_length" in options:
        del options["max_new_tokens"]
    expected = theirs.generate(PADDED, attention_mask=MASK, **options)
    assert model.generate(PADDED, attention_mask=MASK, **options).tolist() == expected.tolist()


def test_scores_and_dicts(model: CausalLM, theirs: Any) -> None:
    options = {
        "attention_mask": torch.ones_like(IDS),
        "return_dict_in_generate": True,
        "output_scores": True,
        "output_logits": True,
        "max_new_tokens": 5,
        "repetition_penalty": 1.2,
        "pad_token_id": 0,
    }
    ours, expected = model.generate(IDS, **options), theirs.generate(IDS, **options)
    assert type(ours) is type(expected)
    assert torch.equal(ours.sequences, expected.sequences)
    for name in ("scores", "logits"):
        for mine, other in zip(ours[name], expected[name], strict=True):
            same(mine, other)


def test_a_generation_config_and_what_goes_before_it(model: CausalLM, theirs: Any) -> None:
    config = transformers.GenerationConfig(max_new_tokens=9, repetition_penalty=1.4, pad_token_id=0)
    for options in ({}, {"max_new_tokens": 4}):
        common = {"attention_mask": torch.ones_like(IDS), "generation_config": config, **options}
        ours, expected = model.generate(IDS, **common), theirs.generate(IDS, **common)
        assert ours.tolist() == expected.tolist()


def test_stopping_criteria(model: CausalLM, theirs: Any) -> None:
    class Long(transformers.StoppingCriteria):
        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            return torch.full((len(input_ids),), input_ids.shape[1] >= 9)

    options = {
        "attention_mask": torch.ones_like(IDS),
        "max_new_tokens": 20,
        "stopping_criteria": transformers.StoppingCriteriaList([Long()]),
        "pad_token_id": 0,
    }
    ours, expected = model.generate(IDS, **options), theirs.generate(IDS, **options)
    assert ours.shape[1] == 9
    assert ours.tolist() == expected.tolist()


def test_stop_strings_in_both_loops(
    model: CausalLM, theirs: Any, tokenizer: Any, their_tokenizer: Any
) -> None:
    plain = {"attention_mask": torch.ones_like(IDS[:1]), "max_new_tokens": 20, "pad_token_id": 0}
    text = tokenizer.decode(model.generate(IDS[:1], **plain)[0, 6:])
    stop = next(text[i : i + 2] for i in range(6, len(text)) if text[i : i + 2].isascii())
    plain |= {"stop_strings": [stop]}
    expected = theirs.generate(IDS[:1], tokenizer=their_tokenizer, **plain)
    assert 6 < expected.shape[1] < 26
    for more in ({}, {"tokenizer": tokenizer}, {"tokenizer": tokenizer, "no_repeat_ngram_size": 9}):
        assert model.generate(IDS[:1], **plain, **more).tolist() == expected.tolist()


def test_assistants_change_nothing(model: CausalLM, theirs: Any, hf_folder: Path) -> None:
    expected = model.generate(IDS[:1], max_new_tokens=12)
    assert torch.equal(model.generate(IDS[:1], max_new_tokens=12, assistant_model=model), expected)
    mask = torch.ones_like(IDS[:1])
    for assistant in (theirs, model.transformers_model):
        found = model.generate(
            IDS[:1],
            attention_mask=mask,
            max_new_tokens=12,
            assistant_model=assistant,
            pad_token_id=0,
        )
        assert torch.equal(found, expected)
    found = theirs.generate(
        IDS[:1],
        attention_mask=mask,
        max_new_tokens=12,
        assistant_model=model.transformers_model,
        pad_token_id=0,
    )
    assert torch.equal(found, expected)


def test_lookup_of_prompts_changes_nothing(model: CausalLM) -> None:
    prompt = IDS[:1].repeat(1, 4)
    plain = model.generate(prompt, max_new_tokens=12, pad_token_id=0)
    found = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=12,
        prompt_lookup_num_tokens=3,
        pad_token_id=0,
    )
    assert torch.equal(found, plain)


def test_seeds_decide_draws_in_both_loops(model: CausalLM) -> None:
    options = {"do_sample": True, "temperature": 1.5, "pad_token_id": 0}
    options |= {"attention_mask": torch.ones_like(IDS), "max_new_tokens": 12}
    for more in ({}, {"no_repeat_ngram_size": 3}):
        first = model.generate(IDS, seed=1, **options, **more)
        assert torch.equal(first, model.generate(IDS, seed=1, **options, **more))
        assert not torch.equal(first, model.generate(IDS, seed=2, **options, **more))


def test_streamers(model: CausalLM, theirs: Any) -> None:
    class Seen:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def put(self, value: Any) -> None:
            self.seen.append(value.tolist())

        def end(self) -> None:
            self.seen.append("end")

    options = {"attention_mask": torch.ones_like(IDS[:1]), "max_new_tokens": 5, "pad_token_id": 0}
    for more in ({}, {"no_repeat_ngram_size": 3}):
        ours, expected = Seen(), Seen()
        model.generate(IDS[:1], streamer=ours, **options, **more)
        theirs.generate(IDS[:1], streamer=expected, **options, **more)
        assert ours.seen == expected.seen


def test_time_limits_end_a_text(model: CausalLM) -> None:
    found = model.generate(IDS, max_new_tokens=400, max_time=1e-9, eos_token_id=[])
    assert found.shape[1] < 406


def test_attributes(model: CausalLM, theirs: Any) -> None:
    assert model.device == theirs.device
    assert model.dtype == theirs.dtype
    assert model.num_parameters() == theirs.num_parameters()
    assert model.num_parameters(exclude_embeddings=True) == theirs.num_parameters(
        exclude_embeddings=True
    )
    assert model.eval() is model
    assert model.to("cpu") is model
    assert model.to(torch.device("cpu"), torch.float32) is model
    assert model.can_generate()
    assert isinstance(model.transformers_model, transformers.PreTrainedModel)
    for name in ("model_type", "hidden_size", "num_hidden_layers", "vocab_size", "head_dim"):
        assert getattr(model.config, name) == getattr(theirs.config, name)
    assert model.config.to_dict()["model_type"] == "qwen3"
    assert "qwen3" in repr(model)


def test_what_is_not_available_says_what_to_do(model: CausalLM) -> None:
    with pytest.warns(UserWarning, match="logits are float32"):
        assert model.half() is model
    for call, message in [
        (lambda: model.to("cuda"), "on the CPU"),
        (lambda: model.train(), "oxibonsai train"),
        (lambda: model(IDS, output_attentions=True), "output_attentions"),
        (lambda: model(IDS, position_ids=torch.tensor([[5, 6, 7, 8, 9, 10]])), "position_ids"),
        (lambda: model(IDS, past_key_values=transformers.DynamicCache()), "gave back"),
        (
            lambda: model.generate(IDS, cache_implementation="static", max_new_tokens=2),
            "cache_implementation",
        ),
    ]:
        with pytest.raises(UnsupportedError, match=message):
            call()
    for bad, message in [
        (lambda: model(IDS, attention_mask=MASK[:, :3]), "attention_mask has shape"),
        (lambda: model(torch.full((1, 3), 5000)), "token id 5000"),
        (lambda: model(IDS, inputs_embeds=torch.zeros(2, 6, 64)), "and not both"),
        (lambda: model.generate(IDS, inputs_embeds=torch.zeros(2, 6, 64)), "and not both"),
        (lambda: model(inputs_embeds=torch.zeros(1, 2, 5)), r"shape \[2, 5\]"),
        (lambda: model(inputs_embeds=torch.zeros(2)), r"shape \(2,\)"),
        (lambda: model(inputs_embeds=torch.zeros(1, 2, 64).bfloat16()), "float32"),
        (lambda: model([[1, 2], [3]]), "different lengths"),
        (lambda: model(torch.ones(1, 600, dtype=torch.long)), "context of 512"),
    ]:
        with pytest.raises(RequestError, match=message):
            bad()


def test_a_model_is_pickled_by_its_source(model: CausalLM) -> None:
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(IDS).logits, model(IDS).logits)
    assert again.engine is not model.engine


def test_pages_of_dropped_caches_come_back(model: CausalLM) -> None:
    for _ in range(30):
        model(torch.ones(2, 300, dtype=torch.long))
    assert model.engine.cache.used_bytes <= 4 * 512 * model.engine.cache.pools[0].page_bytes


def test_from_pretrained_takes_transformers_arguments(
    hf_folder: Path, model: CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"device_map": "auto", "dtype": "auto", "trust_remote_code": True}
    options |= {"low_cpu_mem_usage": True, "revision": "main", "token": None, "cache_dir": None}
    monkeypatch.setenv("OXIBONSAI_LIBCUDA", "/nowhere/libcuda.so")
    with pytest.warns(UserWarning, match=r"runs on the CPU: cuda: /nowhere/libcuda.so cannot be"):
        again = AutoModelForCausalLM.from_pretrained(
            hf_folder.parent, subfolder=hf_folder.name, **options
        )
    assert np.array_equal(again.logits(IDS[0]), model.logits(IDS[0]))
    with pytest.warns(UserWarning, match="torch_dtype=bfloat16 has no effect"):
        AutoModelForCausalLM.from_pretrained(hf_folder, torch_dtype=torch.bfloat16)
    with pytest.warns(UserWarning, match="attn_implementation"):
        AutoModelForCausalLM.from_pretrained(hf_folder, attn_implementation="sdpa")
    with pytest.raises(UnsupportedError, match="oxibonsai quantize"):
        AutoModelForCausalLM.from_pretrained(hf_folder, load_in_4bit=True)
    with pytest.raises(UnsupportedError, match="set HTTP_PROXY and HTTPS_PROXY"):
        AutoModelForCausalLM.from_pretrained(hf_folder, proxies={"https": "http://proxy"})
    with pytest.raises(UnsupportedError, match=r"/nowhere/libcuda.so cannot be opened"):
        AutoModelForCausalLM.from_pretrained(hf_folder, device_map={"": torch.device("cuda:3")})
    with pytest.raises(UnsupportedError, match="name the cards that share a model"):
        AutoModelForCausalLM.from_pretrained(hf_folder, device_map={"a": "cpu", "b": "cuda"})
    with pytest.raises(RequestError, match="device and device_map exclude each other"):
        AutoModelForCausalLM.from_pretrained(hf_folder, device_map="cpu", device="cpu")


def test_one_gguf_file_of_a_folder(model: CausalLM, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path, format="gguf")
    again = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf")
    assert np.array_equal(again.logits(IDS[0]), model.logits(IDS[0]))


@pytest.fixture(scope="module")
def embeds(theirs: Any) -> Any:
    """Embeddings [2, 6, hidden] that are no tokens': rows of the table with noise."""
    table = theirs.get_input_embeddings()
    noise = torch.randn((*IDS.shape, table.embedding_dim), generator=torch.manual_seed(4))
    return (table(IDS) + 0.3 * table.weight.std() * noise).detach()


def test_embeddings_are_read_in_place_of_ids(model: CausalLM, theirs: Any, embeds: Any) -> None:
    table = theirs.get_input_embeddings()(IDS).detach()
    assert torch.equal(model(inputs_embeds=table).logits, model(IDS).logits)
    truth = theirs(inputs_embeds=embeds).logits
    assert (truth - theirs(IDS).logits).abs().max() > 0.1  # the noise counts
    same(model(inputs_embeds=embeds).logits, truth)
    assert torch.equal(
        model(inputs_embeds=embeds.numpy()).logits, model(inputs_embeds=embeds).logits
    )
    positions = (MASK.cumsum(-1) - 1).clamp(min=0)
    padded = {"inputs_embeds": embeds, "attention_mask": MASK, "position_ids": positions}
    same(model(**padded).logits[MASK.bool()], theirs(**padded).logits[MASK.bool()])


def test_embeddings_and_ids_follow_each_other_in_a_cache(
    model: CausalLM, theirs: Any, embeds: Any
) -> None:
    both = torch.cat([theirs.get_input_embeddings()(IDS), embeds], dim=1)
    truth = theirs(inputs_embeds=both).logits
    first = model(IDS)
    second = model(inputs_embeds=embeds[:, :4], past_key_values=first.past_key_values)
    third = model(inputs_embeds=embeds[:, 4:], past_key_values=second.past_key_values)
    same(torch.cat([o.logits for o in (first, second, third)], dim=1), truth)
    cache = third.past_key_values
    cache.crop(9)  # within the embeddings
    cache.batch_select_indices([1, 1])
    again = model(inputs_embeds=embeds[[1, 1], 3:], past_key_values=cache)
    same(again.logits, truth[[1, 1], 9:])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 3, "num_return_sequences": 2},
        {"repetition_penalty": 1.7},
        {"max_length": 15},
        {"no_repeat_ngram_size": 2},
        {"return_dict_in_generate": False, "output_scores": True, "min_new_tokens": 3},
    ],
    ids=lambda o: ", ".join(o) or "greedy",
)
@pytest.mark.filterwarnings("ignore:Passing `:UserWarning")  # that penalties count new tokens alone
def test_embeddings_are_continued_as_in_transformers(
    options: dict[str, Any], model: CausalLM, theirs: Any, embeds: Any
) -> None:
    asked = {"do_sample": False, **({} if "max_length" in options else {"max_new_tokens": 9})}
    given = {"inputs_embeds": embeds, "attention_mask": torch.ones_like(IDS), **asked, **options}
    found, truth = model.generate(**given), theirs.generate(**given)
    assert found.tolist() == truth.tolist()
    assert found.shape[1] == 9


def test_samples_of_embeddings_are_drawn_the_same_each_time(model: CausalLM, embeds: Any) -> None:
    asked = {"do_sample": True, "seed": 3, "max_new_tokens": 9}
    found = model.generate(inputs_embeds=embeds, **asked)
    assert np.array_equal(model.generate(inputs_embeds=embeds.numpy(), **asked), found)
    alone = model.generate(inputs_embeds=embeds[0], **asked)
    assert torch.equal(alone[0], found[0])
    assert not torch.equal(found[0], found[1])


def test_recurrent_state_that_goes_back_reads_embeddings_again(tmp_path: Path) -> None:
    case = next(c for c in recurrent_models.CASES if c.name == "qwen35")
    theirs = case.save(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", ctx_size=512)
    table = theirs.get_input_embeddings().weight
    rows = torch.randn(1, 9, table.shape[1], generator=torch.manual_seed(6)) * table.std()
    with torch.no_grad():
        truth = theirs(inputs_embeds=rows).logits
    same(model(inputs_embeds=rows).logits, truth)
    first = model(inputs_embeds=rows[:, :7].detach())
    for cache in (copy.deepcopy(first.past_key_values), first.past_key_values):
        cache.crop(5)
        again = model(inputs_embeds=rows[:, 5:].detach(), past_key_values=cache)
        same(again.logits, truth[:, 5:])
