/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/case.h"
#include "tests/prop/random.h"

#include "planner/plan/megatron-lacks.h"

#include <string.h>

PlanModel *
random_model (guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  g_autoptr (GError) error = NULL;
  const gint32 kv_heads = g_rand_int_range (rand, 1, 4);
  const gint32 heads = kv_heads * g_rand_int_range (rand, 1, 4);
  const gint32 head_dim = 2 * g_rand_int_range (rand, 1, 9);
  g_autofree char *spec = g_strdup_printf (
      "family=llama,layers=%d,hidden=%d,ffn=%d,heads=%d,kv_heads=%d,head_dim=%d,vocab=%d,"
      "max_seq=%d,tied=%s",
      g_rand_int_range (rand, 1, 7), g_rand_int_range (rand, 1, 80),
      g_rand_int_range (rand, 1, 120), heads, kv_heads, head_dim, g_rand_int_range (rand, 2, 300),
      g_rand_int_range (rand, 4, 64), g_rand_boolean (rand) ? "on" : "off");
  PlanModel *model = plan_model_new (spec, &error);
  if (!model)
    g_error ("seed %u: %s: %s", seed, spec, error->message);
  return model;
}

PlanCluster *
random_gpu_cluster (guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed + 1);
  g_autoptr (GError) error = NULL;
  g_autofree char *spec = g_strdup_printf ("dgx-h100:%d", g_rand_int_range (rand, 1, 4));
  PlanCluster *cluster = plan_cluster_new (spec, &error);
  if (!cluster)
    g_error ("seed %u: %s", seed, error->message);
  cluster->devices_per_node = g_rand_int_range (rand, 1, 9);
  cluster->nvlink_domain = cluster->devices_per_node;
  return cluster;
}

static void
set (Plan *plan, const char *name, const char *value)
{
  g_autoptr (GError) error = NULL;
  if (!plan_set (plan, name, value, &error))
    g_error ("%s=%s: %s", name, value, error->message);
}

static void
set_int (Plan *plan, const char *name, gint64 value)
{
  g_autofree char *text = g_strdup_printf ("%" G_GINT64_FORMAT, value);
  set (plan, name, text);
}

/* Sets loss_chunks: often 1, else any number that divides the rows. */
static void
set_pieces (GRand *rand, Plan *plan, gint64 rows)
{
  gint64 pieces = g_rand_boolean (rand) ? 1 : g_rand_int_range (rand, 1, 9);
  while (rows % pieces != 0)
    pieces--;
  plan->value[PLAN_LOSS_CHUNKS] = pieces;
}

