#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A release check: small models of each family by Hugging Face transformers and by fsdplan run.

    python3 tests/exec/transformers-losses.py BUILD [STEPS]

transformers makes a model; both train it on the same tokens with AdamW, in fp32, fsdplan on several
ranks with a strategy of each kind; then the checkpoint is exported and loaded by transformers. Losses
must agree within 3e-5 at every step, and so must a loss of the exported model with the trained one's. What
examples/hf-to-dcp.py makes of it must load as the same weights.
Needs PyTorch and transformers, on a CPU."""
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed.checkpoint
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))

STEPS, BATCH, SEQ, LR, BOUND = 40, 8, 48, 0.003, 3e-5

LLAMA = dict(vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, attention_dropout=0.0)
LLAMA3 = dict(rope_type="llama3", factor=8.0, original_max_position_embeddings=32, low_freq_factor=1.0,
              high_freq_factor=4.0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)

# name, class of the configuration, its keys, strategy, ranks
MODELS = [
    ("llama", "LlamaConfig", LLAMA, "optim_grads_params", 2),
    ("llama, tied", "LlamaConfig", {**LLAMA, "tie_word_embeddings": True}, "optim_grads", 4),
    ("llama, biases", "LlamaConfig", {**LLAMA, "attention_bias": True, "mlp_bias": True}, "optim", 2),
    ("llama, head_dim", "LlamaConfig", {**LLAMA, "head_dim": 32}, "no_shard", 2),
    ("llama, rope llama3", "LlamaConfig", {**LLAMA, "rope_parameters": {**LLAMA3, "rope_theta": 500.0}}, "optim", 4),
    ("llama, rope yarn", "LlamaConfig", {**LLAMA, "rope_parameters": {**YARN, "rope_theta": 10000.0}}, "optim_grads", 2),
    ("llama, rope linear", "LlamaConfig",
     {**LLAMA, "rope_parameters": dict(rope_type="linear", factor=2.0, rope_theta=10000.0)}, "optim_grads_params", 4),
    ("mistral, window", "MistralConfig", {**LLAMA, "sliding_window": 16}, "optim_grads_params", 2),
    ("qwen2", "Qwen2Config", LLAMA, "optim_grads", 2),
    ("qwen3", "Qwen3Config", {**LLAMA, "head_dim": 16}, "optim_grads_params", 4),
    ("gpt2", "GPT2Config",
     dict(vocab_size=256, n_embd=64, n_layer=3, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
          attn_pdrop=0.0), "optim_grads_params", 2),
]


def batches(tokens, steps):
    for step in range(steps):
        first = step * BATCH * SEQ
        rows = [tokens[first + i * SEQ:first + (i + 1) * SEQ + 1] for i in range(BATCH)]
        yield torch.tensor([row[:-1] for row in rows]), torch.tensor([row[1:] for row in rows])


def loss_of(model, inputs, targets):
    logits = model(input_ids=inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(model, tokens):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for inputs, targets in batches(tokens, STEPS):
        loss = loss_of(model, inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def run(program, *words):
    done = subprocess.run([program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def check(program, work, name, kind, keys, strategy, ranks):
    torch.manual_seed(1)
    config = getattr(transformers, kind)(**keys, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    folder = os.path.join(work, name.replace(", ", "-").replace(" ", "-"))
    model.save_pretrained(folder)
    n = STEPS * BATCH * SEQ + 1
    tokens = torch.randint(0, 256, (n,), generator=torch.Generator().manual_seed(2))
    tokens[1:] = torch.where(tokens[1:] < 64, tokens[1:], tokens[:-1] * 7 % 256)  # something to learn
    tokens = tokens.tolist()
    data = folder + ".u16"
    with open(data, "wb") as out:
        out.write(b"".join(token.to_bytes(2, "little") for token in tokens))
    table = run(program, "run", "--model", folder, "--init", folder, "--data", data, "--gbs", str(BATCH), "--seq",
                str(SEQ), "--steps", str(STEPS), "--lr", str(LR), "--ranks", str(ranks), "--set", "compute=fp32",
                "--set", f"strategy={strategy}", "--save", folder + ".saved", "--db", ":memory:", "--format=csv")
    ours = [float(line.split(",")[1]) for line in table.splitlines()[1:]]
    theirs = train(model, tokens)
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    run(program, "export", folder + ".saved", "-o", folder + ".out", "--dtype", "fp32")
    exported = transformers.AutoModelForCausalLM.from_pretrained(folder + ".out", dtype=torch.float32,
                                                                 attn_implementation="eager")
    run(sys.executable, os.path.join(HERE, "../../examples/hf-to-dcp.py"), folder + ".out", folder + ".dcp", "--key", "m")
    weights = {key: value for key, value in exported.state_dict().items()
               if key != "lm_head.weight" or not exported.config.tie_word_embeddings}
    fresh = {"m": {key: torch.zeros_like(value) for key, value in weights.items()}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process is meant
        torch.distributed.checkpoint.load(fresh, checkpoint_id=folder + ".dcp", no_dist=True)
    is_same = all(torch.equal(fresh["m"][key], value) for key, value in weights.items())
    inputs, targets = next(batches(tokens, 1))
    with torch.no_grad():
        apart = abs(loss_of(exported, inputs, targets) - loss_of(model, inputs, targets)).item()
    is_good = len(ours) == STEPS and worst <= BOUND and apart <= BOUND and is_same
    print(f"{'good' if is_good else 'BAD '} {name}: losses {ours[0]:.4f} to {ours[-1]:.4f}, {worst:.1e} apart, "
          f"exported {apart:.1e} ({strategy} on {ranks} ranks)")
    return is_good


def main():
    program = os.path.join(os.path.abspath(sys.argv[1]), "fsdplan")
    if len(sys.argv) > 2:
        globals().update(STEPS=int(sys.argv[2]))
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {STEPS} steps")
    with tempfile.TemporaryDirectory() as work:
        results = [check(program, work, *model) for model in MODELS]
    sys.exit(0 if all(results) else 1)


main()
