#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights that fsdplan export wrote, as a checkpoint of torch.distributed.checkpoint (DCP).

    fsdplan export saved -o mine --dtype fp32
    python3 examples/hf-to-dcp.py mine mine.dcp [--key model]

Names are those of Hugging Face transformers' files, below --key where one is given; in memory its newer
versions join the experts of a layer. Each file is read through
a memory map, so that no more than the tensors are in memory. Who loads it shards it as it likes:

    state = {"model": model.state_dict()}
    torch.distributed.checkpoint.load(state, checkpoint_id="mine.dcp")

An output layer that is the embedding is there once, as the embedding. Megatron-Bridge and torchtitan read the folder of export itself, by AutoBridge.import_ckpt and with
initial_load_in_hf. Needs PyTorch alone."""
import argparse
import json
import mmap
import os
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def tensors_of(path):
    """Names and tensors of a safetensors file: a length, a header of JSON, then data."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    length = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        count = (end - begin) // dtype.itemsize
        yield name, torch.frombuffer(data, dtype=dtype, count=count, offset=8 + length + begin).reshape(entry["shape"])


def files_of(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return ["model.safetensors"]
    with open(index, encoding="utf-8") as file:
        return sorted(set(json.load(file)["weight_map"].values()))


def main():
    parser = argparse.ArgumentParser(description="weights of fsdplan export as a DCP checkpoint")
    parser.add_argument("folder", help="what fsdplan export wrote")
    parser.add_argument("output", help="the checkpoint's folder: new, or empty")
    parser.add_argument("--key", help="under which the weights are, such as model; none unless said")
    words = parser.parse_args()
    if os.path.isdir(words.output) and os.listdir(words.output):
        sys.exit(f"{words.output}: is there already and not empty: give another folder")
    if not os.path.exists(os.path.join(words.folder, "config.json")):
        sys.exit(f"{words.folder}: has no config.json: give a folder that fsdplan export wrote")
    weights = {}
    for name in files_of(words.folder):
        weights.update(tensors_of(os.path.join(words.folder, name)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process is meant
        dcp.save({words.key: weights} if words.key else weights, checkpoint_id=words.output, no_dist=True)
    print(f"{words.output}: {len(weights)} tensors")


main()