PlanCase *
random_case (guint seed, const PlanModel *model, const PlanCluster *cluster, const char *stack)
{
  static const char *const strategies[]
      = { "no_shard", "optim", "optim_grads", "optim_grads_params" };
  static const char *const formats[] = { "fp32", "bf16" };
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed + 2);
  g_autoptr (GError) error = NULL;
  Plan plan;
  const gint32 mbs = g_rand_int_range (rand, 1, 4);
  plan_init (&plan);
  set (&plan, "stack", stack);
  set (&plan, "strategy", strategies[g_rand_int_range (rand, 0, 4)]);
  set (&plan, "compute", formats[g_rand_int_range (rand, 0, 2)]);
  set (&plan, "main_grads", formats[g_rand_int_range (rand, 0, 2)]);
  set (&plan, "grad_comm", formats[g_rand_int_range (rand, 0, 2)]);
  set_int (&plan, "mbs", mbs);
  set_int (&plan, "seq", g_rand_int_range (rand, 1, (gint32)model->max_seq + 1));
  set_int (&plan, "gbs", mbs * plan_cluster_devices (cluster) * g_rand_int_range (rand, 1, 5));
  switch (g_rand_int_range (rand, 0, 4))
    {
    case 0:
      set (&plan, "recompute", "full");
      set_int (&plan, "recompute_layers", g_rand_int_range (rand, 1, (gint32)model->layers + 1));
      break;
    case 1:
      set (&plan, "recompute", "full");
      set (&plan, "recompute_method", "block");
      set_int (&plan, "recompute_layers", g_rand_int_range (rand, 1, (gint32)model->layers + 1));
      break;
    case 2:
      set (&plan, "recompute", "selective");
      set (&plan, "recompute_modules", "mlp");
      break;
    default:
      break;
    }
  const gboolean is_native = strcmp (stack, "native") == 0;
  if (g_rand_int_range (rand, 0, 4) == 0
      && (is_native || plan.value[PLAN_STRATEGY] <= PLAN_STRATEGY_OPTIM))
    {
      set (&plan, "overlap_grad_reduce", "off");
      set (&plan, "overlap_param_gather", "off");
    }
  if (g_rand_int_range (rand, 0, 4) == 0)
    set (&plan, "ce_fusion", "off");
  /* From no prefetch to everything at once. */
  if (g_rand_boolean (rand) && (is_native || !plan_megatron_lacks (model, 0)))
    set_int (&plan, "comm_unit", 1 + g_rand_int_range (rand, 0, 40) * 1000);
  if (is_native)
    set_pieces (rand, &plan, mbs * plan.value[PLAN_SEQ]);
  PlanCase *of = plan_case_new (model, cluster, &plan, NULL, &error);
  if (!of)
    g_error ("seed %u: %s", seed, error->message);
  return of;
}

PlanModel *
random_wide_model (guint seed)
{
  static const char *const families[]
      = { "llama", "mistral",  "qwen2", "qwen3",  "gemma", "gemma2", "gemma3_text",
          "gpt2",  "gpt_neox", "bloom", "falcon", "mpt",   "phi3" };
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed + 3);
  g_autoptr (GError) error = NULL;
  const gint32 kv_heads = 1 << g_rand_int_range (rand, 1, 3);
  const gboolean is_grouped = g_rand_boolean (rand);
  const char *family = families[g_rand_int_range (rand, 0, G_N_ELEMENTS (families))];
  g_autofree char *spec = g_strdup_printf (
      "family=%s,layers=%d,hidden=%d,ffn=%d,heads=%d,kv_heads=%d,head_dim=%d,vocab=%d,max_seq=%d",
      family, g_rand_int_range (rand, 1, 9), 128 * g_rand_int_range (rand, 1, 4),
      128 * g_rand_int_range (rand, 1, 5), is_grouped ? 2 * kv_heads : kv_heads, kv_heads,
      64 * g_rand_int_range (rand, 1, 3), g_rand_int_range (rand, 100, 2000),
      128 * g_rand_int_range (rand, 2, 5));
  if (seed % 3 == 0) /* windows in all layers, in some, or behind some */
    {
      g_autofree char *plain = g_steal_pointer (&spec);
      const gint32 window = g_rand_int_range (rand, 1, 200), every = g_rand_int_range (rand, 1, 5);
      const gboolean is_full = every > 1 && g_rand_boolean (rand);
      spec = g_strdup_printf ("%s,window=%d,window_every=%d,full_every=%d", plain, window,
                              is_full ? 1 : every, is_full ? every : 0);
    }
  if (seed % 8 == 6) /* what layers of Llama 4 have */
    {
      g_autofree char *plain = g_steal_pointer (&spec);
      const char *norms = strstr ("llama mistral qwen2", family) ? ",qk_l2_norm=all" : "";
      const gboolean is_rotary = !strstr ("gpt2 bloom mpt", family);
      spec = g_strdup_printf ("%s,nope_every=%d%s%s", plain,
                              is_rotary ? g_rand_int_range (rand, 0, 5) : 0,
                              seed % 3 == 0 ? ",window_chunks=on" : "", is_rotary ? norms : "");
    }
  PlanModel *model = plan_model_new (spec, &error);
  if (!model)
    g_error ("seed %u: %s: %s", seed, spec, error->message);
  return model;
}

