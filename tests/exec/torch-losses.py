#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses and gradient norms of llama-tiny, or of a small gpt2, in fp32, by PyTorch: an implementation
that shares nothing with ours but the definition of its initial weights and of its data.

    python3 tests/exec/torch-losses.py > tests/exec/torch-losses.csv
    python3 tests/exec/torch-losses.py gpt2 > tests/exec/torch-losses-gpt2.csv

Tests compare with the file; only whoever makes it anew needs PyTorch (1.13 or later, on a CPU).
The run is that of tests/exec/torch.sh."""
import sys

import torch

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, DIM, VOCAB = 4, 64, 176, 4, 2, 16, 256
SEED, STEPS, BATCH, SEQ, LR = 1, 100, 8, 32, 0.003
EPS, THETA, DECAY, BETAS, CLIP = 1e-5, 10000.0, 0.1, (0.9, 0.95), 1.0
POSITIONS, PLACES = 9, 48  # of gpt2: its role, and rows of its table
MASK = (1 << 64) - 1
# roles in the order of PlanTensorRole
EMBEDDING, NORM1, QKV, PROJ, NORM2, GATE_UP, DOWN, FINAL_NORM, OUTPUT = range(9)


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def normal(key):
    total = 0
    for i in range(3):
        draw = mix((key + i) & MASK)
        total += sum(draw >> 16 * piece & 0xFFFF for piece in range(4))
    return (total - 6 * 65535.0) / 65536.0


def weight(role, layer, rows, cols):
    deviation = 0.02 / (2.0 * LAYERS) ** 0.5 if role in (PROJ, DOWN) else 0.02
    key = mix(mix(mix(SEED) ^ role) ^ layer)
    values = [deviation * normal(mix(key ^ i)) for i in range(rows * cols)]
    return torch.tensor(values, dtype=torch.float64).float().reshape(rows, cols).requires_grad_()


def norm_weight():
    return torch.ones(HIDDEN, requires_grad=True)


def sequence(sample):
    key = mix(mix(SEED) ^ sample)
    token, tokens, targets = mix(key) % VOCAB, [], []
    for t in range(SEQ):
        draw = mix((key + 1 + t) & MASK)
        tokens.append(token)
        token = mix(token) % VOCAB if draw % 5 else draw // 5 % VOCAB
        targets.append(token)
    return tokens, targets


def rmsnorm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def rotate(x):  # [batch, seq, heads, dim], halves paired
    angle = torch.arange(SEQ).double()[:, None] * THETA ** (-torch.arange(0, DIM, 2).double() / DIM)
    cos, sin = angle.cos().float()[:, None, :], angle.sin().float()[:, None, :]
    a, b = x[..., : DIM // 2], x[..., DIM // 2 :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention(x, qkv):
    q, k, v = (x @ qkv.t()).split((HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM), -1)
    q = rotate(q.unflatten(-1, (HEADS, DIM))).transpose(1, 2)
    k = rotate(k.unflatten(-1, (KV_HEADS, DIM))).transpose(1, 2)
    v = v.unflatten(-1, (KV_HEADS, DIM)).transpose(1, 2)
    k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2) / DIM**0.5).masked_fill(
        torch.ones(SEQ, SEQ).triu(1).bool(), float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def llama():
    table, head = weight(EMBEDDING, 0, VOCAB, HIDDEN), weight(OUTPUT, 0, VOCAB, HIDDEN)
    final = norm_weight()
    layers = [(norm_weight(),
               weight(QKV, layer, (HEADS + 2 * KV_HEADS) * DIM, HIDDEN),
               weight(PROJ, layer, HIDDEN, HEADS * DIM),
               norm_weight(),
               weight(GATE_UP, layer, 2 * FFN, HIDDEN),
               weight(DOWN, layer, HIDDEN, FFN)) for layer in range(LAYERS)]
    parameters = [table, head, final] + [p for layer in layers for p in layer]

    def logits_of(tokens):
        x = table[tokens]
        for norm1, qkv, proj, norm2, gate_up, down in layers:
            x = x + attention(rmsnorm(x, norm1), qkv) @ proj.t()
            gate, up = (rmsnorm(x, norm2) @ gate_up.t()).chunk(2, -1)
            x = x + (torch.nn.functional.silu(gate) * up) @ down.t()
        return rmsnorm(x, final) @ head.t()

    return parameters, logits_of


def zeros(*shape):
    return torch.zeros(*shape, requires_grad=True)


def gpt2():
    table, places = weight(EMBEDDING, 0, VOCAB, HIDDEN), weight(POSITIONS, 0, PLACES, HIDDEN)
    final, final_bias = norm_weight(), zeros(HIDDEN)
    layers = [(norm_weight(), zeros(HIDDEN),
               weight(QKV, layer, 3 * HIDDEN, HIDDEN), zeros(3 * HIDDEN),
               weight(PROJ, layer, HIDDEN, HIDDEN), zeros(HIDDEN),
               norm_weight(), zeros(HIDDEN),
               weight(GATE_UP, layer, FFN, HIDDEN), zeros(FFN),
               weight(DOWN, layer, HIDDEN, FFN), zeros(HIDDEN)) for layer in range(LAYERS)]
    parameters = [table, places, final, final_bias] + [p for layer in layers for p in layer]
    functions = torch.nn.functional

    def norm(x, gain, bias):
        return functions.layer_norm(x, (HIDDEN,), gain, bias, EPS)

    def logits_of(tokens):
        x = table[tokens] + places[:SEQ]
        for gain1, bias1, qkv, qkv_bias, proj, proj_bias, gain2, bias2, up, up_bias, down, down_bias in layers:
            heads = functions.linear(norm(x, gain1, bias1), qkv, qkv_bias).unflatten(-1, (3, HEADS, DIM))
            q, k, v = heads.permute(2, 0, 3, 1, 4)
            scores = (q @ k.transpose(-1, -2) / DIM**0.5).masked_fill(
                torch.ones(SEQ, SEQ).triu(1).bool(), float("-inf"))
            mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
            x = x + functions.linear(mixed, proj, proj_bias)
            wide = functions.gelu(functions.linear(norm(x, gain2, bias2), up, up_bias), approximate="tanh")
            x = x + functions.linear(wide, down, down_bias)
        return norm(x, final, final_bias) @ table.t()

    return parameters, logits_of


def main():
    if "gpt2" in sys.argv:
        globals().update(LAYERS=2, HIDDEN=32, FFN=80, HEADS=4, DIM=8, VOCAB=128)
    parameters, logits_of = gpt2() if "gpt2" in sys.argv else llama()
    # Neither gains nor biases decay.
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, LR, BETAS, 1e-8)

    print("step,loss,grad_norm")
    for step in range(STEPS):
        batch = [sequence(step * BATCH + i) for i in range(BATCH)]
        tokens, targets = (torch.tensor([pair[i] for pair in batch]) for i in range(2))
        logits = logits_of(tokens)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        print(f"{step + 1},{loss.item():.7f},{norm.item():.7f}")


main()
