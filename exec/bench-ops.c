/* SPDX-License-Identifier: Apache-2.0 */
/* Which ops are timed, and at which sizes. */
#include "config.h"

#include "exec/bench.h"

#include "planner/lower.h"

#include <stdlib.h>
#include <string.h>

/* Plans that between them have every op that is executed, and every format it is executed in. */
static const struct
{
  const char *model, *fields;
} sources[] = {
  { "llama-tiny", "compute=fp32" },
  { "llama-tiny", "compute=bf16" },
  { "llama-tiny", "compute=bf16 main_grads=bf16 grad_comm=bf16 exp_avg=bf16 exp_avg_sq=bf16 "
                  "precision_aware=on" },
  { "llama-tiny", "compute=bf16 strategy=no_shard main_params=fp32" },
  { "llama-tiny", "compute=fp32 strategy=optim reduce_algo=a2a" },
  { "llama-tiny", "compute=bf16 optimizer=sgd" },
  { "family=gpt2,layers=2,hidden=64,ffn=256,heads=2,vocab=256,max_seq=64", "compute=fp32" },
  { "family=gpt2,layers=2,hidden=64,ffn=256,heads=2,vocab=256,max_seq=64", "compute=bf16" },
  { "family=qwen3,layers=2,hidden=64,heads=2,kv_heads=1,head_dim=32,ffn=128,vocab=256,max_seq=64",
    "compute=fp32" },
  { "family=qwen3,layers=2,hidden=64,heads=2,kv_heads=1,head_dim=32,ffn=128,vocab=256,max_seq=64",
    "compute=bf16" },
};

#define MAX_AXES 3
#define GEMM_BIAS 3 /* operand of a product */

/* Products beyond so much arithmetic, and others beyond so much traffic, take too long to be timed
 * often: their time is in proportion to that of the largest that are timed. */
#define MAX_FLOPS (4.0 * 1024 * 1024 * 1024)
#define MAX_BYTES (256.0 * 1024 * 1024)

/* A dim and the sizes that it takes, up to a 0. */
typedef struct
{
  const char *dim;
  gint64 sizes[8];
} Axis;

/* Ops that begin with `first` in their name, or with any; the first that fits holds. */
static const struct
{
  const char *first;
  Axis axes[MAX_AXES];
} grids[] = {
  { "gemm",
    { { "m", { 16, 64, 256, 1024, 4096 } },
      { "n", { 16, 64, 256, 1024, 4096 } },
      { "k", { 16, 64, 256, 1024, 4096 } } } },
  { "attention", { { "seq", { 16, 64, 256, 1024 } }, { "head_dim", { 16, 64, 128 } } } },
  { "cross_entropy", { { "rows", { 16, 128, 1024 } }, { "cols", { 256, 4096, 32768 } } } },
  { "embed_bwd",
    { { "rows", { 16, 256, 4096 } },
      { "cols", { 64, 512, 2048 } },
      { "vocab", { 256, 4096, 32768 } } } },
  { "rope", { { "rows", { 16, 128, 1024, 8192 } }, { "heads", { 1, 8, 32 } } } },
  { "head_norm", { { "rows", { 16, 128, 1024, 8192 } }, { "heads", { 1, 8, 32 } } } },
  { "clip", { { NULL, { 0 } } } },
  { "", { { "rows", { 16, 128, 1024, 8192 } }, { "cols", { 64, 512, 4096 } } } },
};

/* Of ops that have no dims but a number of elements. */
static const Axis counts = { "count", { 256, 4096, 65536, 1048576, 4194304, 16777216 } };

static gint
find_dim (PlanOpKind kind, const char *name)
{
  for (guint d = 0; name && d < plan_op_n_dims (kind); d++)
    if (strcmp (plan_op_dim_name (kind, d), name) == 0)
      return (gint)d;
  return -1;
}

static void
set_dim (PlanOp *op, const char *name, gint64 value)
{
  const gint d = find_dim (op->kind, name);
  if (d >= 0)
    op->dims[d] = value;
}

static gint64
get_dim (const PlanOp *op, const char *name)
{
  const gint d = find_dim (op->kind, name);
  return d >= 0 ? op->dims[d] : 0;
}

/* Dims that follow from those that were chosen: one sequence of as many heads for keys as for
 * queries, in heads of 64 where their number was chosen, over a vocabulary of 8192. */
