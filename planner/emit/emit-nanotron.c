/* SPDX-License-Identifier: Apache-2.0 */
/* Writes nanotron's configuration (src/nanotron/config/config.py, models_config.py,
 * parallelism_config.py), which refuses unknown keys. */
#include "config.h"

#include "planner/emit/emit-private.h"

#define INT "%" G_GINT64_FORMAT
#define IS(field, id) (value[PLAN_##field] == PLAN_##field##_##id)

/* clang-format off */
static const PlanEmitSaid said[] = {
  { PLAN_STRATEGY, PLAN_EMIT_ONLY (STRATEGY, NO_SHARD) | PLAN_EMIT_ONLY (STRATEGY, OPTIM), NULL },
  CAN_SAY (TP), CAN_SAY (SP), CAN_SAY (PP), CAN_SAY (PP_SCHEDULE), CAN_SAY (MBS), CAN_SAY (GBS), CAN_SAY (SEQ),
  CAN_ONLY (COMPUTE, BF16), CAN_ONLY (MAIN_PARAMS, FP32), CAN_ONLY (MAIN_GRADS, FP32), CAN_ONLY (GRAD_COMM, FP32),
  { PLAN_RECOMPUTE, PLAN_EMIT_ONLY (RECOMPUTE, NONE) | PLAN_EMIT_ONLY (RECOMPUTE, FULL), NULL },
  CAN_SAY (RECOMPUTE_MODULES), CAN_SAY (RECOMPUTE_METHOD), CAN_SAY (RECOMPUTE_LAYERS),
  CAN_SAY (PER_TOKEN_LOSS), /* no padding: a mean of means is the mean */
};
/* clang-format on */

static const PlanEmitTarget target = {
  .name = "nanotron",
  .version = "nanotron main at 2cde8f63 (2024-12-05)",
  .stacks = 1 << PLAN_STACK_NANOTRON,
  .said = said,
  .n_said = G_N_ELEMENTS (said),
};

static void
append_head (GString *text, const PlanEmitSubject *subject)
{
  g_autofree char *launch = plan_emit_torchrun (subject->of->cluster, " \\\n#     ");
  plan_emit_head (text, subject, PLAN_EMIT_NANOTRON);
  plan_emit_for (text, subject, target.version);
  g_string_append_printf (
      text,
      ". As nanotron_plan.yaml in its folder:\n"
      "#   CUDA_DEVICE_MAX_CONNECTIONS=1 %s \\\n"
      "#     run_train.py --config-file nanotron_plan.yaml\n"
      "#\n"
      "# Yours to choose: data and tokenizer (null: random tokens), learning rate, steps, "
      "checkpoints.\n",
      launch);
}

/* Notes how nanotron averages the loss: over the tokens of a micro batch, then over micro
 * batches. */
static void
append_loss (GString *text, const gint64 *value)
{
  if (IS (PER_TOKEN_LOSS, ON))
    g_string_append (text,
                     "# per_token_loss=on: it takes means of micro batches, which is the same "
                     "where sequences are full.\n");
}

/* The trainer refuses positions beyond the sequence, unless weights come from a checkpoint. */
static void
append_model (GString *text, const PlanEmitSubject *subject)
{
  const PlanModel *const m = subject->of->model;
  g_autofree char *eps = plan_emit_real (m->norm_eps), *theta = plan_emit_real (m->rope.theta);
  g_string_append_printf (
      text,
      "model:\n  ddp_bucket_cap_mb: 25\n  dtype: bfloat16\n  init_method:\n    std: 0.02\n"
      "  make_vocab_size_divisible_by: 1\n  model_config:\n"
      "    bos_token_id: 0 # the tokenizer's\n    eos_token_id: 0 # the tokenizer's\n"
      "    hidden_act: silu\n    hidden_size: " INT "\n    initializer_range: 0.02\n"
      "    intermediate_size: " INT "\n    is_llama_config: true\n"
      "    max_position_embeddings: " INT "\n    num_attention_heads: " INT "\n"
      "    num_hidden_layers: " INT "\n    num_key_value_heads: " INT "\n"
      "    pad_token_id: null\n    pretraining_tp: 1\n    rms_norm_eps: %s\n"
      "    rope_interleaved: false\n    rope_scaling: null\n    rope_theta: %s\n"
      "    tie_word_embeddings: %s\n    use_cache: true\n    vocab_size: " INT "\n",
      m->hidden, m->ffn, subject->of->plan.value[PLAN_SEQ], m->heads, m->layers, m->kv_heads, eps,
      theta, m->tied_embeddings ? "true" : "false", m->vocab);
}

