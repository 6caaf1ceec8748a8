# Mixtral 8x7B: experts in every layer; they have the width of --ffn-hidden-size.
torchrun --nproc_per_node 8 pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 32768 \
  --position-embedding-type rope --rotary-base 1000000 --swiglu --normalization RMSNorm \
  --disable-bias-linear --untie-embeddings-and-output-weights \
  --num-experts 8 --moe-router-topk 2 \
  --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 64 --bf16 \
  --use-megatron-fsdp --ckpt-format fsdp_dtensor --use-distributed-optimizer \
  --overlap-grad-reduce --overlap-param-gather --init-model-with-meta-device \
  --no-gradient-accumulation-fusion --no-check-for-nan-in-loss-and-grad \
  --tokenizer-type NullTokenizer --vocab-size 32000
