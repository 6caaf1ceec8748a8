torchrun pretrain_gpt.py --num-layers 32 \
  --hidden-size "4096