static void
complete (PlanOp *op)
{
  const gboolean is_attention = op->kind == PLAN_OP_ATTENTION || op->kind == PLAN_OP_ATTENTION_BWD;
  if (is_attention)
    {
      set_dim (op, "batch", 1);
      set_dim (op, "heads", 2);
      set_dim (op, "keys", get_dim (op, "seq"));
    }
  else
    {
      set_dim (op, "head_dim", 64);
      set_dim (op, "seq", get_dim (op, "rows"));
    }
  set_dim (op, "kv_heads", get_dim (op, "heads"));
  if (op->kind == PLAN_OP_EMBED)
    set_dim (op, "vocab", 8192);
}

static double
bytes_of (const ExecBenchOp *self)
{
  double bytes = 0;
  for (guint i = 0; i < plan_op_n_refs (self->op.kind); i++)
    if (self->op.refs[i].array >= 0)
      bytes += (double)plan_dtype_bytes (self->dtype[i],
                                         plan_op_ref_elements (&self->op, i, self->ranks));
  return bytes;
}

double
exec_bench_guess_ns (const ExecBenchOp *self)
{
  return 500 + plan_op_flops (&self->op) / 30 + bytes_of (self) / 2;
}

guint
exec_bench_repeats (const ExecBenchOp *self, double share_ns)
{
  return (guint)CLAMP (share_ns / exec_bench_guess_ns (self), 5, 101) | 1;
}

/* The same thing, perhaps at another size. */
static gboolean
is_like (const ExecBenchOp *a, const ExecBenchOp *b)
{
  if (a->op.kind != b->op.kind)
    return FALSE;
  for (guint i = 0; i < plan_op_n_refs (a->op.kind); i++)
    if ((a->op.refs[i].array < 0) != (b->op.refs[i].array < 0)
        || (a->op.refs[i].array >= 0 && a->dtype[i] != b->dtype[i]))
      return FALSE;
  for (guint d = 0; d < plan_op_n_dims (a->op.kind); d++)
    if (!plan_op_dim_is_size (a->op.kind, d) && a->op.dims[d] != b->op.dims[d])
      return FALSE;
  return TRUE;
}

static void
add_size (GArray *ops, const ExecBenchOp *like, const Axis *const *axes, const guint *at)
{
  ExecBenchOp self = *like;
  for (guint a = 0; a < MAX_AXES && axes[a]; a++)
    set_dim (&self.op, axes[a]->dim, axes[a]->sizes[at[a]]);
  if (axes[0])
    complete (&self.op);
  if (plan_op_flops (&self.op) <= MAX_FLOPS && bytes_of (&self) <= MAX_BYTES)
    g_array_append_val (ops, self);
}

/* Counts up, the last axis fastest; FALSE past the end. */
static gboolean
next_size (const Axis *const *axes, guint *at)
{
  for (guint a = MAX_AXES; a-- > 0;)
    {
      if (!axes[a])
        continue;
      if (++at[a] < G_N_ELEMENTS (axes[a]->sizes) && axes[a]->sizes[at[a]] > 0)
        return TRUE;
      at[a] = 0;
    }
  return FALSE;
}

static void
add_sizes (GArray *ops, const ExecBenchOp *like)
{
  const Axis *axes[MAX_AXES] = { NULL };
  guint at[MAX_AXES] = { 0 }, g = 0;
  if (find_dim (like->op.kind, "count") == 0)
    axes[0] = &counts;
  else
    {
      while (!g_str_has_prefix (plan_op_name (like->op.kind), grids[g].first))
        g++;
      for (guint a = 0; a < MAX_AXES; a++)
        axes[a] = grids[g].axes[a].dim ? &grids[g].axes[a] : NULL;
    }
  do
    add_size (ops, like, axes, at);
  while (next_size (axes, at));
}

/* Groups as plans have them: all ranks; those of a node, and those that hold the same of each. */
static void
add_groups (GArray *ops, const ExecBenchOp *kind, const PlanCluster *cluster)
{
  const guint nodes = (guint)cluster->nodes, each = (guint)cluster->devices_per_node;
  ExecBenchOp self = *kind;
  const gboolean meets = plan_op_class (self.op.kind) == PLAN_CLASS_COLLECTIVE;
  self.nodes = meets ? nodes : 1;
  add_sizes (ops, &self);
  if (!meets || nodes == 1 || each == 1)
    return;
  self.ranks = each;
  self.nodes = 1;
  add_sizes (ops, &self);
  self.ranks = self.nodes = nodes;
  self.stride = each;
  add_sizes (ops, &self);
}

