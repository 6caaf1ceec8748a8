#!/bin/bash
#SBATCH --job-name=llama3-70b
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export OMP_NUM_THREADS=1
unset CUDA_DEVICE_MAX_CONNECTIONS

GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-1}
WORLD_SIZE=$(($GPUS_PER_NODE * $NNODES))
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=${MASTER_PORT:-6000}
MBS=1
GBS=$((WORLD_SIZE * MBS * 2))
CHECKPOINT_PATH=${1:-"checkpoints/70b"} # may be given
SEQ=8192

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes "$NNODES"
    --rdzv_backend c10d
    --rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT"
)

MODEL_ARGS=(
    --use-mcore-models
    --num-layers 80          # 70B
    --hidden-size 8192
    --ffn-hidden-size=28672
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
    --seq-length $SEQ
    --max-position-embeddings ${SEQ}
    --position-embedding-type rope
    --rotary-base 500000
    --swiglu --normalization RMSNorm --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
)

TRAINING_ARGS=(
    --micro-batch-size "$MBS" --global-batch-size "$GBS"
    --bf16 --cross-entropy-loss-fusion
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
    --lr 3e-5 --min-lr 3e-6 --lr-decay-style cosine --weight-decay 0.1
    --no-check-for-nan-in-loss-and-grad
)

FSDP_ARGS=(
    --use-megatron-fsdp --ckpt-format fsdp_dtensor --use-distributed-optimizer
    --overlap-grad-reduce --overlap-param-gather
    --init-model-with-meta-device --calculate-per-token-loss
    --no-gradient-accumulation-fusion
    --megatron-fsdp-main-grads-dtype fp32 --megatron-fsdp-grad-comm-dtype bf16
)

if [ -n "${EXTRA_LOGGING:-}" ]; then
    LOGGING_ARGS=(--log-throughput)
fi

srun bash -c "torchrun ${DISTRIBUTED_ARGS[*]} pretrain_gpt.py ${MODEL_ARGS[*]} ${TRAINING_ARGS[*]} \
    ${FSDP_ARGS[*]} --tokenizer-type HuggingFaceTokenizer --tokenizer-model /models/llama3 \
    --vocab-size 128256 --data-path /data/text_document --save ${CHECKPOINT_PATH} --save-interval 500" \
    > run.log 2>&1