static void
append_parallelism (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gboolean is_sequence = value[PLAN_TP] > 1 && IS (SP, ON);
  g_string_append_printf (
      text,
      "parallelism:\n  dp: " INT "\n  expert_parallel_size: 1\n  pp: " INT "\n"
      "  pp_engine: %s\n"
      "  recompute_layer: %s\n  tp: " INT "\n  tp_linear_async_communication: %s\n"
      "  tp_mode: %s\n  tp_recompute_allgather: true\n",
      plan_data_parallel (&subject->of->plan, subject->of->cluster), value[PLAN_PP],
      IS (PP_SCHEDULE, AFAB) ? "afab" : "1f1b",
      plan_emit_recomputed (subject) > 0 ? "true" : "false", value[PLAN_TP],
      is_sequence ? "true" : "false", is_sequence ? "REDUCE_SCATTER" : "ALL_REDUCE");
}

static void
append_optimizer (GString *text, const gint64 *value)
{
  g_string_append_printf (
      text,
      "optimizer:\n  accumulate_grad_in_fp32: true\n  clip_grad: 1.0\n"
      "  learning_rate_scheduler:\n    learning_rate: 0.0003\n"
      "    lr_decay_starting_step: null\n    lr_decay_steps: 90\n    lr_decay_style: cosine\n"
      "    lr_warmup_steps: 10\n    lr_warmup_style: linear\n    min_decay_lr: 0.00003\n"
      "  optimizer_factory:\n    adam_beta1: 0.9\n    adam_beta2: 0.95\n    adam_eps: 1.0e-08\n"
      "    name: adamW\n    torch_adam_is_fused: true\n"
      "  weight_decay: 0.1\n  zero_stage: %d\n",
      IS (STRATEGY, OPTIM) ? 1 : 0);
}

char *
plan_emit_nanotron (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  GString *text = g_string_new (NULL);
  plan_emit_refuse_target (subject, &target, reasons);
  append_head (text, subject);
  append_loss (text, value);
  g_string_append (
      text, "checkpoints:\n  checkpoint_interval: 1000\n  checkpoints_path: checkpoints\n"
            "data_stages:\n- name: all\n  start_training_step: 1\n  data:\n    dataset: null\n"
            "    num_loading_workers: 1\n    seed: 42\n");
  g_string_append (text, "logging:\n  iteration_step_info_interval: 1\n  log_level: info\n"
                         "  log_level_replica: info\n");
  g_string_append_printf (text, "general:\n  project: fsdplan\n  run: %s\n  seed: 42\n",
                          subject->of->model->name);
  append_model (text, subject);
  append_optimizer (text, value);
  append_parallelism (text, subject);
  g_string_append (text, "tokenizer:\n  tokenizer_name_or_path: null\n");
  g_string_append_printf (text,
                          "tokens:\n  batch_accumulation_per_replica: " INT "\n"
                          "  micro_batch_size: " INT "\n  sequence_length: " INT "\n"
                          "  train_steps: 100\n",
                          plan_micro_batches (&subject->of->plan, subject->of->cluster),
                          value[PLAN_MBS], value[PLAN_SEQ]);
  return g_string_free (text, FALSE);
}
