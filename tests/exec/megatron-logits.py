#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A release check: what examples/hf-to-megatron.py writes, loaded into Megatron's own model.

    python3 tests/exec/megatron-logits.py BUILD

fsdplan run trains small models, fsdplan export and the script make checkpoints of them for one and two tensor-parallel
ranks; megatron.core's GPTModel, made as the flags say that fsdplan emit writes for the same folder, takes every tensor
of them, and its logits must be those of transformers' model of the export within 1e-5 of the largest. It is the model
with layers of PyTorch, whose norms have names of their own; on a machine without a GPU two functions that ask for one
are replaced.
Needs PyTorch, transformers and megatron-core, on a CPU."""
import contextlib
import os
import subprocess
import sys
import tempfile
import types
import warnings

import megatron.core.tensor_parallel
import torch
import transformers
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "../../examples/hf-to-megatron.py")
BOUND = 1e-5
SIZES = "layers=2,hidden=32,ffn=48,heads=4,max_seq=32"

MODELS = [
    f"family=llama,{SIZES},vocab=61,kv_heads=2",
    f"family=llama,{SIZES},vocab=256,kv_heads=2,tied=on,qkv_bias=on,proj_bias=on,mlp_bias=on",
    f"family=mistral,{SIZES},vocab=61,kv_heads=4",
    f"family=qwen2,{SIZES},vocab=61,kv_heads=2",
    f"family=qwen3,{SIZES},vocab=61,kv_heads=2,head_dim=16",
    "llama3.2-1b,layers=2,hidden=32,ffn=48,heads=4,kv_heads=2,head_dim=8,vocab=61",
]

REFUSED = [
    (f"family=gpt2,{SIZES},vocab=61", 1, "is a GPT2LMHeadModel, which is not written"),
    (f"family=llama,{SIZES},vocab=61,kv_heads=2,qkv_bias=on,proj_bias=on", 1, "has biases in some linear layers"),
    (MODELS[0], 4, "--tp 4: is no divisor of num_key_value_heads=2"),
]

# Names that norms have where they are modules of their own.
NORMS = [("self_attention.linear_qkv.layer_norm_", "input_layernorm."),
         ("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.")]


def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def export(program, spec, folder):
    run(program, "run", "--model", spec, "--gbs", "4", "--seq", "8", "--steps", "8", "--lr", "0.05", "--ranks", "2",
        "--save", folder + ".saved", "--db", ":memory:")
    run(program, "export", folder + ".saved", "-o", folder, "--dtype", "fp32")


def some_tokens():
    return torch.randint(0, 61, (2, 16), generator=torch.Generator().manual_seed(3))


def flags_of(program, folder, tp):
    """The flags of the model in the script that fsdplan emits, each with its values."""
    text = run(program, "emit", "--as", "megatron", "--model", f"{folder}/config.json", "--cluster", "dgx-h100:1",
               "--gbs", "8", "--seq", "16", "--set", "stack=megatron", "--set", "strategy=optim", "--set", f"tp={tp}")
    lines = [line.split() for line in text.splitlines() if line.startswith("  --")]
    return {line[0]: line[1] if len(line) > 1 else "" for line in lines}


def model_of(flags, tp):
    number = lambda flag: int(flags[flag])
    padded = -(-number("--vocab-size") // (128 * tp)) * 128 * tp  # as pretrain_gpt.py does
    has_qk_norm = "--qk-layernorm" in flags
    settings = TransformerConfig(
        num_layers=number("--num-layers"), hidden_size=number("--hidden-size"),
        ffn_hidden_size=number("--ffn-hidden-size"), num_attention_heads=number("--num-attention-heads"),
        num_query_groups=number("--num-query-groups" if "--group-query-attention" in flags else
                                "--num-attention-heads"),
        kv_channels=number("--kv-channels"), normalization=flags["--normalization"],
        layernorm_epsilon=float(flags["--norm-epsilon"]), add_bias_linear="--disable-bias-linear" not in flags,
        add_qkv_bias="--add-qkv-bias" in flags, qk_layernorm=has_qk_norm, gated_linear_unit="--swiglu" in flags,
        activation_func=torch.nn.functional.silu, hidden_dropout=0.0, attention_dropout=0.0,
        params_dtype=torch.float32, tensor_model_parallel_size=tp, use_cpu_initialization=True,
        bias_activation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False,
        persist_layer_norm=False, gradient_accumulation_fusion=False)
    return GPTModel(
        settings, get_gpt_layer_local_spec(qk_layernorm=has_qk_norm, normalization=flags["--normalization"]), padded,
        number("--max-position-embeddings"), position_embedding_type=flags["--position-embedding-type"],
        rotary_base=number("--rotary-base"), rope_scaling="--use-rope-scaling" in flags,
        rope_scaling_factor=float(flags.get("--rope-scaling-factor", 1)), parallel_output=False,
        share_embeddings_and_output_weights="--untie-embeddings-and-output-weights" not in flags)


def compute(rank, tp, folder, flags):
    """Computes logits on one of tp ranks, into a file. A checkpoint with fewer or more weights than the model is an error."""
    warnings.simplefilter("ignore")
    if not torch.cuda.is_available():
        torch.cuda.current_device = lambda: "cpu"
        no_dropout = types.SimpleNamespace(fork=lambda *_: contextlib.nullcontext())
        megatron.core.tensor_parallel.get_cuda_rng_tracker = lambda *_: no_dropout
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}.meeting-{tp}", rank=rank, world_size=tp)
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp)
    saved = torch.load(f"{folder}.megatron-{tp}/release/mp_rank_{rank:02d}/model_optim_rng.pt")
    weights = {}
    for name, tensor in saved["model"].items():
        for fused, own in NORMS:
            name = name.replace(fused, own)
        weights[name] = tensor
    model = model_of(flags, tp)
    loaded = model.load_state_dict(weights, strict=False)
    odd = [name for name in loaded.missing_keys if not name.endswith("_extra_state")] + loaded.unexpected_keys
    if odd:
        raise RuntimeError(f"{folder}: not in both: {odd}")
    tokens = some_tokens()
    length = tokens.shape[1]
    hidden = torch.ones(1, 1, length, length).triu(1).bool()
    with torch.no_grad():
        logits = model(tokens, torch.arange(length).expand_as(tokens), hidden)
    if rank == 0:
        torch.save(logits, f"{folder}.logits-{tp}")
    torch.distributed.barrier()


def check(program, work, number, spec):
    folder = os.path.join(work, str(number))
    export(program, spec, folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        wanted = model(some_tokens()).logits
    is_good = True
    for tp in (1, 2):
        run(sys.executable, SCRIPT, folder, f"{folder}.megatron-{tp}", "--tp", str(tp))
        torch.multiprocessing.spawn(compute, (tp, folder, flags_of(program, folder, tp)), nprocs=tp)
        logits = torch.load(f"{folder}.logits-{tp}")[..., :wanted.shape[-1]]
        apart = ((logits - wanted).abs().max() / wanted.abs().max()).item()
        is_good = is_good and apart <= BOUND
        print(f"{'good' if apart <= BOUND else 'BAD '} {spec}, tp={tp}: {apart:.1e} of the largest logit apart")
    return is_good


def check_refused(program, work, number, spec, tp, message):
    folder = os.path.join(work, f"refused-{number}")
    export(program, spec, folder)
    done = subprocess.run([sys.executable, SCRIPT, folder, folder + ".out", "--tp", str(tp)], stderr=subprocess.PIPE,
                          text=True)
    is_good = done.returncode == 1 and message in done.stderr and not os.path.exists(folder + ".out")
    print(f"{'good' if is_good else 'BAD '} {spec}, tp={tp}: {done.stderr.strip().replace(work, '')}")
    return is_good


def main():
    program = os.path.join(os.path.abspath(sys.argv[1]), "fsdplan")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, "
          f"megatron-core {megatron.core.__version__}")
    with tempfile.TemporaryDirectory() as work:
        results = [check(program, work, number, spec) for number, spec in enumerate(MODELS)]
        results += [check_refused(program, work, number, *case) for number, case in enumerate(REFUSED)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
