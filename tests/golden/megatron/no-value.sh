torchrun pretrain_gpt.py --num-layers 32 \
  --hidden-size --bf16
