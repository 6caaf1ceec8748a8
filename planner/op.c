/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/op.h"

#include <string.h>

#define MAX_NAME 20

/* One row of the op list, its operand and dim strings taken apart. */
typedef struct
{
  const char *name;
  PlanOpClass class;
  const char *operands;
  const char *dims;
  guint n_refs, n_dims;
  char ref_name[PLAN_MAX_REFS][MAX_NAME];
  char ref_access[PLAN_MAX_REFS];
  char dim_name[PLAN_MAX_DIMS][MAX_NAME];
} OpFacts;

static OpFacts op_facts[PLAN_N_OPS] = {
#define X(id, op_name, op_class, op_operands, op_dims, summary) \
  [PLAN_OP_##id] = { \
    .name = op_name, .class = PLAN_CLASS_##op_class, .operands = op_operands, .dims = op_dims \
  },
  PLAN_OP_LIST (X)
#undef X
};

static void
take_facts_apart (OpFacts *facts)
{
  g_auto (GStrv) operands = g_strsplit (facts->operands, " ", -1);
  g_auto (GStrv) dims = g_strsplit (facts->dims, " ", -1);

  for (char **o = operands; *o && **o; o++)
    {
      char *colon = strchr (*o, ':');
      g_assert (facts->n_refs < PLAN_MAX_REFS && colon && colon - *o < MAX_NAME);
      facts->ref_access[facts->n_refs] = colon[1];
      g_strlcpy (facts->ref_name[facts->n_refs], *o, (gsize)(colon - *o) + 1);
      facts->n_refs++;
    }
  for (char **d = dims; *d && **d; d++)
    {
      g_assert (facts->n_dims < PLAN_MAX_DIMS);
      g_strlcpy (facts->dim_name[facts->n_dims++], *d, MAX_NAME);
    }
}

static const OpFacts *
facts_of (PlanOpKind kind)
{
  static gsize ready = 0;
  if (g_once_init_enter (&ready))
    {
      for (guint i = 0; i < PLAN_N_OPS; i++)
        take_facts_apart (&op_facts[i]);
      g_once_init_leave (&ready, 1);
    }
  g_assert (kind < PLAN_N_OPS);
  return &op_facts[kind];
}

void
plan_op_init (PlanOp *self, PlanOpKind kind, PlanStream stream)
{
  *self = (PlanOp){ .kind = kind, .stream = stream, .record = PLAN_REF_NONE };
  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    self->refs[i] = PLAN_REF_NONE;
  for (guint i = 0; i < PLAN_MAX_WAITS; i++)
    self->waits[i] = PLAN_REF_NONE;
}

const char *
plan_op_name (PlanOpKind kind)
{
  return facts_of (kind)->name;
}

PlanOpClass
plan_op_class (PlanOpKind kind)
{
  return facts_of (kind)->class;
}

guint
plan_op_n_refs (PlanOpKind kind)
{
  return facts_of (kind)->n_refs;
}

guint
plan_op_n_dims (PlanOpKind kind)
{
  return facts_of (kind)->n_dims;
}

const char *
plan_op_ref_name (PlanOpKind kind, guint i)
{
  return facts_of (kind)->ref_name[i];
}

char
plan_op_ref_access (PlanOpKind kind, guint i)
{
  return facts_of (kind)->ref_access[i];
}

const char *
plan_op_dim_name (PlanOpKind kind, guint i)
{
  return facts_of (kind)->dim_name[i];
}

const char *
plan_stream_name (PlanStream stream)
{
  static const char *const names[] = {
#define X(id, name, summary) name,
    PLAN_STREAM_LIST (X)
#undef X
  };
  return names[stream];
}

const char *
plan_category_name (PlanCategory category)
{
  static const char *const names[] = {
#define X(id, name, summary) name,
    PLAN_CATEGORY_LIST (X)
#undef X
  };
  return names[category];
}

double
plan_op_flops (const PlanOp *op)
{
  const gint64 *d = op->dims;
  switch ((int)op->kind)
    {
    case PLAN_OP_GEMM:
      return 2.0 * (double)d[0] * (double)d[1] * (double)d[2];
    case PLAN_OP_ATTENTION: /* two products of [seq, seq] per head, half of each masked */
      return 2.0 * (double)d[0] * (double)d[1] * (double)d[1] * (double)d[2] * (double)d[4];
    case PLAN_OP_ATTENTION_BWD: /* five products */
      return 5.0 * (double)d[0] * (double)d[1] * (double)d[1] * (double)d[2] * (double)d[4];
    default:
      return 0;
    }
}

