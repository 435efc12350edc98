"""The options of other programs, and what each does where a command has none of that name itself.

Each row is a reason with the options that it holds for. In a row, ``-b,--batch-size=`` are spellings
of one option that takes a value; without ``=`` it takes none, ``=?`` may take one, ``==`` takes two.
tests/truth/option_names.json has the names that the programs know; docs/from_llama_cpp.md,
docs/from_ollama.md and docs/images.md show the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from oxibonsai.sampling import PARAMETERS, Parameter
from oxibonsai.sampling.checks import flag


class Verdict(Enum):
    """The fate of an option."""

    SAME = "same"  # what it asks for is so anyway
    NO_EFFECT = "no effect"
    REFUSED = "refused"


class Row(NamedTuple):
    """Options with one verdict.

    Attributes:
        verdict: What becomes of them.
        text: Why they have no effect, what to do instead, or what is so anyway.
        options: Their names; see the module.
        on: Commands that it holds for, in one word each; else all of the table's.
        unless: Values with which there is nothing to say.
    """

    verdict: Verdict
    text: str
    options: str
    on: str = ""
    unless: tuple[str, ...] = ()


_SAME, _NO_EFFECT, _REFUSED = Verdict.SAME, Verdict.NO_EFFECT, Verdict.REFUSED
_OFF = ("0", "off", "false")
_ON = ("on", "auto", "1", "true")
_SILENT = "embed perplexity imatrix tokenize"
_TALKING = "run chat serve"


def _words(parameters: Iterable[Parameter]) -> str:
    """Return the options of sampling parameters as a row has them."""
    return " ".join(
        ",".join(p.options) + ("" if p.check is flag else "=") for p in parameters if p.options
    )


_STRUCTURES = "--grammar= --grammar-file= --json-schema,-j= --json-schema-file,-jf="
# Parameters that the server has no default of its own for.
_OF_REQUESTS = [
    p for p in PARAMETERS.values() if p.server is None and p.name not in ("max_tokens", "seed")
]

LLAMA_CPP: tuple[Row, ...] = (
    # The machine.
    Row(_SAME, "weights are mapped, input and output are plain",
        "--mmap --simple-io --repack --log-disable --no-perf --op-offload "
        "--kv-offload,-kvo --warmup --no-show-timings",
        on="run chat embed perplexity imatrix tokenize serve"),
    Row(_NO_EFFECT, "weights are mapped, then packed: they are in memory either way",
        "--no-mmap --direct-io,-dio --no-direct-io,-ndio --load-mode,-lm= --lazy-mode,-lzm="),
    Row(_NO_EFFECT, "weights are mapped, then packed: they are in memory either way",
        "-mmp,--mmap=", on="bench"),
    Row(_NO_EFFECT, "packed weights are not locked in memory", "--mlock"),
    Row(_NO_EFFECT, "steps choose their own size; texts don't depend on it",
        "--batch-size,-b= --ubatch-size,-ub= --mtmd-batch-max-tokens="),
    Row(_NO_EFFECT, "prompts and generation use the same --threads", "--threads-batch,-tb="),
    Row(_NO_EFFECT,
        "threads run where the system puts them: start the command with taskset to choose cores",
        "--cpu-mask,-C= --cpu-range,-Cr= --cpu-strict= --cpu-mask-batch,-Cb= --cpu-range-batch,-Crb= "
        "--cpu-strict-batch= --numa="),
    Row(_NO_EFFECT, "start the command with nice to change its priority", "--prio= --prio-batch="),
    Row(_NO_EFFECT, "threads wait a moment for the next step, then sleep", "--poll= --poll-batch="),
    Row(_NO_EFFECT, "there is no warm-up", "--no-warmup"),
    Row(_NO_EFFECT, "weights are always packed for the machine", "--no-repack,-nr --no-host"),
    Row(_NO_EFFECT, "weights are always packed for the machine", "--repack= --no-host=", on="bench"),
    Row(_NO_EFFECT, "sequences always share steps", "--cont-batching,-cb --no-cont-batching,-nocb"),
    Row(_NO_EFFECT, "the cache has pages, which all sequences share and which need no defragmentation",
        "--defrag-thold,-dt= --kv-unified,-kvu --no-kv-unified,-no-kvu,-nkvu --kv-unified-per-slot= "
        "--swa-full"),
    Row(_NO_EFFECT, "there is one attention, in tiles", "--flash-attn,-fa=?", unless=_ON),
    Row(_NO_EFFECT, "what --ctx-size leaves open is cut to suit the memory",
        "--fit,-fit= --fit-target,-fitt= --fit-ctx,-fitc="),
    Row(_NO_EFFECT, "ops run where their layer's weights are: --device and --gpu-layers",
        "--no-op-offload --cpu-moe,-cmoe --n-cpu-moe,-ncmoe= --n-cpu-ffn,-ncffn= --moe-cache-mib="),
    Row(_NO_EFFECT, "ops run where their layer's weights are: --device and --gpu-layers",
        "--no-op-offload,-nopo=", on="bench", unless=_OFF),
    Row(_NO_EFFECT, "models are checked when they are opened", "--check-tensors"),
    Row(_NO_EFFECT, "there is one way to choose tokens on every device, in the steps that --samplers names",
        "--backend-sampling,-bs"),
    Row(_REFUSED, "keys and values lie with their layers: --gpu-layers", "--no-kv-offload,-nkvo"),
    Row(_REFUSED, "keys and values lie with their layers: --gpu-layers",
        "--no-kv-offload,-nkvo=", on="bench",
        unless=_OFF),
    Row(_REFUSED, "name the GPU: --device cuda:1", "--main-gpu,-mg=", unless=("0",)),
    Row(_REFUSED, "name the GPUs: --device cuda:0,cuda:1", "--tensor-split,-ts="),
    Row(_REFUSED, "cards share the layers: --device cuda:0,cuda:1",
        "--split-mode,-sm=", unless=("layer", "none")),
    Row(_REFUSED, "choose the number of layers on the GPU: --gpu-layers", "--override-tensor,-ot="),
    Row(_REFUSED, "one process runs a model: see docs/scale.md for several machines", "--rpc,-rpc="),
    Row(_REFUSED, "oxibonsai info --devices lists them", "--list-devices"),
    # The model.
    Row(_REFUSED, "the model is what its file says", "--override-kv="),
    Row(_REFUSED, "positions are as the model's file says",
        "--rope-scaling= --rope-scale= --rope-freq-base= --rope-freq-scale= --yarn-orig-ctx= "
        "--yarn-ext-factor= "
        "--yarn-attn-factor= --yarn-beta-slow= --yarn-beta-fast="),
    Row(_REFUSED, "positions are as the model's file says",
        "--grp-attn-n,-gan= --grp-attn-w,-gaw=", unless=("1",)),
    Row(_REFUSED, "train or download a LoRA adapter instead: --lora",
        "--control-vector= --control-vector-scaled= --control-vector-layer-range=="),
    Row(_REFUSED, "name a file or a repository of the hub: --model, --hf-repo", "--docker-repo,-dr="),
    Row(_REFUSED, "name the model: -hf ORG/REPO",
        "--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default "
        "--fim-qwen-7b-spec "
        "--fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default "
        "--vision-gemma-4b-default --vision-gemma-12b-default"),
    Row(_REFUSED, "oxibonsai list shows the models on this machine", "--cache-list,-cl"),
    Row(_REFUSED, "oxibonsai completion bash prints it", "--completion-bash"),
    Row(_REFUSED, "--help prints it", "--usage"),
    Row(_NO_EFFECT, "a vision tower runs on the model's device",
        "--mmproj-offload --no-mmproj-offload --mmproj-device,-mmdev="),
    Row(_REFUSED, "models here read text and pictures: --image",
        "--audio= --video= --video-fps= --video-timestamp-interval= --video-ffmpeg-dir="),
    # What is printed.
    Row(_NO_EFFECT, "texts have no colours", "--color,-co=?"),
    Row(_NO_EFFECT, "there is no log",
        "--verbose,--log-verbose,-v --verbosity,--log-verbosity,-lv= --log-file= --log-colors= "
        "--log-prefix "
        "--no-log-prefix --log-timestamps --no-log-timestamps --log-jsonl --no-log-jsonl "
        "--log-prompts-dir=",
        on="run chat embed perplexity imatrix tokenize bench"),
    Row(_NO_EFFECT, "the log is lines on a terminal and JSON elsewhere; --verbose tells more",
        "--verbosity,--log-verbosity,-lv= --log-colors= --log-prefix --no-log-prefix --log-timestamps "
        "--no-log-timestamps --log-jsonl --no-log-jsonl", on="serve"),
    Row(_REFUSED, "--log-prompts writes requests to the log", "--log-prompts-dir=", on="serve"),
    Row(_NO_EFFECT, "timings stand on stderr; --profile of oxibonsai bench shows those of ops",
        "--perf --show-timings --print-token-count,-ptc="),
    Row(_REFUSED, "oxibonsai tokenize shows a prompt's tokens", "--verbose-prompt"),
    Row(_REFUSED, "special tokens are never printed: oxibonsai detokenize --keep-special writes them",
        "--special,-sp"),
    # Conversations.
    Row(_SAME, "a prompt is answered once", "--single-turn,-st", on="run"),
    Row(_REFUSED, "oxibonsai chat is for conversations",
        "--conversation,-cnv --interactive,-i --interactive-first,-if", on="run"),
    Row(_SAME, "a conversation", "--conversation,-cnv --interactive,-i --interactive-first,-if", on="chat"),
    Row(_REFUSED, "oxibonsai run answers one prompt", "--single-turn,-st", on="chat"),
    Row(_REFUSED, "oxibonsai run --raw takes a prompt without a template",
        "--no-conversation,-no-cnv", on="chat"),
    Row(_NO_EFFECT, "a line that ends in a backslash goes on, as do lines between three quotation marks",
        "--multiline-input,-mli", on="run chat"),
    Row(_REFUSED, "write the whole prompt, with --raw",
        "--in-prefix= --in-suffix= --in-prefix-bos", on="run chat"),
    Row(_REFUSED, "oxibonsai chat has --save and --load",
        "--prompt-cache= --prompt-cache-all --prompt-cache-ro", on="run chat"),
    Row(_REFUSED, "give its address to a client; oxibonsai serve starts a server",
        "--server-base=", on="run chat"),
    Row(_REFUSED, "redirect standard output", "--output,--output-file,-o=", on="run chat"),
    Row(_SAME, "chat templates are Jinja", "--jinja", on="run chat"),
    Row(_REFUSED, "chat templates are Jinja; --chat-template chatml names a plain one",
        "--no-jinja", on="run chat"),
    Row(_NO_EFFECT, "reasoning is shown apart, on stderr", "--reasoning-format=", on="run chat"),
    Row(_NO_EFFECT, "a budget ends reasoning with the model's own mark", "--reasoning-budget-message="),
    Row(_NO_EFFECT, "the template decides what becomes of earlier reasoning",
        "--reasoning-preserve --no-reasoning-preserve"),
    Row(_REFUSED, "oxibonsai run --raw shows what the model writes",
        "--skip-chat-parsing --no-skip-chat-parsing", on="run chat"),
    Row(_REFUSED, "--reasoning-format none leaves reasoning in the content",
        "--skip-chat-parsing --no-skip-chat-parsing", on="serve"),
    Row(_NO_EFFECT, "a full context ends the text", "--no-context-shift", on="perplexity imatrix"),
    Row(_REFUSED, "a text is cut into windows", "--context-shift", on="perplexity imatrix"),
    Row(_NO_EFFECT, "nothing is sampled here",
        f"{_words(PARAMETERS.values())} {_STRUCTURES} --top-n-sigma,--top-nsigma= --adaptive-target= "
        "--adaptive-decay= --keep= --sampler-seq,--sampling-seq=",
        on=_SILENT),
    Row(_REFUSED, "there is no such step; --min-p cuts off unlikely tokens, too",
        "--top-n-sigma,--top-nsigma= --adaptive-target=", on=_TALKING, unless=("-1", "-1.0")),
    Row(_NO_EFFECT, "there is no --adaptive-target", "--adaptive-decay=", on=_TALKING),
    Row(_NO_EFFECT, "only the vocabulary is read",
        "--threads,-t= --ctx-size,-c= --cache-type-k,-ctk= --cache-type-v,-ctv= --device,-dev= "
        "--gpu-layers,--n-gpu-layers,-ngl= --lora= --lora-scaled=", on="tokenize"),
    Row(_NO_EFFECT, "texts are read as they are", "--escape,-e --no-escape", on="perplexity imatrix serve"),
    Row(_REFUSED, "oxibonsai run holds one answer to a structure",
        _STRUCTURES, on="chat"),
    Row(_NO_EFFECT, "a message is never printed again", "--display-prompt --no-display-prompt", on="chat"),
    # Sessions and drafts.
    Row(_NO_EFFECT, "equal beginnings stay in the pages of the cache while there is room",
        "--cache-ram,-cram= --cache-idle-slots --no-cache-idle-slots --cache-prompt "
        "--slot-prompt-similarity,-sps="),
    Row(_NO_EFFECT, "a conversation here needs no snapshots but those of recurrent state",
        "--checkpoint-min-step,-cms="),
    Row(_REFUSED, "texts don't depend on the cache, which can't be turned off for all requests",
        "--no-cache-prompt"),
    Row(_REFUSED, "only equal beginnings are used again", "--cache-reuse=", unless=("0",)),
    Row(_REFUSED, "--speculate ngram-simple drafts from the text, and needs no settings",
        "--spec-default --spec-ngram-mod-n-min= --spec-ngram-mod-n-max= "
        "--spec-ngram-mod-n-match= "
        "--spec-ngram-simple-size-n= --spec-ngram-simple-size-m= --spec-ngram-simple-min-hits= "
        "--spec-ngram-map-k-size-n= --spec-ngram-map-k-size-m= --spec-ngram-map-k-min-hits= "
        "--spec-ngram-map-k4v-size-n= --spec-ngram-map-k4v-size-m= --spec-ngram-map-k4v-min-hits= "
        "--spec-ngram-size-n= --spec-ngram-size-m= --spec-ngram-min-hits= --spec-synth-len= "
        "--spec-synth-rates= "
        "--lookup-cache-static,-lcs= --lookup-cache-dynamic,-lcd="),
    Row(_NO_EFFECT, "the draft model runs beside the model, with its threads and cache type",
        "--spec-draft-threads,-td,--threads-draft= --spec-draft-threads-batch,-tbd,--threads-batch-draft= "
        "--spec-draft-cpu-mask,-Cd,--cpu-mask-draft= --spec-draft-cpu-range,-Crd,--cpu-range-draft= "
        "--spec-draft-cpu-strict,--cpu-strict-draft= --spec-draft-prio,--prio-draft= "
        "--spec-draft-poll,--poll-draft= "
        "--spec-draft-cpu-mask-batch,-Cbd,--cpu-mask-batch-draft= "
        "--spec-draft-cpu-strict-batch,--cpu-strict-batch-draft= "
        "--spec-draft-prio-batch,--prio-batch-draft= --spec-draft-poll-batch,--poll-batch-draft= "
        "--spec-draft-type-k,-ctkd,--cache-type-k-draft= --spec-draft-type-v,-ctvd,--cache-type-v-draft= "
        "--spec-draft-override-tensor,-otd,--override-tensor-draft= "
        "--spec-draft-cpu-moe,-cmoed,--cpu-moe-draft "
        "--spec-draft-n-cpu-moe,--spec-draft-ncmoe,-ncmoed,--n-cpu-moe-draft= "
        "--spec-draft-device,-devd,--device-draft= "
        "--spec-draft-ngl,-ngld,--gpu-layers-draft,--n-gpu-layers-draft= --spec-draft-backend-sampling "
        "--no-spec-draft-backend-sampling --ctx-size-draft,-cd="),
    Row(_NO_EFFECT, "a draft is one run of tokens, with no branches",
        "--spec-draft-p-split,--draft-p-split="),
    Row(_REFUSED, "name the draft's model: --draft-model hf:ORG/REPO",
        "--spec-draft-hf,-hfd,-hfrd,--hf-repo-draft="),
    Row(_REFUSED, "--draft-length says it", "--draft,--draft-n="),
    Row(_REFUSED, "--draft-min says it", "--draft-n-min="),
    # The server.
    Row(_SAME, "the server reranks with a model that can", "--rerank,--reranking", on="serve"),
    Row(_NO_EFFECT, "one server listens on a port", "--reuse-port", on="serve"),
    Row(_REFUSED, "put a web server in front: docs/deploy.md",
        "--path= --api-prefix= --ssl-key-file= --ssl-cert-file=", on="serve"),
    Row(_NO_EFFECT, "--cors-origins is all that pages of other origins need",
        "--cors-methods= --cors-headers= --cors-credentials --no-cors-credentials", on="serve"),
    Row(_REFUSED, "the page keeps its settings in the browser",
        "--ui-config,--webui-config= --ui-config-file,--webui-config-file=", on="serve"),
    Row(_REFUSED, "there are no tools but those of MCP servers: --mcp-servers-config FILE names them",
        "--tools= --tools-runtime= --agent,-ag", on="serve"),
    Row(_REFUSED, "write them to a file: --mcp-servers-config FILE", "--mcp-servers-json=", on="serve"),
    Row(_REFUSED, "the server itself talks with MCP servers: --mcp-servers-config FILE names them",
        "--ui-mcp-proxy,--webui-mcp-proxy", on="serve"),
    Row(_SAME, "no tools are built in, and no addresses are passed on",
        "--no-agent,-no-ag --no-ui-mcp-proxy,--no-webui-mcp-proxy", on="serve"),
    Row(_NO_EFFECT, "--read-timeout and --write-timeout say how long a client may take",
        "--timeout,-to=", on="serve"),
    Row(_NO_EFFECT, "streams are kept open by what is generated", "--sse-ping-interval=", on="serve"),
    Row(_NO_EFFECT, "GET /props is always there, and settings don't change while the server runs",
        "--props", on="serve"),
    Row(_REFUSED, "clients send pictures in requests", "--media-path=", on="serve"),
    Row(_REFUSED, "--lora-modules opens adapters for the requests that name them",
        "--lora-init-without-apply",
        on="serve"),
    Row(_SAME, "a last message of the assistant is continued", "--prefill-assistant", on="serve"),
    Row(_REFUSED, "send another last message", "--no-prefill-assistant", on="serve"),
    Row(_NO_EFFECT, "vectors have length 1; requests for others ask /embedding with embd_normalize",
        "--embd-normalize=", on="serve", unless=("2",)),
    Row(_NO_EFFECT, "the template of the model's file says how code is filled in",
        "--spm-infill", on="serve"),
    Row(_NO_EFFECT, "special tokens are never printed", "--special,-sp", on="serve"),
    Row(_REFUSED, "give it in requests, by its name with underscores",
        f"{_words(_OF_REQUESTS)} {_STRUCTURES} --sampler-seq,--sampling-seq= --reasoning-effort=",
        on="serve"),
    # Measuring and writing.
    Row(_REFUSED, "give the text as a file: --file",
        "--prompt,-p= --binary-file,-bf=", on="perplexity imatrix"),
    Row(_REFUSED, "only texts are measured",
        "--hellaswag --hellaswag-tasks= --winogrande --winogrande-tasks= --multiple-choice "
        "--multiple-choice-tasks=",
        on="perplexity"),
    Row(_REFUSED, "a line for each window is printed to a terminal alone",
        "--ppl-output-type=", on="perplexity",
        unless=("0",)),
    Row(_NO_EFFECT, "windows are read one after the other", "--parallel,-np=", on=_SILENT + " run chat"),
    Row(_REFUSED, "one run makes one file: give a longer text",
        "--in-file= --save-frequency= --chunk,--from-chunk=",
        on="imatrix", unless=("0",)),
    Row(_REFUSED, "a GGUF file is written, which llama.cpp reads, too", "--output-format=", on="imatrix",
        unless=("gguf",)),
    Row(_SAME, "no perplexity is computed", "--no-ppl", on="imatrix"),
    Row(_REFUSED, "oxibonsai perplexity computes it", "--ppl", on="imatrix"),
    Row(_REFUSED, "oxibonsai quantize says which tensors it has no columns for",
        "--show-statistics", on="imatrix"),
    Row(_REFUSED, "special tokens in the text are read as text", "--parse-special", on="imatrix"),
    Row(_REFUSED, "the model's file says what attends to what", "--attention=", on="embed"),
    Row(_REFUSED, "--json prints one object; otherwise each text is a line of values",
        "--embd-output-format=",
        on="embed", unless=("raw", "")),
    Row(_REFUSED, "oxibonsai rerank scores documents", "--cls-separator=", on="embed"),
    Row(_REFUSED, "each is one measurement: run the command again for another setting",
        "--embeddings,-embd= --delay=", on="bench", unless=("0",)),
    Row(_NO_EFFECT, "a terminal shows how far it has come", "--progress", on="bench"),
    Row(_NO_EFFECT, "tensors are written one after the other", "--max-buffer-size=", on="quantize"),
    Row(_REFUSED, "--output-tensor-type F16 keeps its precision", "--leave-output-tensor", on="quantize"),
    Row(_REFUSED, "give --tensor-type for each of its lines", "--tensor-type-file=", on="quantize"),
    Row(_REFUSED, "all columns of an importance matrix are used",
        "--include-weights= --exclude-weights=", on="quantize"),
    Row(_REFUSED, "oxibonsai prune --prune-layers leaves layers out", "--prune-layers=", on="quantize"),
    Row(_REFUSED, "oxibonsai split cuts the file that is written", "--keep-split", on="quantize"),
    Row(_REFUSED, "oxibonsai split cuts files and oxibonsai merge joins them",
        "--merge --split --dry-run --delete-splits",
        on="split"),
    Row(_NO_EFFECT, "tensors keep their order", "--no-tensor-first-split", on="split"),
    Row(_REFUSED, "the model is what its file says", "--override-kv=", on="quantize"),
    Row(_REFUSED, "--json prints the ids as a list", "--ids --show-count", on="tokenize"),
    Row(_SAME, "a text that is not given comes from stdin, and special tokens in it are text",
        "--stdin --no-parse-special", on="tokenize"),
)  # fmt: skip

OLLAMA: tuple[Row, ...] = (
    Row(_NO_EFFECT, "the model is loaded for as long as the command runs", "--keepalive=", on="run chat"),
    Row(_NO_EFFECT, "models come over https", "--insecure", on="run chat pull"),
    Row(_SAME, "lines are not wrapped", "--nowordwrap", on="run"),
    Row(_REFUSED, "oxibonsai embed makes vectors", "--truncate --dimensions=", on="run chat"),
    Row(_REFUSED, "oxibonsai run holds one answer to a structure", "--format=", on="chat"),
    Row(_REFUSED, "oxibonsai info shows what the file holds, --json all of it",
        "--license --modelfile --parameters --system --template --verbose,-v", on="info"),
)  # fmt: skip

MFLUX: tuple[Row, ...] = (
    Row(_NO_EFFECT, "the text encoder never stays in memory beside the transformer", "--low-ram"),
    Row(_NO_EFFECT, "buffers are as large as the picture needs", "--mlx-cache-limit-gb="),
    Row(_NO_EFFECT, "pictures are always decoded in tiles, which changes no byte", "--vae-tiling"),
    Row(_NO_EFFECT, "pictures are decoded in tiles whose size changes no byte", "--vae-tile-size="),
    Row(_REFUSED, "the model is distilled and draws without guidance; say in --prompt what is to be seen",
        "--negative-prompt="),
    Row(_REFUSED, "weights keep the type that the model's files have", "--quantize,-q="),
    Row(_REFUSED, "give each adapter with --lora, or --lora-scaled FILE:SCALE",
        "--lora-paths= --lora-style="),
    Row(_REFUSED, "give each adapter with its scale: --lora-scaled FILE:SCALE", "--lora-scales="),
    Row(_REFUSED, "the steps are those of the model", "--scheduler=", unless=("linear",)),
    Row(_REFUSED, "give its file: --vae FILE", "--small-decoder"),
    Row(_REFUSED, "the model's own files say what it is", "--base-model="),
    Row(_REFUSED, "stop with Ctrl-C; finished pictures are kept", "--battery-percentage-stop-limit,-B="),
)  # fmt: skip

# Of the options of stable-diffusion.cpp those that command lines for FLUX.2 klein have.
STABLE_DIFFUSION_CPP: tuple[Row, ...] = (
    Row(_NO_EFFECT, "attention is always computed in tiles", "--diffusion-fa --fa"),
    Row(_NO_EFFECT, "weights are mapped, then packed: they are in memory either way",
        "--mmap --eager-load"),
    Row(_NO_EFFECT, "the networks run on --device, the processor by default",
        "--offload-to-cpu --clip-on-cpu --vae-on-cpu"),
    Row(_NO_EFFECT, "the steps are shown as they are done", "--verbose,-v"),
    Row(_REFUSED, "the steps are Euler's", "--sampling-method=", unless=("euler",)),
    Row(_REFUSED, "this command generates pictures", "--mode,-M=", unless=("img_gen",)),
    Row(_REFUSED, "the text encoder of FLUX.2 klein is a Qwen3: --llm",
        "--clip_l= --clip_g= --t5xxl= --clip_vision= --llm_vision= --qwen2vl= --qwen2vl_vision="),
    Row(_REFUSED, "the model's own VAE decodes pictures: --vae", "--taesd= --tae="),
    Row(_REFUSED, "weights keep the type that the model's files have", "--type="),
    Row(_REFUSED, "give each adapter with --lora, or --lora-scaled FILE:SCALE", "--lora-model-dir="),
    Row(_REFUSED, "the model is distilled and draws without guidance; say in --prompt what is to be seen",
        "-n="),
    Row(_REFUSED, "give it with --image; --strength keeps more of it the higher it is", "--init-img,-i="),
    Row(_REFUSED, "give a seed for each picture, --seed 1,2,3, or --auto-seeds 3", "--batch-count,-b="),
)  # fmt: skip

# Commands whose programs read common/arg.cpp; the others know the rows that name them.
_COMMON = ("run", "chat", "serve", "embed", "perplexity", "imatrix", "tokenize", "bench")


def rows(command: str) -> list[Row]:
    """Return the rows of a command: those that name it first."""
    draws = command == "image"
    tables = (
        (LLAMA_CPP, command in _COMMON), (OLLAMA, False), (MFLUX, draws), (STABLE_DIFFUSION_CPP, draws),
    )  # fmt: skip
    named = [r for table, _ in tables for r in table if command in r.on.split()]
    return named + [r for table, general in tables if general for r in table if not r.on]
