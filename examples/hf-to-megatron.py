#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights that fsdplan export wrote, as a checkpoint of Megatron-LM's own format (torch).

    fsdplan export saved -o mine
    python3 examples/hf-to-megatron.py mine mine.megatron [--tp N]
    fsdplan emit --as megatron --model mine/config.json --set stack=megatron --set tp=N ... -o train.sh

and --load mine.megatron among the script's TRAINING. It is a release, as Megatron-LM calls weights without the state of
an optimizer: training begins with them at iteration 0. What Transformer Engine keeps for fp8 (_extra_state) is not
there, which Megatron-LM says as it loads. For stack=megatron with pp=1; Megatron-FSDP loads checkpoints of its own
format alone.

Models of the classes Llama, Mistral, Qwen2 and Qwen3, with biases in all linear layers, in queries, keys and values, or
in none. The vocabulary is padded as Megatron-LM pads it (--make-vocab-size-divisible-by, times --tp) with rows of
zeros. Needs PyTorch alone.

Names are those of megatron.core's GPTModel with Transformer Engine's layers, whose norms are part of the products
behind them (megatron/core/models/gpt/gpt_layer_specs.py). Of each group of query heads linear_qkv has queries, key and
value, group after group (megatron/core/transformer/attention.py); a rank has some of the groups. linear_fc1 has the
gate's rows and the other factor's, on each rank its own of both (megatron/core/transformer/mlp.py)."""
import argparse
import os
import sys

import torch

import exported

CLASSES = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"]


def whole(tensor, tp):
    return [tensor] * tp


def by_rows(tensor, tp):
    return tensor.chunk(tp, 0)


def by_cols(tensor, tp):
    return tensor.chunk(tp, 1)


def by_rows_of_each(tensor, tp):
    """Of two matrices, or vectors, one upon the other."""
    parts = [half.chunk(tp, 0) for half in tensor.chunk(2, 0)]
    return [torch.cat(pair) for pair in zip(*parts)]


class Source:
    """Tensors of the folder, each of which is taken once."""

    def __init__(self, folder):
        self.config, self.weights = exported.read(folder)
        name = self.config["architectures"][0]
        if name not in CLASSES:
            sys.exit(f"{folder}: is a {name}, which is not written: {', '.join(CLASSES)} are")
        self.heads = self.config["num_attention_heads"]
        self.groups = self.config.get("num_key_value_heads") or self.heads
        self.folder = folder

    def has(self, name):
        return name in self.weights

    def take(self, name):
        if name not in self.weights:
            sys.exit(f"{self.folder}: has no {name}")
        return self.weights.pop(name)

    def stacked(self, prefix, names, kind):
        return torch.cat([self.take(f"{prefix}.{name}.{kind}") for name in names])

    def by_group(self, prefix, kind):
        parts = [self.take(f"{prefix}.{name}.{kind}") for name in ("q_proj", "k_proj", "v_proj")]
        return torch.cat([part.unflatten(0, (self.groups, -1)) for part in parts], 1).flatten(0, 1)


def layer_tensors(source, hf, core):
    """(Name, tensor, how ranks share it) of a layer."""
    attention, mlp = f"{hf}.self_attn", f"{hf}.mlp"
    yield f"{core}.self_attention.linear_qkv.layer_norm_weight", source.take(f"{hf}.input_layernorm.weight"), whole
    yield f"{core}.self_attention.linear_qkv.weight", source.by_group(attention, "weight"), by_rows
    yield f"{core}.self_attention.linear_proj.weight", source.take(f"{attention}.o_proj.weight"), by_cols
    yield f"{core}.mlp.linear_fc1.layer_norm_weight", source.take(f"{hf}.post_attention_layernorm.weight"), whole
    yield f"{core}.mlp.linear_fc1.weight", source.stacked(mlp, ("gate_proj", "up_proj"), "weight"), by_rows_of_each
    yield f"{core}.mlp.linear_fc2.weight", source.take(f"{mlp}.down_proj.weight"), by_cols
    for norm in ("q_norm", "k_norm"):
        if source.has(f"{attention}.{norm}.weight"):
            yield f"{core}.self_attention.{norm[0]}_layernorm.weight", source.take(f"{attention}.{norm}.weight"), whole
    if source.has(f"{attention}.q_proj.bias"):
        yield f"{core}.self_attention.linear_qkv.bias", source.by_group(attention, "bias"), by_rows
    others = [source.has(f"{attention}.o_proj.bias"), source.has(f"{mlp}.gate_proj.bias")]
    if any(others):
        if not all(others):
            sys.exit(f"{source.folder}: has biases in some linear layers: Megatron-LM has them in all, in queries, keys "
                     "and values, or in none")
        yield f"{core}.self_attention.linear_proj.bias", source.take(f"{attention}.o_proj.bias"), whole
        yield f"{core}.mlp.linear_fc1.bias", source.stacked(mlp, ("gate_proj", "up_proj"), "bias"), by_rows_of_each
        yield f"{core}.mlp.linear_fc2.bias", source.take(f"{mlp}.down_proj.bias"), whole


def padded(table, multiple):
    missing = -table.shape[0] % multiple
    return torch.cat([table, table.new_zeros(missing, table.shape[1])]) if missing else table


def all_tensors(source, multiple):
    yield "embedding.word_embeddings.weight", padded(source.take("model.embed_tokens.weight"), multiple), by_rows
    for layer in range(source.config["num_hidden_layers"]):
        yield from layer_tensors(source, f"model.layers.{layer}", f"decoder.layers.{layer}")
    yield "decoder.final_layernorm.weight", source.take("model.norm.weight"), whole
    if source.has("lm_head.weight"):  # else it is the embedding
        yield "output_layer.weight", padded(source.take("lm_head.weight"), multiple), by_rows


def check_shares(source, tp):
    for what, n in (("num_key_value_heads", source.groups), ("intermediate_size", source.config["intermediate_size"])):
        if n % tp != 0:
            sys.exit(f"--tp {tp}: is no divisor of {what}={n}, which ranks share")


def main():
    parser = argparse.ArgumentParser(description="weights of fsdplan export as a checkpoint of Megatron-LM")
    parser.add_argument("folder", help="what fsdplan export wrote")
    parser.add_argument("output", help="the checkpoint's folder: new, or empty")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks; 1 by default")
    parser.add_argument("--make-vocab-size-divisible-by", type=int, default=128, dest="divisor",
                        help="as Megatron-LM is told; 128 by default, as there")
    words = parser.parse_args()
    if words.tp < 1 or words.divisor < 1:
        sys.exit("--tp and --make-vocab-size-divisible-by: are at least 1")
    exported.check_output(words.output)
    source = Source(words.folder)
    check_shares(source, words.tp)
    ranks = [{} for _ in range(words.tp)]
    for name, tensor, share in all_tensors(source, words.divisor * words.tp):
        for rank, part in enumerate(share(tensor, words.tp)):
            ranks[rank][name] = part.clone(memory_format=torch.contiguous_format)
    if source.weights:
        sys.exit(f"{words.folder}: has {min(source.weights)}, which is not written")
    for rank, model in enumerate(ranks):
        folder = os.path.join(words.output, "release", f"mp_rank_{rank:02d}")
        os.makedirs(folder)
        torch.save({"checkpoint_version": 3.0, "iteration": 0, "model": model},
                   os.path.join(folder, "model_optim_rng.pt"))
    with open(os.path.join(words.output, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as file:
        file.write("release")
    rows = len(ranks[0]["embedding.word_embeddings.weight"]) * words.tp - source.config["vocab_size"]
    behind = f", {rows} rows of zeros behind the vocabulary" if rows else ""
    print(f"{words.output}: {len(ranks[0])} tensors for tp={words.tp}{behind}")


main()