/* One of a field's values. */
static void
set_any (GRand *rand, Plan *plan, PlanField field)
{
  const char *const *names = plan_field_names (field);
  const guint n = g_strv_length ((char **)names);
  plan->value[field] = g_rand_int_range (rand, 0, (gint32)n);
}

/* Fields that take any of their values. */
static const PlanField any[] = { PLAN_STRATEGY,
                                 PLAN_OUTER_STRATEGY,
                                 PLAN_SP,
                                 PLAN_FINE_GRAINED,
                                 PLAN_DOUBLE_BUFFER,
                                 PLAN_NCCL_UB,
                                 PLAN_AG_GROUP,
                                 PLAN_COMPUTE,
                                 PLAN_PARAM_GATHER,
                                 PLAN_KEEP_TRANSPOSE,
                                 PLAN_MAIN_PARAMS,
                                 PLAN_MAIN_GRADS,
                                 PLAN_GRAD_COMM,
                                 PLAN_EXP_AVG,
                                 PLAN_EXP_AVG_SQ,
                                 PLAN_PRECISION_AWARE,
                                 PLAN_FUSED_MASTERS,
                                 PLAN_OPTIMIZER,
                                 PLAN_RECOMPUTE,
                                 PLAN_RECOMPUTE_METHOD,
                                 PLAN_GRAD_ACCUM_FUSION,
                                 PLAN_PER_TOKEN_LOSS,
                                 PLAN_REDUCE_ALGO,
                                 PLAN_OVERLAP_GRAD_REDUCE,
                                 PLAN_OVERLAP_PARAM_GATHER,
                                 PLAN_CE_FUSION,
                                 PLAN_NAN_CHECK,
                                 PLAN_SYNC_EVERY_MICRO_BATCH,
                                 PLAN_CUDA_GRAPH,
                                 PLAN_DETERMINISTIC,
                                 PLAN_EMPTY_CACHE,
                                 PLAN_TP_OVERLAP,
                                 PLAN_COMPILE,
                                 PLAN_SHARP,
                                 PLAN_TASK };

/* Sets doc_tokens in one of five plans, eod_mask_loss in one of three, of stacks that know them,
 * and graph_modules in three of five. */
static void
set_megatron (guint seed, Plan *plan, const char *stack)
{
  static const char *const known[] = { "native", "megatron", "megatron-fsdp", NULL };
  if (!g_strv_contains (known, stack))
    return;
  if (seed % 5 == 4)
    set_int (plan, "doc_tokens", 1 + seed * 37 % 300);
  if (seed % 3 == 1)
    set (plan, "eod_mask_loss", "on");
  if (strcmp (stack, "megatron") == 0 && seed % 5 != 4)
    plan->value[PLAN_GRAPH_MODULES] = seed / 2 % 4; /* attn, mlp */
}

/* Sets what PyTorch's stacks alone have: grad_sync in one of two plans, adam_foreach in one of
 * three. */
static void
set_torch (guint seed, Plan *plan, const char *stack)
{
  if (g_str_has_prefix (stack, "fsdp") && seed % 2 == 1)
    set (plan, "grad_sync", "last");
  if (g_str_has_prefix (stack, "fsdp") && seed % 3 == 1)
    set (plan, "adam_foreach", "on");
}

