#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of a llama in PyTorch on this machine's GPU: prints the median step and tokens per second.

race-torch.py LAYERS,HIDDEN,FFN,HEADS,KV_HEADS,DIM,VOCAB BATCH SEQ HOW [STEPS [DEVICE]]

HOW is words joined by +: bf16 (weights and moments too) or fsdp2 (fp32 at rest, of one rank) or fp8
(bf16, products of layers scaled per tensor); tied (the output layer is the embedding); compile (each
layer, and the loss); cudnn or flash for attention, which is math without either. Weights, data and what is timed are what fsdplan has: random
ones, AdamW in one kernel, norms clipped; 5 steps warm up.
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WARM_UP = 5
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def scaled(x, dtype):
    scale = x.abs().amax().float().clamp(min=1e-12) / torch.finfo(dtype).max
    return (x.float() / scale).to(dtype), scale


def multiply(a, b, bscale, ascale, fast):
    """a [m, k] by b [n, k], both with k along memory."""
    return torch._scaled_mm(
        a, b.t(), scale_a=ascale, scale_b=bscale, out_dtype=torch.bfloat16, use_fast_accum=fast
    )


class ScaledProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        x8, xs = scaled(x, E4M3)
        w8, ws = scaled(weight, E4M3)
        ctx.save_for_backward(x8, xs, w8, ws)
        return multiply(x8, w8, ws, xs, True)

    @staticmethod
    def backward(ctx, grad):
        x8, xs, w8, ws = ctx.saved_tensors
        g8, gs = scaled(grad, E5M2)
        dx = multiply(g8, w8.t().contiguous(), ws, gs, False)
        dw = multiply(g8.t().contiguous(), x8.t().contiguous(), xs, gs, False)
        return dx, dw


class Linear(torch.nn.Linear):
    def __init__(self, inputs, outputs, is_fp8):
        super().__init__(inputs, outputs, bias=False)
        torch.nn.init.normal_(self.weight, std=0.02)
        self.is_fp8 = is_fp8

    def forward(self, x):
        if not self.is_fp8:
            return super().forward(x)
        return ScaledProduct.apply(x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1)


class Layer(torch.nn.Module):
    def __init__(self, hidden, ffn, heads, kv_heads, dim, is_fp8):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, dim
        self.attention_norm = torch.nn.RMSNorm(hidden, eps=1e-5)
        self.mlp_norm = torch.nn.RMSNorm(hidden, eps=1e-5)
        self.qkv = Linear(hidden, (heads + 2 * kv_heads) * dim, is_fp8)
        self.projection = Linear(heads * dim, hidden, is_fp8)
        self.gate_up = Linear(hidden, 2 * ffn, is_fp8)
        self.down = Linear(ffn, hidden, is_fp8)

    def forward(self, x, cosine, sine):
        def rotated(t):
            a, b = t.chunk(2, -1)
            return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)

        batch, seq, _ = x.shape
        each = [self.heads, self.kv_heads, self.kv_heads]
        heads = self.qkv(self.attention_norm(x)).view(batch, seq, sum(each), self.dim)
        q, k, v = heads.transpose(1, 2).split(each, 1)
        out = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.projection(out.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Head(torch.nn.Module):
    def __init__(self, hidden, vocab):
        super().__init__()
        self.norm = torch.nn.RMSNorm(hidden, eps=1e-5)
        self.output = Linear(hidden, vocab, False)

    def forward(self, x, targets):
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1).float(), targets.flatten())


class Llama(torch.nn.Module):
    def __init__(self, shape, how):
        super().__init__()
        layers, hidden, ffn, heads, kv_heads, dim, vocab = shape
        self.embedding = torch.nn.Embedding(vocab, hidden)
        torch.nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = torch.nn.ModuleList(
            Layer(hidden, ffn, heads, kv_heads, dim, "fp8" in how) for _ in range(layers)
        )
        self.head = Head(hidden, vocab)
        if "tied" in how:
            self.head.output.weight = self.embedding.weight

    def forward(self, tokens, targets, cosine, sine):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return self.head(x, targets)


def make(shape, how, device):
    with torch.device(device):
        model = Llama(shape, how)
    if "fsdp2" not in how:
        model.to(torch.bfloat16)
    if "compile" in how:
        for layer in model.layers:
            layer.compile()
        model.head.compile()
    if "fsdp2" in how:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        torch.distributed.init_process_group(
            "nccl" if device == "cuda" else "gloo",
            store=torch.distributed.HashStore(),
            rank=0,
            world_size=1,
        )
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        mesh = torch.distributed.device_mesh.init_device_mesh(device, (1,))
        for module in (*model.layers, model):
            fully_shard(module, mesh=mesh, mp_policy=policy)
    return model


def main():
    shape = [int(n) for n in sys.argv[1].split(",")]
    batch, seq = int(sys.argv[2]), int(sys.argv[3])
    how = sys.argv[4].split("+")
    steps = int(sys.argv[5]) if len(sys.argv) > 5 else 20
    device = sys.argv[6] if len(sys.argv) > 6 else "cuda"
    unknown = set(how) - {"bf16", "fsdp2", "fp8", "tied", "compile", "cudnn", "flash"}
    if unknown:
        sys.exit(f"race-torch.py: {unknown} is not bf16, fsdp2, fp8, tied, compile, cudnn or flash")
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("race-torch.py: no CUDA device")
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = make(shape, how, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    dim, vocab = shape[5], shape[6]
    angle = torch.arange(seq)[:, None] * 10000.0 ** (-2 * torch.arange(dim // 2) / dim)
    cosine, sine = (f(angle).to(device, torch.bfloat16) for f in (torch.cos, torch.sin))
    text = torch.randint(vocab, (batch, seq + 1), device=device)
    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    backends = [backend[word] for word in how if word in backend] or [SDPBackend.MATH]
    times = []
    with sdpa_kernel(backends):
        for step in range(WARM_UP + steps):
            begin = time.perf_counter()
            loss = model(text[:, :-1], text[:, 1:], cosine, sine)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
    median = statistics.median(times[WARM_UP:])
    memory = torch.cuda.max_memory_allocated() >> 20 if device == "cuda" else 0
    print(
        f"torch {torch.__version__} {sys.argv[4]} | {batch * seq / median:.0f} tokens/s, "
        f"step {median * 1e3:.1f} ms, {memory} MiB, loss {loss.item():.4f}"
    )
    if "fsdp2" in how:
        torch.distributed.destroy_process_group()


main()
