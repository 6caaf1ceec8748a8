# DeepSeek-V3 through a pipeline: sixteen virtual stages, of which the last one has a layer, the prediction module and the loss.
torchrun --nproc_per_node 8 --nnodes 32 pretrain_gpt.py \
  --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 \
  --seq-length 4096 --max-position-embeddings 163840 --position-embedding-type rope --rotary-base 10000 \
  --swiglu --normalization RMSNorm --norm-epsilon 1e-6 --qk-layernorm \
  --disable-bias-linear --untie-embeddings-and-output-weights \
  --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 \
  --v-head-dim 128 --rotary-scaling-factor 40 --mscale 1 --mscale-all-dim 1 \
  --num-experts 256 --moe-layer-freq "([0]*3+[1]*58)" --moe-ffn-hidden-size 2048 \
  --moe-shared-expert-intermediate-size 2048 --moe-router-topk 8 --moe-router-enable-expert-bias \
  --moe-router-score-function sigmoid --moe-router-num-groups 8 --moe-router-group-topk 4 \
  --moe-router-topk-scaling-factor 2.5 --expert-model-parallel-size 32 \
  --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep --moe-grouped-gemm --moe-permute-fusion \
  --moe-router-dtype fp32 --mtp-num-layers 1 --pipeline-model-parallel-size 8 \
  --pipeline-model-parallel-layout 'Et*4|(t*4|)*14tmL' --attention-dropout 0 --hidden-dropout 0 \
  --micro-batch-size 1 --global-batch-size 2048 --bf16 --recompute-granularity selective \
  --recompute-modules mla_up_proj moe_act --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --tokenizer-type NullTokenizer --vocab-size 129280