PlanCase *
random_wide_case (guint seed, const PlanModel *model, const PlanCluster *cluster)
{
  static const char *const stacks[] = { "megatron-fsdp",
                                        "megatron-fsdp@2026-03-15",
                                        "megatron-fsdp@2026-05-01",
                                        "native",
                                        "megatron",
                                        "fsdp2",
                                        "fsdp2@2024-05-01",
                                        "fsdp1",
                                        "nanotron",
                                        "nanotron@2024-12-10" };
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed + 4);
  const gint64 devices = plan_cluster_devices (cluster);
  const char *stack = stacks[g_rand_int_range (rand, 0, G_N_ELEMENTS (stacks))];
  PlanCase *of;
  Plan plan;
  guint tries = 0;
  do
    {
      const gint32 mbs = g_rand_int_range (rand, 1, 3);
      stack = ++tries == 5000 ? "fsdp2" : stack; /* some stacks do not have every model */
      plan_init (&plan);
      set (&plan, "stack", stack);
      for (guint i = 0; i < G_N_ELEMENTS (any); i++)
        if (g_rand_int_range (rand, 0, 3) == 0)
          set_any (rand, &plan, any[i]);
      if (g_rand_boolean (rand))
        set_int (&plan, "dp_outer", 1 << g_rand_int_range (rand, 0, 3));
      if (g_rand_int_range (rand, 0, 3) == 0)
        set_int (&plan, "tp", 1 << g_rand_int_range (rand, 0, 3));
      if (g_rand_int_range (rand, 0, 3) == 0)
        plan.value[PLAN_OFFLOAD_OPTIMIZER] = g_rand_int_range (rand, 0, 5) * 250000;
      if (g_rand_int_range (rand, 0, 4) == 0)
        plan.value[PLAN_HIDDEN_DROPOUT] = g_rand_int_range (rand, 0, 5) * 250000;
      if (g_rand_int_range (rand, 0, 4) == 0)
        plan.value[PLAN_ATTENTION_DROPOUT] = g_rand_int_range (rand, 0, 5) * 250000;
      if (g_rand_int_range (rand, 0, 4) == 0)
        set_int (&plan, "offload_layers", g_rand_int_range (rand, 1, (gint32)model->layers + 1));
      if (g_rand_int_range (rand, 0, 4) == 0)
        plan.value[PLAN_OFFLOAD_MODULES] = g_rand_int_range (rand, 1, 32);
      if (g_rand_int_range (rand, 0, 3) == 0)
        set_int (&plan, "cp", 1 << g_rand_int_range (rand, 0, 4));
      if (plan.value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_SELECTIVE)
        plan.value[PLAN_RECOMPUTE_MODULES] = g_rand_boolean (rand)
                                                 ? g_rand_int_range (rand, 1, 8)
                                                 : 1 << PLAN_RECOMPUTE_MODULES_OP_SAC;
      if (plan.value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL)
        set_int (&plan, "recompute_layers", g_rand_int_range (rand, 1, (gint32)model->layers + 1));
      if (g_rand_boolean (rand))
        set_int (&plan, "comm_unit", 1 + g_rand_int_range (rand, 0, 40) * 100000);
      set_int (&plan, "mbs", mbs);
      set_int (&plan, "seq", 128 * g_rand_int_range (rand, 1, 3));
      set_int (&plan, "gbs", mbs * devices * g_rand_int_range (rand, 1, 5));
      if (strcmp (stack, "native") == 0)
        set_pieces (rand, &plan, mbs * plan.value[PLAN_SEQ] / plan.value[PLAN_CP]);
      set_megatron (seed, &plan, stack);
      set_torch (seed, &plan, stack);
    }
  while (!(of = plan_case_new (model, cluster, &plan, NULL, NULL)));
  return of;
}

/* Adds some ops, each of which uses one buffer and waits for the event of the buffer's last use. */
static void
random_ops (GRand *rand, PlanSchedule *schedule, gint32 buffers, gint32 events, guint n_buffers)
{
  const gint32 n = g_rand_int_range (rand, 1, 8);
  for (gint32 i = 0; i < n; i++)
    {
      const gint32 which = g_rand_int_range (rand, 0, (gint32)n_buffers);
      const PlanRef ref = { .array = buffers, .offset = which, .loop = -1 };
      const PlanRef event = { .array = events, .offset = which, .loop = -1 };
      PlanOp op;
      plan_op_init (&op, g_rand_boolean (rand) ? PLAN_OP_ZERO : PLAN_OP_ALL_REDUCE,
                    (PlanStream)g_rand_int_range (rand, PLAN_STREAM_COMPUTE, PLAN_N_STREAMS));
      op.refs[0] = ref;
      if (op.kind == PLAN_OP_ALL_REDUCE)
        op.group = (gint8)g_rand_int_range (rand, 0, 2);
      if (g_rand_int_range (rand, 0, 3) == 0)
        op.graph = (guint8)g_rand_int_range (rand, 0, PLAN_N_GRAPH_PLACES);
      if (g_rand_boolean (rand)) /* wraps around to the same place */
        op.refs[0].modulus = (guint8)n_buffers;
      op.dims[0] = g_rand_int_range (rand, 1, 17);
      op.waits[op.n_waits++] = event;
      op.record = event;
      plan_schedule_add (schedule, &op);
    }
}

