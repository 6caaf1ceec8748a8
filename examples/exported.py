# SPDX-License-Identifier: Apache-2.0
"""A folder that fsdplan export wrote, for the scripts beside this: its config.json, and its tensors through memory
maps, so that no more is in memory than is looked at. Needs PyTorch alone."""
import json
import mmap
import os
import sys

import torch

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


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


def read(folder):
    """config.json as a dict, and all tensors by name."""
    if not os.path.exists(os.path.join(folder, "config.json")):
        sys.exit(f"{folder}: has no config.json: give a folder that fsdplan export wrote")
    index = os.path.join(folder, "model.safetensors.index.json")
    files = set(read_json(index)["weight_map"].values()) if os.path.exists(index) else ["model.safetensors"]
    weights = {}
    for name in sorted(files):
        weights.update(tensors_of(os.path.join(folder, name)))
    return read_json(os.path.join(folder, "config.json")), weights


def check_output(folder):
    if os.path.isdir(folder) and os.listdir(folder):
        sys.exit(f"{folder}: is there already and not empty: give another folder")
