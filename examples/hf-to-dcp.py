#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights that fsdplan export wrote, as a checkpoint of torch.distributed.checkpoint (DCP).

    fsdplan export saved -o mine --dtype fp32
    python3 examples/hf-to-dcp.py mine mine.dcp [--key model]

Names are those of Hugging Face transformers' files, below --key where one is given; in memory its newer
versions join the experts of a layer. Who loads it shards it as it likes:

    state = {"model": model.state_dict()}
    torch.distributed.checkpoint.load(state, checkpoint_id="mine.dcp")

An output layer that is the embedding is there once, as the embedding. Megatron-Bridge and torchtitan read the folder
of export itself, by AutoBridge.import_ckpt and with initial_load_in_hf. Needs PyTorch alone."""
import argparse
import warnings

import torch.distributed.checkpoint as dcp

import exported


def main():
    parser = argparse.ArgumentParser(description="weights of fsdplan export as a DCP checkpoint")
    parser.add_argument("folder", help="what fsdplan export wrote")
    parser.add_argument("output", help="the checkpoint's folder: new, or empty")
    parser.add_argument("--key", help="under which the weights are, such as model; none by default")
    words = parser.parse_args()
    exported.check_output(words.output)
    _, weights = exported.read(words.folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process is meant
        dcp.save({words.key: weights} if words.key else weights, checkpoint_id=words.output, no_dist=True)
    print(f"{words.output}: {len(weights)} tensors")


main()