/* Elements of operand `i` of ops on rows of tokens; dims begin "rows cols". */
static guint64
row_op_elements (const PlanOp *op, guint i)
{
  const guint64 rows = (guint64)op->dims[0], cols = (guint64)op->dims[1];
  const guint64 matrix = rows * cols;
  switch ((int)op->kind)
    {
    case PLAN_OP_EMBED:
      return (guint64[]){ matrix, (guint64)op->dims[2] * cols, rows }[i];
    case PLAN_OP_EMBED_BWD:
      return (guint64[]){ (guint64)op->dims[2] * cols, matrix, rows, 0 }[i];
    case PLAN_OP_RMSNORM:
      return (guint64[]){ matrix, rows, matrix, cols }[i];
    case PLAN_OP_RMSNORM_BWD:
      return (guint64[]){ matrix, cols, matrix, matrix, cols, rows, 0 }[i];
    case PLAN_OP_SWIGLU:
      return (guint64[]){ matrix, 2 * matrix }[i];
    case PLAN_OP_SWIGLU_BWD:
      return (guint64[]){ 2 * matrix, matrix, 2 * matrix }[i];
    case PLAN_OP_CROSS_ENTROPY:
      return (guint64[]){ PLAN_EXACT_LIMBS, matrix, matrix, rows }[i];
    case PLAN_OP_CROSS_ENTROPY_BWD:
      return (guint64[]){ matrix, matrix, rows }[i];
    default:
      g_assert_not_reached ();
    }
}

static guint64
attention_elements (const PlanOp *op, guint i)
{
  const guint64 rows = (guint64)op->dims[0] * (guint64)op->dims[1];
  const guint64 out = rows * (guint64)(op->dims[2] * op->dims[4]);
  const guint64 qkv = rows * (guint64)((op->dims[2] + 2 * op->dims[3]) * op->dims[4]);
  const guint64 lse = rows * (guint64)op->dims[2];
  if (op->kind == PLAN_OP_ATTENTION)
    return (guint64[]){ out, lse, qkv, 0 }[i];
  return (guint64[]){ qkv, out, out, lse, qkv, 0 }[i];
}

guint64
plan_op_ref_elements (const PlanOp *op, guint i, guint ranks)
{
  const guint64 d0 = (guint64)op->dims[0];
  switch (op->kind)
    {
    case PLAN_OP_ALLOC:
    case PLAN_OP_FREE:
    case PLAN_OP_INIT:
    case PLAN_OP_SYNC:
    case PLAN_OP_REPEAT:
    case PLAN_OP_END:
      return 0;
    case PLAN_OP_LOAD:
    case PLAN_OP_ZERO:
    case PLAN_OP_CAST:
    case PLAN_OP_ACCUMULATE:
    case PLAN_OP_ADD:
    case PLAN_OP_ALL_REDUCE:
      return d0;
    case PLAN_OP_GEMM:
      {
        const guint64 n = (guint64)op->dims[1], k = (guint64)op->dims[2];
        return (guint64[]){ d0 * n, d0 * k, k * n, 0 }[i];
      }
    case PLAN_OP_ROPE:
      return d0 * (guint64)((op->dims[2] + 2 * op->dims[3]) * op->dims[4]);
    case PLAN_OP_ATTENTION:
    case PLAN_OP_ATTENTION_BWD:
      return attention_elements (op, i);
    case PLAN_OP_EMBED:
    case PLAN_OP_EMBED_BWD:
    case PLAN_OP_RMSNORM:
    case PLAN_OP_RMSNORM_BWD:
    case PLAN_OP_SWIGLU:
    case PLAN_OP_SWIGLU_BWD:
    case PLAN_OP_CROSS_ENTROPY:
    case PLAN_OP_CROSS_ENTROPY_BWD:
      return row_op_elements (op, i);
    case PLAN_OP_NORM_SQ:
      return i == 0 ? PLAN_EXACT_LIMBS : d0;
    case PLAN_OP_CLIP:
      return i == 0 ? 4 : 2 * PLAN_EXACT_LIMBS * d0;
    case PLAN_OP_ADAMW:
      return i == 4 ? 4 : d0;
    case PLAN_OP_ALL_GATHER:
      return i == 0 ? d0 * ranks : d0;
    case PLAN_OP_REDUCE_SCATTER:
      return i == 0 ? d0 : d0 * ranks;
    }
  g_assert_not_reached ();
}
