/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/op.h"

#include "planner/schedule/quantizers.h"

#include <string.h>

#define MAX_NAME 20

/* One row of the op list, its operand and dim strings taken apart. */
typedef struct
{
  const char *name;
  PlanOpClass class;
  PlanWork work;
  const char *operands;
  const char *dims;
  char ref_name[PLAN_MAX_REFS][MAX_NAME];
  gboolean is_optional[PLAN_MAX_REFS];
  char dim_name[PLAN_MAX_DIMS][MAX_NAME];
  gboolean counts, has_rows; /* dims begin with "count"; with "rows" */
} OpFacts;

static OpFacts op_facts[PLAN_N_OPS] = {
#define X(id, op_name, op_class, op_work, op_operands, op_dims, summary) \
  [PLAN_OP_##id] = { .name = op_name, \
                     .class = PLAN_CLASS_##op_class, \
                     .work = PLAN_WORK_##op_work, \
                     .operands = op_operands, \
                     .dims = op_dims },
  PLAN_OP_LIST (X)
#undef X
};

PlanOpShape plan_op_shapes[PLAN_OP_END + 1];

static void
take_apart (OpFacts *facts, PlanOpShape *shape)
{
  g_auto (GStrv) operands = g_strsplit (facts->operands, " ", -1);
  g_auto (GStrv) dims = g_strsplit (facts->dims, " ", -1);

  shape->op_class = (guint8)facts->class;
  for (char **o = operands; *o && **o; o++)
    {
      char *colon = strchr (*o, ':');
      g_assert (shape->n_refs < PLAN_MAX_REFS && colon && colon - *o < MAX_NAME);
      shape->ref_access[shape->n_refs] = g_ascii_tolower (colon[1]);
      facts->is_optional[shape->n_refs] = colon[1] == 's' || g_ascii_isupper (colon[1]);
      g_strlcpy (facts->ref_name[shape->n_refs], *o, (gsize)(colon - *o) + 1);
      shape->n_refs++;
    }
  for (char **d = dims; *d && **d; d++)
    {
      g_assert (shape->n_dims < PLAN_MAX_DIMS);
      g_strlcpy (facts->dim_name[shape->n_dims++], *d, MAX_NAME);
    }
  facts->counts = strcmp (facts->dim_name[0], "count") == 0;
  facts->has_rows = strcmp (facts->dim_name[0], "rows") == 0;
}

__attribute__ ((constructor)) static void
take_all_apart (void)
{
  for (guint kind = 0; kind < PLAN_N_OPS; kind++)
    take_apart (&op_facts[kind], &plan_op_shapes[kind]);
}

static inline const OpFacts *
facts_of (PlanOpKind kind)
{
  g_assert (kind < PLAN_N_OPS);
  return &op_facts[kind];
}

/* No constant: of one, gcc makes stores word by word, which take several times as long as a copy,
 * and reading what was stored so waits for it. */
static PlanOp empty = { .group = -1,
                        .refs = { [0 ... PLAN_MAX_REFS - 1] = PLAN_REF_NONE },
                        .waits = { [0 ... PLAN_MAX_WAITS - 1] = PLAN_REF_NONE },
                        .record = PLAN_REF_NONE };

void
plan_op_init (PlanOp *self, PlanOpKind kind, PlanStream stream)
{
  memmove (self, &empty, sizeof empty);
  self->kind = kind;
  self->stream = stream;
}

const char *
plan_op_name (PlanOpKind kind)
{
  return facts_of (kind)->name;
}

PlanWork
plan_op_work (PlanOpKind kind)
{
  return facts_of (kind)->work;
}

static const struct
{
  const char *key, *name;
} works[] = {
#define X(id, key, name) { key, name },
  PLAN_WORK_LIST (X)
#undef X
};

const char *
plan_work_key (PlanWork work)
{
  return works[work].key;
}

const char *
plan_work_name (PlanWork work)
{
  return works[work].name;
}

const char *
plan_op_ref_name (PlanOpKind kind, guint i)
{
  return facts_of (kind)->ref_name[i];
}

gboolean
plan_op_ref_is_optional (PlanOpKind kind, guint i)
{
  return facts_of (kind)->is_optional[i];
}

