#!/bin/bash
# One node, ZeRO-3, as small a script as there is.
unset CUDA_DEVICE_MAX_CONNECTIONS
torchrun --nproc_per_node 8 pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 \
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128 \
  --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope --rotary-base 500000 \
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \
  --attention-dropout 0 --hidden-dropout 0 \
  --micro-batch-size 1 --global-batch-size 128 --train-iters 100 --lr 1.5e-4 \
  --bf16 --cross-entropy-loss-fusion --no-check-for-nan-in-loss-and-grad \
  --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --ckpt-format fsdp_dtensor \
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --init-model-with-meta-device --calculate-per-token-loss --no-gradient-accumulation-fusion \
  --mock-data --tokenizer-type NullTokenizer --vocab-size 128256 2>&1 | tee train.log
