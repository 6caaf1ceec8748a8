torchrun --nproc_per_node 8 pretrain_gpt.py \
  --num-layers $LAYERS --hidden-size 4096