const char *
plan_op_dim_name (PlanOpKind kind, guint i)
{
  return facts_of (kind)->dim_name[i];
}

gboolean
plan_op_dim_is_size (PlanOpKind kind, guint i)
{
  static const char *const manners[] = { "layout", "kind", "gated", "inverse", "parts", NULL };
  return !g_strv_contains (manners, facts_of (kind)->dim_name[i]);
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
        [PLAN_CATEGORY_HOST]
    = "host",
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
    case PLAN_OP_GEMM_ADD:
    case PLAN_OP_GROUPED_GEMM:
    case PLAN_OP_GROUPED_GEMM_ADD:
      return 2.0 * (double)d[0] * (double)d[1] * (double)d[2];
    case PLAN_OP_LATENT_ATTENTION: /* a product with keys, one with values */
      return (double)d[0] * (double)d[1] * (double)d[5] * (double)d[2] * (double)(d[3] + d[4]);
    case PLAN_OP_LATENT_ATTENTION_BWD: /* three and two */
      return (double)d[0] * (double)d[1] * (double)d[5] * (double)d[2]
             * (double)(3 * d[3] + 2 * d[4]);
    case PLAN_OP_ATTENTION: /* two products of [seq, keys] per head, half of each masked */
      return 2.0 * (double)d[0] * (double)d[1] * (double)d[5] * (double)d[2] * (double)d[4];
    case PLAN_OP_ATTENTION_BWD: /* five products */
      return 5.0 * (double)d[0] * (double)d[1] * (double)d[5] * (double)d[2] * (double)d[4];
    default:
      return 0;
    }
}

/* Elements of operand `i` of ops on rows of tokens, whose dims begin "rows cols". */
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
      return (guint64[]){ matrix, rows, matrix, cols, 1, 1 }[i];
    case PLAN_OP_RMSNORM_BWD:
      return (guint64[]){ matrix, cols, matrix, matrix, cols, rows, 0, matrix }[i];
    case PLAN_OP_LAYERNORM:
      return (guint64[]){ matrix, 2 * rows, matrix, cols, cols, 1, 1 }[i];
    case PLAN_OP_LAYERNORM_BWD:
      return (guint64[]){ matrix, cols, cols, matrix, matrix, cols, 2 * rows, matrix, 0 }[i];
    case PLAN_OP_ADD_RMSNORM:
      return (guint64[]){ matrix, rows, matrix, matrix, matrix, cols, 1, 1 }[i];
    case PLAN_OP_ADD_LAYERNORM:
      return (guint64[]){ matrix, 2 * rows, matrix, matrix, matrix, cols, cols, 1, 1 }[i];
    case PLAN_OP_BIAS_BWD:
      return i == 0 ? cols : matrix;
    case PLAN_OP_ROW_STAT:
      return i == 0 ? rows : matrix;
    case PLAN_OP_POSITIONS:
      return i == 0 ? matrix : (guint64)op->dims[2] * cols;
    case PLAN_OP_POSITIONS_BWD:
      return i == 0 ? (guint64)op->dims[2] * cols : matrix;
    case PLAN_OP_QUANTIZE:
      return i < 3 ? matrix : 1;
    case PLAN_OP_TRANSPOSE:
      return matrix;
    case PLAN_OP_ACTIVATE:
      return i == 0 || !op->dims[3] ? matrix : 2 * matrix;
    case PLAN_OP_ACTIVATE_BWD:
      return i == 1 || !op->dims[3] ? matrix : 2 * matrix;
    case PLAN_OP_SWIGLU:
      return (guint64[]){ matrix, 2 * matrix }[i];
    case PLAN_OP_SWIGLU_BWD:
      return (guint64[]){ 2 * matrix, matrix, 2 * matrix }[i];
    case PLAN_OP_CROSS_ENTROPY:
      return (guint64[]){ PLAN_EXACT_LIMBS, matrix, matrix, rows }[i];
    case PLAN_OP_CROSS_ENTROPY_BWD:
      return (guint64[]){ matrix, matrix, rows }[i];
    case PLAN_OP_LOSS_GRAD:
      return (guint64[]){ PLAN_EXACT_LIMBS, matrix, rows, 0 }[i];
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
  const guint64 kv = qkv - out;
  if (op->kind == PLAN_OP_ATTENTION)
    return (guint64[]){ out, lse, qkv, 0, kv }[i];
  return (guint64[]){ op->refs[6].array < 0 ? qkv : out, out, out, lse, qkv, 0, kv, kv }[i];
}

