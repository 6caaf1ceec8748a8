#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of a llama in PyTorch and here, on this machine's GPU, in turns: medians, as a table.

race-torch.py SHAPE BATCH SEQ [--rounds N] [--steps N] [--peak TFLOPS] [--device cpu] WHO...

SHAPE is LAYERS,HIDDEN,FFN,HEADS,KV_HEADS,DIM,VOCAB. WHO is NAME=COMMAND, which runs --steps steps and
three more and prints what fsdplan run --format=json prints, or for PyTorch words joined by +: bf16 (weights
and moments too), fsdp2 (fp32 at rest, of one rank) or fp8 (bf16, products of layers scaled per tensor);
tied (the output layer is the embedding); compile (each layer, and the loss) or whole (all as one);
cudnn or flash for attention, which is math without either.

Each turn is 3 steps to warm up and --steps that count. Each has one turn in a round, so all meet the same
clocks. A process of PyTorch that waits for its turn holds its state on the GPU, and no more. Weights, data and
what is timed are what fsdplan has: random ones, AdamW in one kernel, norms clipped, the host waiting at
the end of each step. FLOPs of both are counted here, by the same formula.
"""
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time

WARM_UP = 3


class Remote:
    """A process of PyTorch: turns are asked for and told by lines."""

    def __init__(self, name, options):
        self.name, self.is_ours = name, False
        words = [sys.executable, os.path.abspath(__file__), *options.words(), "--serve", name]
        # Compiled graphs are found again by what was compiled, attention's backend left out.
        env = dict(os.environ, TORCHINDUCTOR_AUTOGRAD_CACHE="0")
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def turn(self):
        self.process.stdin.write("turn\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"ended with {self.process.wait()}")

    def end(self):
        self.process.kill()
        self.process.wait()


class Command:
    """A program that is started for each turn."""

    def __init__(self, name, command):
        self.name, self.is_ours, self.command = name, True, shlex.split(command)
        self.process = None

    def turn(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        out = self.process.communicate()[0]
        if self.process.returncode != 0:
            raise RuntimeError(f"ended with {self.process.returncode}")
        told = json.loads(out)
        return {
            "ms": [told["step_ms"]["median"]],
            "mib": told["memory"]["max_allocated_mib"],
            "loss": told["losses"][-1],
            "predicted_ms": told["predicted"]["step_ms"],
            "predicted_mib": told["predicted"]["memory"]["max_allocated_mib"],
        }

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


class Options:
    def __init__(self, words):
        self.rounds, self.steps, self.peak, self.device, self.serve = 3, 10, 0.0, "cuda", None
        self.who, words = [], list(words)
        while words:
            word = words.pop(0)
            if word in ("--rounds", "--steps"):
                setattr(self, word[2:], int(words.pop(0)))
            elif word == "--peak":
                self.peak = float(words.pop(0))
            elif word in ("--device", "--serve"):
                setattr(self, word[2:], words.pop(0))
            else:
                self.who.append(word)
        if len(self.who) < 3:
            sys.exit(__doc__)
        self.shape = [int(n) for n in self.who[0].split(",")]
        self.batch, self.seq = int(self.who[1]), int(self.who[2])
        self.who = self.who[3:]

    def words(self):
        shape = ",".join(map(str, self.shape))
        return [shape, str(self.batch), str(self.seq), "--steps", str(self.steps), "--device", self.device]

    def flops_per_token(self, is_causal):
        """6 for each weight of a product; of attention's scores the half that is not masked, or all."""
        layers, hidden, ffn, heads, kv_heads, dim, vocab = self.shape
        layer = hidden * (heads + 2 * kv_heads) * dim + heads * dim * hidden + 3 * hidden * ffn
        scores = 12 * layers * heads * dim * self.seq
        return 6 * (layers * layer + vocab * hidden) + (scores / 2 if is_causal else scores)


def row(options, who, turns):
    medians = [statistics.median(t["ms"]) for t in turns]
    ms, last = statistics.median([v for t in turns for v in t["ms"]]), turns[-1]
    speed = options.batch * options.seq / ms * 1e3
    text = f"{who.name} | {speed:.0f} tokens/s, step {ms:.2f} ms ({min(medians):.2f} to {max(medians):.2f})"
    if options.peak > 0:
        mfu = [options.flops_per_token(c) * speed / options.peak * 1e-10 for c in (True, False)]
        text += f", MFU {mfu[0]:.1f} % (scores whole: {mfu[1]:.1f} %)"
    text += f", {last['mib']:.0f} MiB, loss {last['loss']:.4f}"
    if "predicted_ms" in last:
        text += f", predicted {last['predicted_ms']:.2f} ms: off by {100 * (last['predicted_ms'] / ms - 1):.1f} %"
        if last["mib"] > 0:
            text += f", {last['predicted_mib']:.0f} MiB: off by {100 * (last['predicted_mib'] / last['mib'] - 1):.1f} %"
    return ms, text