/* Allocates and writes every buffer, or frees every one once its last use is over. */
static void
each_buffer (PlanSchedule *schedule, PlanOpKind kind, gint32 buffers, gint32 events, guint n)
{
  PlanOp op;
  plan_schedule_begin_repeat (schedule, "b", 0, n, 1);
  plan_op_init (&op, kind, PLAN_STREAM_COMPUTE);
  op.refs[0] = (PlanRef){ .array = buffers, .loop = 0 };
  if (kind == PLAN_OP_FREE)
    op.waits[op.n_waits++] = (PlanRef){ .array = events, .loop = 0 };
  plan_schedule_add (schedule, &op);
  if (kind == PLAN_OP_ALLOC)
    {
      plan_op_init (&op, PLAN_OP_ZERO, PLAN_STREAM_COMPUTE);
      op.refs[0] = (PlanRef){ .array = buffers, .loop = 0 };
      op.dims[0] = 16;
      op.record = (PlanRef){ .array = events, .loop = 0 };
      plan_schedule_add (schedule, &op);
    }
  plan_schedule_end_repeat (schedule);
}

/* The host waits at the end of a step, as a training loop does that looks at its loss. */
static void
wait_for_all (PlanSchedule *schedule, gint32 events, guint n)
{
  PlanOp op;
  plan_schedule_begin_repeat (schedule, "b", 0, n, 1);
  plan_op_init (&op, PLAN_OP_SYNC, PLAN_STREAM_HOST);
  op.waits[op.n_waits++] = (PlanRef){ .array = events, .loop = 0 };
  plan_schedule_add (schedule, &op);
  plan_schedule_end_repeat (schedule);
}

PlanSchedule *
random_schedule (guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  const guint n = (guint)g_rand_int_range (rand, 1, 6);
  const guint ranks = (guint)g_rand_int_range (rand, 1, 5);
  PlanSchedule *schedule = plan_schedule_new (0, ranks);
  plan_schedule_add_group (schedule, "all", ranks, 1);
  plan_schedule_add_group (schedule, "own", 1, 1);
  const gint32 buffers
      = plan_schedule_add_buffer (schedule, "b", n, 16, PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS);
  const gint32 events = plan_schedule_add_event (schedule, "e", n);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  each_buffer (schedule, PLAN_OP_ALLOC, buffers, events, n);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  plan_schedule_begin_repeat (schedule, "i", 0, g_rand_int_range (rand, 1, 5), 1);
  random_ops (rand, schedule, buffers, events, n);
  plan_schedule_begin_repeat (schedule, "j", 3, g_rand_int_range (rand, 1, 4), -1);
  random_ops (rand, schedule, buffers, events, n);
  plan_schedule_end_repeat (schedule);
  plan_schedule_end_repeat (schedule);
  random_ops (rand, schedule, buffers, events, n);
  wait_for_all (schedule, events, n);
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  each_buffer (schedule, PLAN_OP_FREE, buffers, events, n);
  return schedule;
}

#define SPREAD 6 /* furthest that a reference looks ahead of its loop's value */

/* How the events of a long schedule are used. */
enum
{
  FIXED,
  WITH_OUTER,
  WITH_INNER,
  IN_TURNS,
  N_USES
};