static guint64
head_norm_elements (const PlanOp *op, guint i)
{
  const guint64 rows = (guint64)op->dims[0], width = (guint64)op->dims[3];
  const guint64 qkv = rows * (guint64)(op->dims[1] + 2 * op->dims[2]) * width;
  const guint64 rstd = rows * (guint64)(op->dims[1] + op->dims[2]);
  if (op->kind == PLAN_OP_HEAD_NORM)
    return (guint64[]){ qkv, rstd, qkv, width, width }[i];
  return (guint64[]){ qkv, width, width, qkv, qkv, width, width, rstd, 0 }[i];
}

static guint64
repeat_elements (const PlanOp *op, guint i)
{
  const gboolean is_wide = (op->kind == PLAN_OP_REPEAT_HEADS) == (i == 0);
  const guint64 keys = (guint64)(is_wide ? op->dims[1] : op->dims[2]);
  return (guint64)op->dims[0] * ((guint64)op->dims[1] + 2 * keys) * (guint64)op->dims[3];
}

static guint64
latent_elements (const PlanOp *op, guint i)
{
  const guint64 rows = (guint64)op->dims[0], heads = (guint64)op->dims[1];
  const guint64 nope = (guint64)op->dims[2], rope = (guint64)op->dims[3];
  const guint64 values = (guint64)op->dims[4], rank = (guint64)op->dims[5];
  const guint64 q = rows * heads * (nope + rope), v = rows * heads * values;
  const guint64 kv = rows * heads * (nope + values), down = rows * (rank + rope);
  if (op->kind == PLAN_OP_LATENT_ROPE)
    return (guint64[]){ q, q, v, kv, down }[i];
  return (guint64[]){ q, kv, down, q, v }[i];
}

static guint64
latent_attention_elements (const PlanOp *op, guint i)
{
  const guint64 heads = (guint64)(op->dims[0] * op->dims[1] * op->dims[2]);
  const guint64 q = heads * (guint64)op->dims[3], v = heads * (guint64)op->dims[4];
  if (op->kind == PLAN_OP_LATENT_ATTENTION)
    return (guint64[]){ v, heads, q, q, v }[i];
  return (guint64[]){ q, q, v, v, v, heads, q, q, v }[i];
}

/* Of the ops that send tokens to experts and compute there. */
static guint64
expert_elements (const PlanOp *op, guint i)
{
  const guint64 d0 = (guint64)op->dims[0], d1 = (guint64)op->dims[1], d2 = (guint64)op->dims[2];
  const guint64 d4 = (guint64)op->dims[4];
  switch ((int)op->kind)
    {
    case PLAN_OP_ROUTE:
    case PLAN_OP_ROUTE_BWD:
      return d0 * d1;
    case PLAN_OP_ROW_MAP:
      return i == 0 ? d2 : d0 * d1;
    case PLAN_OP_PERMUTE:
      return (guint64[]){ d1 * d2, d0 * d2, (guint64)op->dims[3], d1, d1 }[i];
    case PLAN_OP_UNPERMUTE:
      return (guint64[]){ d0 * d2, d1 * d2, (guint64)op->dims[3], d1, d1 }[i];
    case PLAN_OP_GROUPED_GEMM:
    case PLAN_OP_GROUPED_GEMM_ADD:
      if (op->dims[3] == 2)
        return (guint64[]){ d4 * d0 * d1, d0 * d2, d1 * d2 }[i];
      return (guint64[]){ d0 * d1, d0 * d2, d4 * d1 * d2 }[i];
    case PLAN_OP_EXPERT_ACTIVATE:
      return (guint64[]){ d0 * d1, (op->dims[3] ? 2 : 1) * d0 * d1, d0 }[i];
    default:
      g_assert (op->kind == PLAN_OP_EXPERT_ACTIVATE_BWD);
      return (guint64[]){ (op->dims[3] ? 2 : 1) * d0 * d1, d0, d0 * d1,
                          (op->dims[3] ? 2 : 1) * d0 * d1, d0 }[i];
    }
}

