#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A release check: small models of each family by Hugging Face transformers and by fsdplan run.

    python3 tests/exec/transformers-losses.py BUILD [STEPS[@RATE] [NAME...]]

transformers makes a model; both train it on the same tokens with AdamW, in fp32, fsdplan on several
ranks with a strategy of each kind, and once more with tensor parallelism on two ranks; then the
checkpoint is exported and loaded by transformers. Losses must agree within 1e-5 at the first steps, and
within 3e-5 at every one (or twice as far as transformers' own from weights a ten-millionth apart), and so
must a loss of the exported model with the trained one's; norms of gradients within 3e-4 of them.
Models with experts are run for few steps, unless STEPS says how many: once a difference in the last place
sends a token to another expert, the runs diverge.
transformers has biases of routers, but does not update them: this script does. What examples/hf-to-dcp.py
makes of the exported folder must load as the same weights.
Needs PyTorch and transformers, on a CPU."""
import os
import subprocess
import sys
import tempfile
import warnings

import safetensors.torch
import torch
import torch.distributed.checkpoint
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))

STEPS, CHOOSING_STEPS, BATCH, SEQ, LR, BOUND = 40, 10, 8, 48, 0.003, 3e-5
NORM_BOUND = 3e-4  # of norms of gradients, by share
BIAS_RATE = 0.01
FIRST, FIRST_BOUND = 5, 1e-5

LLAMA = dict(vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, attention_dropout=0.0)
LLAMA3 = dict(rope_type="llama3", factor=8.0, original_max_position_embeddings=32, low_freq_factor=1.0,
              high_freq_factor=4.0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)

# transformers does not train padding tokens, so no token may be one.
GEMMA = dict(head_dim=24, pad_token_id=None)
NEOX = dict(vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=3, num_attention_heads=4,
            max_position_embeddings=64, rope_parameters=dict(rope_type="default", rope_theta=10000.0,
                                                             partial_rotary_factor=0.5))

FALCON = dict(vocab_size=256, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64)
DEEPSEEK = {**LLAMA, "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "n_routed_experts": 8, "num_experts_per_tok": 3,
            "moe_intermediate_size": 48, "n_shared_experts": 2, "first_k_dense_replace": 1, "q_lora_rank": 24,
            "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12}
GROUPS = {"n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
          "num_nextn_predict_layers": 0}
QWEN_MOE = {**LLAMA, "head_dim": 16, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48}

QWEN2_MOE = {**QWEN_MOE, "shared_expert_intermediate_size": 40}
GLM_MOE = {**LLAMA, "head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
           "first_k_dense_replace": 1, "num_nextn_predict_layers": 0, "pad_token_id": None}

GPT_OSS = {**LLAMA, "head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 16,
           "pad_token_id": None}

LLAMA4 = {**LLAMA, "head_dim": 16, "num_local_experts": 4, "intermediate_size": 48, "intermediate_size_mlp": 96,
          "attention_chunk_size": 16, "no_rope_layer_interval": 3}

# name, class of the configuration, its keys, strategy, ranks; a token behind which nothing is learned
MODELS = [
    ("llama", "LlamaConfig", LLAMA, "optim_grads_params", 2),
    ("llama, tied", "LlamaConfig", {**LLAMA, "tie_word_embeddings": True}, "optim_grads", 4),
    ("llama, biases", "LlamaConfig", {**LLAMA, "attention_bias": True, "mlp_bias": True}, "optim", 2),
    ("llama, head_dim", "LlamaConfig", {**LLAMA, "head_dim": 32}, "no_shard", 2),
    ("llama, ends masked", "LlamaConfig", LLAMA, "optim_grads_params", 4, 7),
    ("llama, rope llama3", "LlamaConfig", {**LLAMA, "rope_parameters": {**LLAMA3, "rope_theta": 500.0}}, "optim", 4),
    ("llama, rope yarn", "LlamaConfig", {**LLAMA, "rope_parameters": {**YARN, "rope_theta": 10000.0}}, "optim_grads", 2),
    ("llama, rope linear", "LlamaConfig",
     {**LLAMA, "rope_parameters": dict(rope_type="linear", factor=2.0, rope_theta=10000.0)}, "optim_grads_params", 4),
    ("llama, rope dynamic", "LlamaConfig",
     {**LLAMA, "max_position_embeddings": 32,
      "rope_parameters": dict(rope_type="dynamic", factor=3.0, rope_theta=500.0)}, "optim_grads_params", 2),
    ("mistral, window", "MistralConfig", {**LLAMA, "sliding_window": 16}, "optim_grads_params", 2),
    ("qwen2", "Qwen2Config", LLAMA, "optim_grads", 2),
    ("qwen3", "Qwen3Config", {**LLAMA, "head_dim": 16}, "optim_grads_params", 4),
    ("gpt2", "GPT2Config",
     dict(vocab_size=256, n_embd=64, n_layer=3, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
          attn_pdrop=0.0), "optim_grads_params", 2),
    ("gemma", "GemmaConfig", {**LLAMA, **GEMMA, "num_key_value_heads": 1}, "optim_grads_params", 2),
    ("gemma2", "Gemma2Config",
     {**LLAMA, **GEMMA, "sliding_window": 16, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 1.5,
      "final_logit_softcapping": 4.0, "num_hidden_layers": 4}, "optim_grads", 4),
    ("gemma3", "Gemma3TextConfig",
     {**LLAMA, **GEMMA, "sliding_window": 16, "query_pre_attn_scalar": 20, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
      "rope_parameters": dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=500.0),
                              sliding_attention=dict(rope_type="default", rope_theta=50.0))}, "optim_grads_params", 4),
    ("phi3", "Phi3Config", {**LLAMA, "sliding_window": 20, "pad_token_id": None}, "optim", 2),
    ("phi3, rope in part", "Phi3Config",
     {**LLAMA, "pad_token_id": None, "rope_parameters": dict(rope_type="default", rope_theta=10000.0,
                                                             partial_rotary_factor=0.75)}, "no_shard", 2),
    ("phi3, long", "Phi3Config",
     {**LLAMA, "pad_token_id": None, "original_max_position_embeddings": 16,
      "rope_parameters": dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0] * 8,
                              long_factor=[1.0 + i / 3 for i in range(8)],
                              original_max_position_embeddings=16)}, "optim_grads", 2),
    ("gpt_neox", "GPTNeoXConfig", NEOX, "optim_grads_params", 2),
    ("gpt_neox, in turn", "GPTNeoXConfig", {**NEOX, "use_parallel_residual": False, "attention_bias": False}, "optim", 4),
    ("bloom", "BloomConfig", dict(vocab_size=256, hidden_size=72, n_layer=3, n_head=6, use_cache=False),
     "optim_grads_params", 4),
    ("falcon", "FalconConfig", {**FALCON, "multi_query": True}, "optim_grads_params", 2),
    ("falcon, newer", "FalconConfig",
     {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "tie_word_embeddings": False}, "optim", 2),
    ("falcon, in turn", "FalconConfig",
     {**FALCON, "multi_query": False, "parallel_attn": False, "bias": True, "ffn_hidden_size": 160}, "no_shard", 4),
    ("mpt", "MptConfig",
     dict(vocab_size=256, d_model=72, n_layers=3, n_heads=6, max_seq_len=64, resid_pdrop=0.0, emb_pdrop=0.0),
     "optim_grads", 2),
    ("mixtral", "MixtralConfig", {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}, "optim_grads_params", 2),
    ("mixtral, window, all experts", "MixtralConfig",
     {**LLAMA, "num_local_experts": 3, "num_experts_per_tok": 3, "sliding_window": 16}, "optim", 4),
    ("qwen3 moe", "Qwen3MoeConfig", {**QWEN_MOE, "norm_topk_prob": True}, "optim_grads", 2),
    ("qwen3 moe, shares of all", "Qwen3MoeConfig", {**QWEN_MOE, "norm_topk_prob": False}, "optim_grads_params", 4),
    ("qwen3 moe, dense layers", "Qwen3MoeConfig",
     {**QWEN_MOE, "norm_topk_prob": True, "mlp_only_layers": [0], "num_hidden_layers": 4}, "optim_grads_params", 2),
    ("deepseek v2", "DeepseekV2Config", DEEPSEEK, "optim_grads_params", 2),
    ("deepseek v2, whole queries", "DeepseekV2Config",
     {**DEEPSEEK, "q_lora_rank": None, "routed_scaling_factor": 1.5,
      "rope_parameters": {**YARN, "rope_theta": 10000.0, "mscale": 0.7, "mscale_all_dim": 0.9}}, "optim_grads", 4),
    ("deepseek v3", "DeepseekV3Config", {**DEEPSEEK, **GROUPS}, "optim_grads_params", 4),
    ("qwen2 moe", "Qwen2MoeConfig", {**QWEN2_MOE, "norm_topk_prob": False}, "optim_grads_params", 2),
    ("qwen2 moe, dense layers", "Qwen2MoeConfig",
     {**QWEN2_MOE, "norm_topk_prob": True, "mlp_only_layers": [0]}, "optim", 4),
    ("gpt oss", "GptOssConfig", GPT_OSS, "optim_grads_params", 2),
    ("gpt oss, all experts, no yarn", "GptOssConfig",
     {**GPT_OSS, "num_local_experts": 3, "attention_bias": False, "swiglu_limit": 0.5,
      "rope_parameters": dict(rope_type="default", rope_theta=500.0)}, "optim", 4),
    ("smollm3", "SmolLM3Config", {**LLAMA, "no_rope_layer_interval": 2, "pad_token_id": None}, "optim_grads_params", 2),
    ("llama4", "Llama4TextConfig", LLAMA4, "optim_grads_params", 2),
    ("llama4, chunks that do not divide", "Llama4TextConfig",
     {**LLAMA4, "attention_chunk_size": 20, "no_rope_layer_interval": 4, "num_key_value_heads": 1}, "optim", 4),
    ("llama4, dense layers, no norms", "Llama4TextConfig",
     {**LLAMA4, "interleave_moe_layer_step": 2, "use_qk_norm": False}, "optim_grads", 4),
    ("glm4 moe", "Glm4MoeConfig", GLM_MOE, "optim_grads_params", 2),
    ("glm4 moe, groups", "Glm4MoeConfig",
     {**GLM_MOE, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5, "use_qk_norm": True}, "optim_grads", 4),
]


def batches(tokens, steps, end):
    for step in range(steps):
        first = step * BATCH * SEQ
        rows = [tokens[first + i * SEQ:first + (i + 1) * SEQ + 1] for i in range(BATCH)]
        inputs, targets = torch.tensor([row[:-1] for row in rows]), torch.tensor([row[1:] for row in rows])
        yield inputs, targets if end is None else targets.masked_fill(inputs == end, -100)


def loss_of(model, inputs, targets):
    logits = model(input_ids=inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def count_tokens(model):
    """Has each router that chooses by a bias count the tokens of its experts; returns these routers."""
    def count(router, _, output):
        router.loads += torch.bincount(output[2].flatten(), minlength=len(router.loads))
    routers = [m for m in model.modules() if hasattr(m, "e_score_correction_bias")]
    for router in routers:
        router.loads = torch.zeros(len(router.e_score_correction_bias))
        router.register_forward_hook(count)
    return routers


def balance(routers):
    for router in routers:
        router.e_score_correction_bias += BIAS_RATE * torch.sign(router.loads.mean() - router.loads)
        router.loads.zero_()


def train(model, tokens, steps, end):
    routers = count_tokens(model)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for inputs, targets in batches(tokens, steps, end):
        loss = loss_of(model, inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        balance(routers)
        losses.append(loss.item())
    return losses, norms


def apart(some, others):
    return [abs(a - b) for a, b in zip(some, others)]


def apart_by_share(some, others):
    return [abs(a / b - 1) for a, b in zip(some, others)]


def own_noise(config, tokens, losses, end):
    """How far the losses of weights a ten-millionth apart differ in the end: some models amplify differences."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + 1e-7)
    return max(apart(train(model, tokens, len(losses), end)[0], losses))


def run(program, *words):
    done = subprocess.run([program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def is_split(kind, keys):
    """Whether two ranks can split a layer: not with experts, or where branches share a norm."""
    return (kind != "FalconConfig" and "num_experts_per_tok" not in keys
            and keys.get("num_key_value_heads", 2) % 2 == 0)


def check(program, work, name, kind, keys, strategy, ranks, end=None):
    torch.manual_seed(1)
    config = getattr(transformers, kind)(**keys, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    folder = os.path.join(work, name.replace(", ", "-").replace(" ", "-"))
    model.save_pretrained(folder)
    experts = keys.get("num_local_experts", keys.get("num_experts", keys.get("n_routed_experts", 0)))
    moves = any(hasattr(m, "e_score_correction_bias") for m in model.modules())
    rate = ("--bias-rate", str(BIAS_RATE)) if moves else ()
    chooses = keys.get("num_experts_per_tok", 0) < experts
    steps = STEPS if len(sys.argv) > 2 or not chooses else CHOOSING_STEPS
    n = STEPS * BATCH * SEQ + 1
    tokens = torch.randint(0, 256, (n,), generator=torch.Generator().manual_seed(2))
    tokens[1:] = torch.where(tokens[1:] < 64, tokens[1:], tokens[:-1] * 7 % 256)  # something to learn
    tokens = tokens.tolist()
    data = folder + ".u16"
    with open(data, "wb") as out:
        out.write(b"".join(token.to_bytes(2, "little") for token in tokens))
    mask = () if end is None else ("--set", "eod_mask_loss=on", "--document-end", str(end))
    (theirs, norms), runs, worst_norm = train(model, tokens, steps, end), [], 0
    for tp in (1, 2) if is_split(kind, keys) and end is None else (1,):
        saved = f"{folder}.saved{tp}"
        table = run(program, "run", "--model", folder, "--init", folder, "--data", data, "--gbs", str(BATCH), "--seq",
                    str(SEQ), "--steps", str(steps), "--lr", str(LR), "--ranks", str(ranks), "--set", "compute=fp32",
                    "--set", f"strategy={strategy}", "--set", f"tp={tp}", "--save", saved, "--db", ":memory:",
                    "--format=csv", *mask, *rate)
        rows = [line.split(",") for line in table.splitlines()[1:]]
        ours = [float(row[1]) for row in rows]
        runs.append(ours)
        worst_norm = max(worst_norm, *apart_by_share([float(row[2]) for row in rows], norms))
    worst = max(max(apart(ours, theirs)) for ours in runs)
    first = max(max(apart(ours, theirs)[:FIRST]) for ours in runs)
    bound = BOUND if worst <= BOUND else max(BOUND, 2 * own_noise(config, tokens, theirs, end))
    run(program, "export", saved, "-o", folder + ".out", "--dtype", "fp32")
    exported = transformers.AutoModelForCausalLM.from_pretrained(folder + ".out", dtype=torch.float32,
                                                                 attn_implementation="eager")
    run(sys.executable, os.path.join(HERE, "../../examples/hf-to-dcp.py"), folder + ".out", folder + ".dcp", "--key", "m")
    weights = safetensors.torch.load_file(os.path.join(folder + ".out", "model.safetensors"))
    fresh = {"m": {key: torch.zeros_like(value) for key, value in weights.items()}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process is meant
        torch.distributed.checkpoint.load(fresh, checkpoint_id=folder + ".dcp", no_dist=True)
    is_same = all(torch.equal(fresh["m"][key], value) for key, value in weights.items())
    inputs, targets = next(batches(tokens, 1, end))
    with torch.no_grad():
        after = abs(loss_of(exported, inputs, targets) - loss_of(model, inputs, targets)).item()
    is_good = (all(len(ours) == steps for ours in runs) and worst <= bound and first <= FIRST_BOUND
               and worst_norm <= NORM_BOUND * bound / BOUND
               and after <= bound and is_same)
    splits = ", also with tp=2" if len(runs) > 1 else ""
    print(f"{'good' if is_good else 'BAD '} {name}: losses {ours[0]:.4f} to {ours[-1]:.4f} in {steps} steps, "
          f"{first:.1e} apart at first, {worst:.1e} at most ({bound:.1e} allowed), "
          f"norms of gradients {worst_norm:.1e}, exported {after:.1e} "
          f"({strategy} on {ranks} ranks{splits})", flush=True)
    return is_good


def main():
    program = os.path.join(os.path.abspath(sys.argv[1]), "fsdplan")
    if len(sys.argv) > 2:
        steps, _, rate = sys.argv[2].partition("@")
        globals().update(STEPS=int(steps), LR=float(rate or LR))
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {STEPS} steps "
          f"at a rate of {LR}")
    with tempfile.TemporaryDirectory() as work:
        results = [check(program, work, *model) for model in MODELS if not sys.argv[3:] or model[0] in sys.argv[3:]]
    sys.exit(0 if all(results) else 1)


main()
