/* SPDX-License-Identifier: Apache-2.0 */
/* Words are compared without regard to case, - and _: SHARD_GRAD_OP is shardgradop. */
#include "config.h"

#include "planner/plan/plan-words.h"

#include <string.h>

/* Words for values of one field. Without a `value` the word means more than this field can say, and
 * `advice` says what to write. */
static const struct
{
  PlanField field;
  const char *word, *value, *advice;
} words[] = {
  /* PyTorch's DistributedDataParallel and FullyShardedDataParallel (ShardingStrategy). */
  { PLAN_STRATEGY, "ddp", "no_shard", NULL },
  { PLAN_STRATEGY, "fsdp", "optim_grads_params", NULL },
  { PLAN_STRATEGY, "full_shard", "optim_grads_params", NULL },
  { PLAN_STRATEGY, "shard_grad_op", "optim_grads", NULL },
  { PLAN_STRATEGY, "hsdp", NULL, "strategy=optim_grads_params and dp_outer=N, its replicas" },
  { PLAN_STRATEGY, "hybrid_shard", NULL,
    "strategy=optim_grads_params and dp_outer=N, its replicas" },
  { PLAN_STRATEGY, "_hybrid_shard_zero2", NULL,
    "strategy=optim_grads and dp_outer=N, its replicas" },
  { PLAN_STRATEGY, "fsdp2", NULL, "stack=fsdp2; it shards by strategy=optim_grads_params" },
  { PLAN_STRATEGY, "fsdp1", NULL, "stack=fsdp1; it shards by strategy=optim_grads_params" },
  /* The stages of ZeRO (Rajbhandari et al., 2020). */
  { PLAN_STRATEGY, "zero0", "no_shard", NULL },
  { PLAN_STRATEGY, "zero1", "optim", NULL },
  { PLAN_STRATEGY, "zero2", "optim_grads", NULL },
  { PLAN_STRATEGY, "zero3", "optim_grads_params", NULL },
  { PLAN_STACK, "megatron_lm", "megatron", NULL },
  { PLAN_STACK, "fsdp", NULL, "stack=fsdp2, stack=fsdp1 or stack=megatron-fsdp" },
  { PLAN_STACK, "pytorch", NULL, "stack=fsdp2 (fully_shard) or stack=fsdp1" },
  { PLAN_STACK, "torchtitan", "fsdp2", NULL },
  { PLAN_COMPUTE, "fp8", NULL,
    "the recipe: compute=fp8-delayed, fp8-tensorwise, fp8-blockwise or mxfp8" },
  { PLAN_PP_SCHEDULE, "gpipe", "afab", NULL }, /* PyTorch's name */
  { PLAN_MOE_DISPATCHER, "flex", NULL, "its backend: moe_dispatcher=deepep or hybridep" },
  { PLAN_MOE_DISPATCHER, "standard", "alltoall", NULL }, /* a word of torchtitan's */
};

/* Words that mean one value in every field that takes it. */
static const struct
{
  const char *word, *value;
} values[] = {
  { "bfloat16", "bf16" }, { "torch.bfloat16", "bf16" },
  { "float16", "fp16" },  { "torch.float16", "fp16" },
  { "half", "fp16" },     { "float32", "fp32" },
  { "float", "fp32" },    { "torch.float32", "fp32" },
  { "true", "on" },       { "yes", "on" },
  { "1", "on" },          { "false", "off" },
  { "no", "off" },        { "0", "off" },
};

static const struct
{
  const char *name, *field;
} names[] = {
  { "micro_batch_size", "mbs" },
  { "micro_batch", "mbs" },
  { "batch_size", "gbs" },
  { "global_batch_size", "gbs" },
  { "global_batch", "gbs" },
  { "seq_len", "seq" },
  { "seq_length", "seq" },
  { "sequence_length", "seq" },
  { "max_seq_len", "seq" },
  { "sharding_strategy", "strategy" },
  { "zero_stage", "strategy" },
  { "zero", "strategy" },
  { "fsdp", "strategy" },
  { "reshard_after_forward", "strategy" },
  { "tensor_parallel_size", "tp" },
  { "tensor_model_parallel_size", "tp" },
  { "context_parallel_size", "cp" },
  { "pipeline_parallel_size", "pp" },
  { "expert_parallel_size", "ep" },
  { "expert_model_parallel_size", "ep" },
  { "expert_parallel_degree", "ep" },
  { "expert_tensor_parallel_size", "etp" },
  { "moe_token_dispatcher_type", "moe_dispatcher" },
  { "moe_comm_backend", "moe_dispatcher" },
  { "moe_router_dtype", "router_dtype" },
  { "moe_shared_expert_overlap", "moe_shared_overlap" },
  { "overlap_moe_expert_parallel_comm", "ep_overlap" },
  { "sequence_parallel", "sp" },
  { "dp_replicate", "dp_outer" },
  { "data_parallel_replicate_degree", "dp_outer" },
  { "dtype", "compute" },
  { "precision", "compute" },
  { "activation_checkpointing", "recompute" },
  { "gradient_checkpointing", "recompute" },
  { "recompute_granularity", "recompute" },
  { "torch_compile", "compile" },
  { "cuda_graphs", "cuda_graph" },
  { "cuda_graph_modules", "graph_modules" },
  { "cuda_graph_scope", "graph_modules" },
};

/* A word as it is compared: in lower case, without - and _. The caller frees. */
static char *
plain (const char *word)
{
  GString *out = g_string_new (NULL);
  for (const char *c = word; *c; c++)
    if (!strchr ("-_", *c))
      g_string_append_c (out, g_ascii_tolower (*c));
  return g_string_free (out, FALSE);
}

static gboolean
is_alike (const char *word, const char *asked)
{
  g_autofree char *mine = plain (word);
  return g_str_equal (mine, asked);
}

/* The field's value that equals a word so compared; NULL if there is none. */
static const char *
find_own (const char *const *own, const char *asked)
{
  for (; own && *own; own++)
    if (is_alike (*own, asked))
      return *own;
  return NULL;
}

const char *
plan_words_find_value (PlanField field, const char *word, const char **out_advice)
{
  g_autofree char *asked = plain (word);
  const char *found = find_own (plan_field_names (field), asked);
  for (guint i = 0; i < G_N_ELEMENTS (words); i++)
    if (!found && words[i].field == field && is_alike (words[i].word, asked))
      {
        if (out_advice)
          *out_advice = words[i].advice;
        return words[i].value;
      }
  for (guint i = 0; i < G_N_ELEMENTS (values) && !found; i++)
    if (g_str_equal (values[i].word, asked))
      found = find_own (plan_field_names (field), values[i].value);
  return found;
}

const char *
plan_words_find_field (const char *name)
{
  g_autofree char *asked = plain (name);
  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    if (is_alike (names[i].name, asked))
      return names[i].field;
  return NULL;
}