/* Those with a shape of their own; G_MAXUINT64 for the others. */
static guint64
shaped_elements (const PlanOp *op, guint i, guint ranks)
{
  const guint64 d0 = (guint64)op->dims[0], d1 = (guint64)op->dims[1], d2 = (guint64)op->dims[2];
  switch ((int)op->kind)
    {
    case PLAN_OP_GEMM:
      return (guint64[]){ d0 * d1, d0 * d2, d2 * d1, d1, 0 }[i];
    case PLAN_OP_GEMM_ADD:
      return (guint64[]){ d0 * d1, d0 * d2, d2 * d1, 0 }[i];
    case PLAN_OP_HEAD_NORM:
    case PLAN_OP_HEAD_NORM_BWD:
      return head_norm_elements (op, i);
    case PLAN_OP_REPEAT_HEADS:
    case PLAN_OP_REPEAT_HEADS_BWD:
      return repeat_elements (op, i);
    case PLAN_OP_ROPE:
      return d0 * (guint64)((op->dims[2] + 2 * op->dims[3]) * op->dims[4]);
    case PLAN_OP_ATTENTION:
    case PLAN_OP_ATTENTION_BWD:
      return attention_elements (op, i);
    case PLAN_OP_ATTENTION_JOIN:
      return i % 2 == 0 ? d0 * d1 * d2 : d0 * d1;
    case PLAN_OP_LATENT_ROPE:
    case PLAN_OP_LATENT_ROPE_BWD:
      return latent_elements (op, i);
    case PLAN_OP_LATENT_ATTENTION:
    case PLAN_OP_LATENT_ATTENTION_BWD:
      return latent_attention_elements (op, i);
    case PLAN_OP_ROUTE:
    case PLAN_OP_ROUTE_BWD:
    case PLAN_OP_ROW_MAP:
    case PLAN_OP_PERMUTE:
    case PLAN_OP_UNPERMUTE:
    case PLAN_OP_GROUPED_GEMM:
    case PLAN_OP_GROUPED_GEMM_ADD:
    case PLAN_OP_EXPERT_ACTIVATE:
    case PLAN_OP_EXPERT_ACTIVATE_BWD:
      return expert_elements (op, i);
    case PLAN_OP_NORM_SQ:
      return i == 0 ? PLAN_EXACT_LIMBS : d0;
    case PLAN_OP_CLIP:
      return i == 0 ? 4 : 2 * PLAN_EXACT_LIMBS * d0;
    case PLAN_OP_ADAMW:
    case PLAN_OP_ADAMW_HOST:
      return i == 4 ? 4 : d0;
    case PLAN_OP_SGD:
      return i == 3 ? 4 : d0;
    case PLAN_OP_PARAM_AMAX:
      return i == 0 ? MIN (d1, d0 / 16 + 1) : d0; /* blocks of 32, both ways */
    case PLAN_OP_PARAM_QUANTIZE:
      return i >= 5 ? PLAN_QUANTIZERS_OF_PRODUCT * d1 : i >= 3 ? d1 : d0;
    case PLAN_OP_INIT_SCALES:
    case PLAN_OP_RESCALE:
      return i == 1 ? d0 * d1 : d0;
    case PLAN_OP_SUM_PARTS:
      return i == 0 ? d0 : d0 * d1;
    case PLAN_OP_ALL_TO_ALL:
      return d0 * ranks;
    case PLAN_OP_ALL_GATHER:
      return i == 0 ? d0 * ranks : d0;
    case PLAN_OP_REDUCE_SCATTER:
      return i == 0 ? d0 : d0 * ranks;
    default:
      return G_MAXUINT64;
    }
}

guint64
plan_op_ref_elements (const PlanOp *op, guint i, guint ranks)
{
  const guint64 shaped = shaped_elements (op, i, ranks);
  if (shaped != G_MAXUINT64)
    return shaped;
  if (op->kind >= PLAN_N_OPS)
    return 0;
  const OpFacts *facts = &op_facts[op->kind];
  if (facts->has_rows && plan_op_n_dims (op->kind) > 1)
    return row_op_elements (op, i);
  return facts->counts || facts->has_rows ? (guint64)op->dims[0] : 0;
}