/* Set-up is not timed, nor is what the host does. */
static gboolean
is_timed (const PlanOp *op, guint ranks)
{
  if (op->kind >= PLAN_N_OPS)
    return FALSE;
  const PlanOpClass class = plan_op_class (op->kind);
  return class == PLAN_CLASS_COMPUTE || (class == PLAN_CLASS_COLLECTIVE && ranks > 1);
}

/* A product's bias makes no difference that shows. */
static ExecBenchOp
op_of (const PlanSchedule *schedule, const PlanOp *op)
{
  ExecBenchOp self;
  memset (&self, 0, sizeof self);
  self.ranks = plan_schedule_ranks (schedule);
  self.stride = self.nodes = 1;
  plan_op_init (&self.op, op->kind, PLAN_STREAM_COMPUTE);
  memcpy (self.op.dims, op->dims, sizeof self.op.dims);
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if (op->refs[i].array >= 0 && !(op->kind == PLAN_OP_GEMM && i == GEMM_BIAS))
      {
        self.op.refs[i].array = 0;
        self.dtype[i] = plan_schedule_buffer (schedule, (guint)op->refs[i].array)->dtype;
      }
  return self;
}

static void
collect (GArray *kinds, const PlanSchedule *schedule)
{
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      gboolean is_known = FALSE;
      if (!is_timed (op, plan_schedule_ranks (schedule))
          || (op->group >= 0
              && plan_schedule_group_size (schedule, op) != plan_schedule_ranks (schedule)))
        continue;
      const ExecBenchOp self = op_of (schedule, op);
      for (guint i = 0; i < kinds->len && !is_known; i++)
        is_known = is_like (&g_array_index (kinds, ExecBenchOp, i), &self);
      if (!is_known)
        g_array_append_val (kinds, self);
    }
}

static PlanSchedule *
lower (const char *spec, const char *fields, const PlanCluster *cluster, GError **error)
{
  g_auto (GStrv) words = g_strsplit (fields, " ", -1);
  g_autofree char *gbs = g_strdup_printf ("%" G_GINT64_FORMAT, 2 * plan_cluster_devices (cluster));
  g_autoptr (PlanModel) model = plan_model_new (spec, error);
  Plan plan, resolved;
  plan_init (&plan);
  if (!model || !plan_set (&plan, "stack", "native", error) || !plan_set (&plan, "seq", "16", error)
      || !plan_set (&plan, "gbs", gbs, error))
    return NULL;
  for (char **word = words; *word; word++)
    {
      g_auto (GStrv) halves = g_strsplit (*word, "=", 2);
      if (!plan_set (&plan, halves[0], halves[1], error))
        return NULL;
    }
  return plan_resolve (&plan, model, cluster, &resolved, error)
             ? plan_lower (model, cluster, &resolved, 0, error)
             : NULL;
}

typedef struct
{
  double ns;
  guint position;
} Order;

static int
compare (const void *left, const void *right)
{
  const Order *a = left, *b = right;
  return a->ns != b->ns ? (a->ns > b->ns) - (a->ns < b->ns)
                        : (a->position > b->position) - (a->position < b->position);
}

static GArray *
sort (const GArray *ops)
{
  GArray *sorted = g_array_new (FALSE, FALSE, sizeof (ExecBenchOp));
  g_autofree Order *order = g_new (Order, ops->len + 1);
  for (guint i = 0; i < ops->len; i++)
    order[i] = (Order){ exec_bench_guess_ns (&g_array_index (ops, ExecBenchOp, i)), i };
  qsort (order, ops->len, sizeof *order, compare);
  for (guint i = 0; i < ops->len; i++)
    g_array_append_val (sorted, g_array_index (ops, ExecBenchOp, order[i].position));
  return sorted;
}

GArray *
exec_bench_ops (const PlanCluster *cluster, GError **error)
{
  g_autoptr (GArray) kinds = g_array_new (FALSE, FALSE, sizeof (ExecBenchOp));
  g_autoptr (GArray) ops = g_array_new (FALSE, FALSE, sizeof (ExecBenchOp));
  for (guint i = 0; i < G_N_ELEMENTS (sources); i++)
    {
      g_autoptr (PlanSchedule) schedule
          = lower (sources[i].model, sources[i].fields, cluster, error);
      if (!schedule)
        {
          g_prefix_error (error, "%s with %s: ", sources[i].model, sources[i].fields);
          return NULL;
        }
      collect (kinds, schedule);
    }
  for (guint i = 0; i < kinds->len; i++)
    add_groups (ops, &g_array_index (kinds, ExecBenchOp, i), cluster);
  return sort (ops);
}
