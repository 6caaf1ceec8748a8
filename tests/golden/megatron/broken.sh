# Every line below holds something that Megatron-LM refuses or quietly does otherwise.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
torchrun --nproc_per_node 8 pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --num-query-groups 8 --seq-length 8192 --max-position-embeddings 4096 \
  --position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear \
  --micro-batch-size 1 --sequence-parallel --vocab-size 128256 \
  --bf16 --fp8-param-gather --exp-avg-dtype bf16 --grad-reduce-in-bf16 \
  --use-megatron-fsdp --data-parallel-sharding-strategy no_shard --init-model-with-meta-device \
  --overlap-param-gather --outer-dp-sharding-strategy optim --use-nccl-ub \
  --recompute-granularity selective --recompute-num-layers 1 --cpu-offloading-num-layers 2 \
  --megatron-fsdp-double-buffer --num-layer 3 $EXTRA_ARGS