def report(options, everyone, turns, failures):
    medians = {}
    for who in everyone:
        if turns[who.name]:
            medians[who.name], text = row(options, who, turns[who.name])
            print(text)
        if who.name in failures:
            print(f"{who.name} | failed: {failures[who.name]}")
    theirs = [medians[w.name] for w in everyone if w.name in medians and not w.is_ours]
    for who in everyone:
        if who.is_ours and who.name in medians and theirs:
            print(f"{who.name} | {min(theirs) / medians[who.name]:.3f} times as fast as the fastest of PyTorch")
    ours = [w.name for w in everyone if w.is_ours and w.name in medians]
    for name in ours[1:]:
        print(f"{name} | {medians[ours[0]] / medians[name]:.3f} times as fast as {ours[0]}")
    sys.stdout.flush()


def race(options):
    def stop(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    everyone = [Command(*w.split("=", 1)) if "=" in w else Remote(w, options) for w in options.who]
    turns = {who.name: [] for who in everyone}
    failures = {}
    try:
        for _ in range(options.rounds):
            for who in everyone:
                if who.name in failures:
                    continue
                try:
                    turns[who.name].append(who.turn())
                except (RuntimeError, OSError, ValueError, KeyError) as error:
                    failures[who.name] = f"{type(error).__name__}: {error}"
                print(who.name, failures.get(who.name) or turns[who.name][-1], file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        failures["the race"] = "ended before its time"
        print("the race | ended before its time: medians are of what was run", flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    report(options, everyone, turns, failures)
    for who in everyone:
        who.end()
    return 1 if failures else 0


def serve(options):
    """One way in PyTorch: answers each line of standard input by a turn, and a line of times and memory."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    how, device = options.serve.split("+"), options.device
    unknown = set(how) - {"bf16", "fsdp2", "fp8", "tied", "compile", "whole", "cudnn", "flash"}
    if unknown:
        sys.exit(f"race-torch.py: {unknown} is not bf16, fsdp2, fp8, tied, compile, whole, cudnn or flash")
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("race-torch.py: no CUDA device")

    def scaled(x, dtype):
        scale = x.abs().amax().float().clamp(min=1e-12) / torch.finfo(dtype).max
        return (x.float() / scale).to(dtype), scale

    def multiply(a, b, ascale, bscale, fast):
        """a [m, k] by b [n, k], both with k along memory."""
        return torch._scaled_mm(
            a, b.t(), scale_a=ascale, scale_b=bscale, out_dtype=torch.bfloat16, use_fast_accum=fast
        )

    class ScaledProduct(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            x8, xs = scaled(x, e4m3)
            w8, ws = scaled(weight, e4m3)
            ctx.save_for_backward(x8, xs, w8, ws)
            return multiply(x8, w8, xs, ws, True)

        @staticmethod
        def backward(ctx, grad):
            x8, xs, w8, ws = ctx.saved_tensors
            g8, gs = scaled(grad, e5m2)
            dx = multiply(g8, w8.t().contiguous(), gs, ws, False)
            dw = multiply(g8.t().contiguous(), x8.t().contiguous(), gs, xs, False)
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
        def __init__(self):
            super().__init__()
            layers, hidden, ffn, heads, kv_heads, dim, vocab = options.shape
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

    def make():
        with torch.device(device):
            model = Llama()
        if "fsdp2" not in how:
            model.to(torch.bfloat16)
        if "whole" in how:
            model.compile()
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

    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    dim, vocab = options.shape[5], options.shape[6]
    angle = torch.arange(options.seq)[:, None] * 10000.0 ** (-2 * torch.arange(dim // 2) / dim)
    cosine, sine = (f(angle).to(device, torch.bfloat16) for f in (torch.cos, torch.sin))
    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    backends = [backend[word] for word in how if word in backend] or [SDPBackend.MATH]
    model = None
    for _ in sys.stdin:
        if model is None:  # before its first turn it takes no memory
            model = make()
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
            text = torch.randint(vocab, (options.batch, options.seq + 1), device=device)
        times = []
        with sdpa_kernel(backends):
            for _ in range(WARM_UP + options.steps):
                begin = time.perf_counter()
                loss = model(text[:, :-1], text[:, 1:], cosine, sine)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                if device == "cuda":
                    torch.cuda.synchronize()
                times.append((time.perf_counter() - begin) * 1e3)
        told = {"ms": times[WARM_UP:], "mib": 0, "loss": loss.item(), "torch": torch.__version__}
        del loss
        if device == "cuda":
            told["mib"] = torch.cuda.max_memory_allocated() / 2**20
            torch.cuda.empty_cache()
        print(json.dumps(told), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def main():
    options = Options(sys.argv[1:])
    if options.serve:
        serve(options)
    else:
        sys.exit(race(options))


main()
