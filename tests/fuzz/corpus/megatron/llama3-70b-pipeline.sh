#!/bin/bash
# Interleaved pipeline stages, and where each layer is.
LAYOUT='Et*10|(t*10|)*6,t*10L'
torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py \
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \
  --group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 \
  --position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear \
  --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 \
  --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer \
  --overlap-grad-reduce --overlap-param-gather --tensor-model-parallel-size 4 --sequence-parallel \
  --context-parallel-size 2 --pipeline-model-parallel-size 4 \
  --pipeline-model-parallel-layout "$LAYOUT" \
  --microbatch-group-size-per-virtual-pipeline-stage 8 --vocab-size 128256 --tokenizer-type NullTokenizer