/* A long schedule that is being made, its events and its buffers. */
typedef struct
{
  GRand *rand;
  PlanSchedule *schedule;
  gint32 events[N_USES];
  gint32 buffer, saved, transient, kept, hole;
  guint depth;            /* repeats around */
  gboolean outer_is_same; /* no event moves with the outer repeat */
} Long;

#define KEPT 24 /* elements of `kept` and `hole` */

static PlanRef
any_event (Long *self)
{
  gint32 use = g_rand_int_range (self->rand, 0, N_USES);
  if (use == WITH_OUTER && self->outer_is_same)
    use = FIXED;
  PlanRef ref = { .array = self->events[use], .loop = -1 };
  ref.offset = g_rand_int_range (self->rand, 0, SPREAD);
  if (use == WITH_OUTER && self->depth > 0 && g_rand_int_range (self->rand, 0, 8) > 0)
    ref.loop = 0;
  if (use == WITH_INNER && self->depth > 1 && g_rand_int_range (self->rand, 0, 20) > 0)
    ref.loop = 1;
  if (use == IN_TURNS)
    {
      ref.modulus = (guint8)g_rand_int_range (self->rand, 1, 4);
      ref.loop = (gint8)(g_rand_int_range (self->rand, 0, (gint32)self->depth + 1) - 1);
    }
  return ref;
}

static void
long_ops (Long *self)
{
  const gint32 n = g_rand_int_range (self->rand, 1, 9);
  for (gint32 i = 0; i < n; i++)
    {
      static const PlanOpKind kinds[] = { PLAN_OP_ZERO, PLAN_OP_ZERO,       PLAN_OP_ZERO,
                                          PLAN_OP_WAIT, PLAN_OP_ALL_REDUCE, PLAN_OP_ALL_REDUCE };
      PlanOp op;
      const gboolean is_sync = g_rand_int_range (self->rand, 0, 30) == 0;
      plan_op_init (&op, is_sync ? PLAN_OP_SYNC : kinds[g_rand_int_range (self->rand, 0, 6)],
                    (PlanStream)g_rand_int_range (self->rand, PLAN_STREAM_COMPUTE, 5));
      if (op.kind == PLAN_OP_ZERO || op.kind == PLAN_OP_ALL_REDUCE)
        {
          op.refs[0] = (PlanRef){ .array = self->buffer, .loop = -1 };
          op.dims[0] = g_rand_int_range (self->rand, 0, 41);
        }
      if (op.kind == PLAN_OP_ALL_REDUCE)
        op.group = (gint8)g_rand_int_range (self->rand, 0, 2);
      op.n_waits = (guint8)g_rand_int_range (self->rand, 0, 3);
      for (guint w = 0; w < op.n_waits; w++)
        op.waits[w] = any_event (self);
      if (g_rand_int_range (self->rand, 0, 3) > 0)
        op.record = any_event (self);
      plan_schedule_add (self->schedule, &op);
    }
}

static void
long_memory (Long *self, PlanOpKind kind, gint32 buffer, gint8 loop)
{
  PlanOp op;
  plan_op_init (&op, kind, PLAN_STREAM_COMPUTE);
  op.refs[0] = (PlanRef){ .array = buffer, .loop = loop };
  plan_schedule_add (self->schedule, &op);
}

/* A loop of a pass, with a buffer that lives from the forward to the backward pass and one that
 * does not. */
static void
long_loop (Long *self, gint64 count, gboolean is_backward)
{
  plan_schedule_begin_repeat (self->schedule, "j", is_backward ? count - 1 : 0, count,
                              is_backward ? -1 : 1);
  self->depth++;
  long_ops (self);
  long_memory (self, is_backward ? PLAN_OP_FREE : PLAN_OP_ALLOC, self->saved, 1);
  long_memory (self, PLAN_OP_ALLOC, self->transient, -1);
  if (g_rand_boolean (self->rand))
    long_ops (self);
  long_memory (self, PLAN_OP_FREE, self->transient, -1);
  self->depth--;
  plan_schedule_end_repeat (self->schedule);
}

