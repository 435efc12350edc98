"""Makes llama_cpp.json: what llama.cpp's samplers leave of small distributions.

Run it with llama-cpp-python installed; DRY needs a vocabulary, read from any GGUF model:
    python tests/truth/make make_llama_cpp_samplers MODEL.gguf > tests/truth/sampling/llama_cpp.json
"""

from __future__ import annotations

import ctypes
import json
import sys

import llama_cpp as lc

PEAKED = [2.0, 1.0, 0.5, -1.0, 0.0, 1.5]
FLAT = [0.1, 0.0, 0.2, 0.05, 0.15, 0.12]
STEEP = [8.0, 3.0, 1.0, 0.0, -2.0, -4.0]


def apply(sampler: object, logits: list[float], history: list[int] = []) -> dict[str, float]:  # noqa: B006
    """Logits of the candidates left, by id."""
    for token in history:
        lc.llama_sampler_accept(sampler, token)
    data = (lc.llama_token_data * len(logits))()
    for i, logit in enumerate(logits):
        data[i].id, data[i].logit, data[i].p = i, logit, 0.0
    array = lc.llama_token_data_array(data=data, size=len(logits), selected=-1, sorted=False)
    lc.llama_sampler_apply(sampler, ctypes.byref(array))
    left = {array.data[i].id: array.data[i].logit for i in range(array.size)}
    lc.llama_sampler_free(sampler)
    return {str(i): left[i] for i in sorted(left)}


def dry(model: object, multiplier: float, base: float, allowed: int, last_n: int) -> object:
    no_breakers = (ctypes.c_char_p * 0)()
    return lc.llama_sampler_init_dry(
        lc.llama_model_get_vocab(model), multiplier, base, allowed, last_n, no_breakers, 0
    )


def cases(model: object) -> list[dict[str, object]]:
    made = []

    def add(params: dict[str, float], make, history: list[int] = []) -> None:  # noqa: B006
        for logits in (PEAKED, FLAT, STEEP):
            made.append(
                {
                    "params": params,
                    "logits": logits,
                    "history": history,
                    "left": apply(make(), logits, history),
                }
            )

    for k in (1, 3, 6):
        add({"top_k": k}, lambda k=k: lc.llama_sampler_init_top_k(k))
    for p in (0.1, 0.5, 0.9, 0.99):
        add({"top_p": p}, lambda p=p: lc.llama_sampler_init_top_p(p, 1))
        add({"typical_p": p}, lambda p=p: lc.llama_sampler_init_typical(p, 1))
    for p in (0.05, 0.3, 0.97):
        add({"min_p": p}, lambda p=p: lc.llama_sampler_init_min_p(p, 1))
    for t in (0.3, 2.0):
        add({"temperature": t}, lambda t=t: lc.llama_sampler_init_temp(t))
    for t, spread, exponent in ((0.8, 0.5, 1.0), (1.0, 0.9, 2.0), (0.5, 0.7, 0.5)):
        add(
            {"temperature": t, "dynatemp_range": spread, "dynatemp_exponent": exponent},
            lambda t=t, s=spread, e=exponent: lc.llama_sampler_init_temp_ext(t, s, e),
        )
    for threshold in (0.05, 0.15, 0.4):
        add(
            {"xtc_probability": 1.0, "xtc_threshold": threshold},
            lambda t=threshold: lc.llama_sampler_init_xtc(1.0, t, 1, 7),
        )
    history = [0, 3, 3, 1, 3]
    for repeat, frequency, presence in ((1.3, 0.0, 0.0), (0.7, 0.0, 0.0), (1.2, 0.4, 0.3)):
        add(
            {
                "repetition_penalty": repeat,
                "frequency_penalty": frequency,
                "presence_penalty": presence,
            },
            lambda r=repeat, f=frequency, p=presence: lc.llama_sampler_init_penalties(
                len(PEAKED), 64, r, f, p
            ),
            history,
        )
    for history in (
        [0, 1, 2, 3, 0, 1, 2],
        [1, 1, 1, 1, 1],
        [4, 5, 0, 1, 2, 4, 0, 1, 2, 5, 3, 0, 1, 2],
        [0, 1, 2],
        [2, 0, 1, 5, 0, 1],
    ):
        for allowed, last_n in ((2, -1), (1, -1), (3, -1), (2, 7)):
            add(
                {
                    "dry_multiplier": 0.8,
                    "dry_base": 1.75,
                    "dry_allowed_length": allowed,
                    "dry_penalty_last_n": last_n,
                },
                # There -1 switches it off where no context is known.
                lambda a=allowed, n=last_n: dry(model, 0.8, 1.75, a, 4096 if n < 0 else n),
                history,
            )
    return made


def mirostat_keeps() -> list[dict[str, object]]:
    """Which tokens the first draws of mirostat can give, over many seeds."""
    made = []
    for version, tau in ((1, 0.5), (1, 1.0), (1, 2.0), (2, 0.3), (2, 0.6), (2, 1.2)):
        for logits in (PEAKED, STEEP):
            seen = set()
            for seed in range(3000):
                if version == 1:
                    sampler = lc.llama_sampler_init_mirostat(len(logits), seed, tau, 0.1, 100)
                else:
                    sampler = lc.llama_sampler_init_mirostat_v2(seed, tau, 0.1)
                data = (lc.llama_token_data * len(logits))()
                for i, logit in enumerate(logits):
                    data[i].id, data[i].logit, data[i].p = i, logit, 0.0
                array = lc.llama_token_data_array(
                    data=data, size=len(logits), selected=-1, sorted=False
                )
                lc.llama_sampler_apply(sampler, ctypes.byref(array))
                seen.add(array.data[array.selected].id)
                lc.llama_sampler_free(sampler)
            made.append({"mirostat": version, "tau": tau, "logits": logits, "kept": sorted(seen)})
    return made


def main() -> None:
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    lc.llama_log_set(quiet, None)
    options = lc.llama_model_default_params()
    options.vocab_only = True
    model = lc.llama_model_load_from_file(sys.argv[1].encode(), options)
    truth = {
        "made_with": f"llama-cpp-python {lc.__version__}",
        "filters": cases(model),
        "mirostat": mirostat_keeps(),
    }
    print("{")
    print(f'"made_with": {json.dumps(truth["made_with"])},')
    for name, end in (("filters", ","), ("mirostat", "")):
        lines = ",\n".join(json.dumps(case) for case in truth[name])
        print(f'"{name}": [\n{lines}\n]{end}')
    print("}")


if __name__ == "__main__":
    main()
