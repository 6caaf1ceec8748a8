#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of the llama of race-torch.sh in PyTorch: prints wall and processor seconds of each.

race-torch.py TOKENS fp32|bf16 THREADS STEPS [compile]
"""
import array
import sys
import time

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, DIM, VOCAB, SEQ, BATCH = 12, 768, 2048, 12, 4, 64, 32000, 512, 2


def linear(inputs, outputs):
    module = torch.nn.Linear(inputs, outputs, bias=False)
    torch.nn.init.normal_(module.weight, std=0.02)
    return module


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.mlp_norm = torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.qkv = linear(HIDDEN, (HEADS + 2 * KV_HEADS) * DIM)
        self.projection = linear(HEADS * DIM, HIDDEN)
        self.gate_up = linear(HIDDEN, 2 * FFN)
        self.down = linear(FFN, HIDDEN)

    def forward(self, x, cosine, sine):
        def rotated(t):
            a, b = t.chunk(2, -1)
            return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)

        heads = self.qkv(self.attention_norm(x)).view(BATCH, SEQ, HEADS + 2 * KV_HEADS, DIM)
        q, k, v = heads.transpose(1, 2).split([HEADS, KV_HEADS, KV_HEADS], 1)
        out = F.scaled_dot_product_attention(
            rotated(q), rotated(k), v, is_causal=True, enable_gqa=True
        )
        x = x + self.projection(out.transpose(1, 2).reshape(BATCH, SEQ, HEADS * DIM))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCAB, HIDDEN)
        torch.nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(HIDDEN, eps=1e-5)

    def forward(self, tokens, targets, cosine, sine):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    path, dtype, threads, steps = sys.argv[1:5]
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    text = array.array("H")
    with open(path, "rb") as file:
        text.frombytes(file.read())
    model = Llama().to(dtype)
    forward = torch.compile(model) if sys.argv[5:] == ["compile"] else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    angle = torch.arange(SEQ)[:, None] * 10000.0 ** (-2 * torch.arange(DIM // 2) / DIM)
    cosine, sine = angle.cos().to(dtype), angle.sin().to(dtype)
    for step in range(int(steps)):
        first = step * BATCH * SEQ
        here = torch.tensor(text[first : first + BATCH * SEQ + 1])
        tokens, targets = here[:-1].long().view(BATCH, SEQ), here[1:].long().view(BATCH, SEQ)
        begin, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        forward(tokens, targets, cosine, sine).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"{time.perf_counter() - begin:.3f} {time.process_time() - cpu:.3f}", flush=True)


main()