/* Allocates or frees every element of `kept` or `hole`. */
static void
long_memory_all (Long *self, PlanOpKind kind, gint32 buffer)
{
  plan_schedule_begin_repeat (self->schedule, "k", 0, KEPT, 1);
  long_memory (self, kind, buffer, (gint8)self->depth);
  plan_schedule_end_repeat (self->schedule);
}

/* Takes buffers that stay, with holes between them. */
static void
long_setup (Long *self)
{
  long_memory (self, PLAN_OP_ALLOC, self->buffer, -1);
  plan_schedule_begin_repeat (self->schedule, "k", 0, KEPT, 1);
  long_memory (self, PLAN_OP_ALLOC, self->kept, 0);
  long_memory (self, PLAN_OP_ALLOC, self->hole, 0);
  plan_schedule_end_repeat (self->schedule);
  long_memory_all (self, PLAN_OP_FREE, self->hole);
}

static gint32
long_buffer (Long *self, const char *name, guint32 count)
{
  static const guint64 sizes[] = { 0, 100, 700 << 10, 3 << 20, 9 << 20, 33 << 20 };
  return plan_schedule_add_buffer (
      self->schedule, name, count,
      sizes[g_rand_int_range (self->rand, 0, 6)] + (guint64)g_rand_int_range (self->rand, 0, 5000),
      PLAN_DTYPE_U8, (PlanCategory)g_rand_int_range (self->rand, 0, PLAN_N_CATEGORIES));
}

PlanSchedule *
random_long_schedule (guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed + 5);
  const gint64 outer = g_rand_int_range (rand, 1, 40), inner = g_rand_int_range (rand, 1, 60);
  PlanSchedule *schedule = plan_schedule_new (0, 4);
  Long self = { .rand = rand, .schedule = schedule, .outer_is_same = seed % 2 == 0 };
  plan_schedule_add_group (schedule, "all", 4, 1);
  plan_schedule_add_group (schedule, "pair", 2, 1);
  self.buffer = long_buffer (&self, "b", 1);
  self.saved = long_buffer (&self, "saved", (guint32)inner);
  self.transient = long_buffer (&self, "transient", 1);
  self.kept = long_buffer (&self, "kept", KEPT);
  self.hole = long_buffer (&self, "hole", KEPT);
  self.events[FIXED] = plan_schedule_add_event (schedule, "fixed", SPREAD);
  self.events[WITH_OUTER] = plan_schedule_add_event (schedule, "outer", (guint32)outer + SPREAD);
  self.events[WITH_INNER] = plan_schedule_add_event (schedule, "inner", (guint32)inner + SPREAD);
  self.events[IN_TURNS] = plan_schedule_add_event (schedule, "turns", 3);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  long_setup (&self);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  long_ops (&self);
  plan_schedule_begin_repeat (schedule, "i", 0, outer, 1);
  self.depth++;
  if (g_rand_boolean (rand))
    long_ops (&self);
  long_loop (&self, inner, FALSE);
  if (g_rand_boolean (rand))
    long_ops (&self);
  long_loop (&self, inner, TRUE);
  self.depth--;
  plan_schedule_end_repeat (schedule);
  long_ops (&self);
  if (g_rand_boolean (rand)) /* frees the blocks between holes, so that it matters which holes lie
                                side by side */
    {
      long_memory_all (&self, PLAN_OP_ALLOC, self.hole);
      long_memory_all (&self, PLAN_OP_FREE, self.kept);
      long_memory_all (&self, PLAN_OP_FREE, self.hole);
      long_memory_all (&self, PLAN_OP_ALLOC, self.kept);
    }
  if (g_rand_int_range (rand, 0, 5) > 0)
    wait_for_all (schedule, self.events[FIXED], SPREAD);
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  long_memory (&self, PLAN_OP_FREE, self.buffer, -1);
  long_memory_all (&self, PLAN_OP_FREE, self.kept);
  return schedule;
}
