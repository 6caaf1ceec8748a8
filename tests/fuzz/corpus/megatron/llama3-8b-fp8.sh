unset CUDA_DEVICE_MAX_CONNECTIONS
torchrun --nproc_per_node 8 pretrain_gpt.py \
  --use-mcore-models --transformer-impl transformer_engine \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 \
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128 \
  --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope \
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \
  --attention-dropout 0 --hidden-dropout 0 --attention-backend fused \
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --context-parallel-size 1 \
  --micro-batch-size 1 --global-batch-size 128 --train-iters 100 --lr 1.5e-4 --lr-decay-style cosine \
  --bf16 --clip-grad 1.0 --cross-entropy-loss-fusion \
  --fp8-format hybrid --fp8-recipe delayed --fp8-amax-history-len 1024 --fp8-amax-compute-algo max --fp8-param-gather \
  --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --ckpt-format fsdp_dtensor \
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --init-model-with-meta-device --calculate-per-token-loss --no-gradient-accumulation-fusion \
  --megatron-fsdp-main-params-dtype fp32 --megatron-fsdp-main-grads-dtype fp32 --megatron-fsdp-grad-comm-dtype bf16 \
  --use-nccl-ub --fsdp-double-buffer --fsdp-manual-registration \
  --no-check-for-nan-in-loss-and-grad --manual-gc --mock-data --tokenizer-type NullTokenizer --vocab-size 128256 \
  --split 99,1,0 --eval-interval 1000 --eval-iters 1 --log-interval 1 --log-throughput
