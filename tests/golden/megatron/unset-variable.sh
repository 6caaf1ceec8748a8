TOKENIZER=$2
DATA=(
  --tokenizer-type Llama2Tokenizer
  --tokenizer-model ${TOKENIZER}
  --data-path "$(ls -d /data/* | head -n 1)"
)
SIZE="--hidden-size 4096 --tensorboard-dir $3 --num-layers $LAYERS --seq-length 4096"
torchrun --nproc_per_node 8 pretrain_gpt.py \
  ${DATA[@]} $SIZE
