# GPT-2 XL: learned positions, LayerNorm, biases, tied embeddings, as Megatron-LM's defaults have it.
torchrun --nproc_per_node 8 pretrain_gpt.py \
  --num-layers 48 --hidden-size 1600 --num-attention-heads 25 --seq-length 1024 --max-position-embeddings 1024 \
  --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 64 --bf16 \
  --use-megatron-fsdp --ckpt-format fsdp_dtensor --use-distributed-optimizer \
  --overlap-grad-reduce --overlap-param-gather --init-model-with-meta-device \
  --no-gradient-accumulation-fusion --no-check-for-nan-in-loss-and-grad \
  --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt --vocab-size 50257
