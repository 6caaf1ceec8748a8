# Qwen2.5-7B: a bias on queries, keys and values and on nothing else.
torchrun --nproc_per_node 8 pretrain_gpt.py \
  --num-layers 28 --hidden-size 3584 --ffn-hidden-size 18944 --num-attention-heads 28 \
  --group-query-attention --num-query-groups 4 --seq-length 4096 --max-position-embeddings 131072 \
  --position-embedding-type rope --rotary-base 1000000 --swiglu --normalization RMSNorm --norm-epsilon 1e-6 \
  --disable-bias-linear --add-qkv-bias --untie-embeddings-and-output-weights \
  --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 64 --bf16 \
  --use-megatron-fsdp --ckpt-format fsdp_dtensor --use-distributed-optimizer \
  --overlap-grad-reduce --overlap-param-gather --init-model-with-meta-device \
  --no-gradient-accumulation-fusion --no-check-for-nan-in-loss-and-grad \
  --tokenizer-type NullTokenizer --vocab-size 152064
