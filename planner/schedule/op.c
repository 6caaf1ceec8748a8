/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/op.h"

#include "planner/schedule/quantizers.h"

/* Checks of the op list that the simulator relies on. */
#define X(id, name, class, work, cost, ...) \
  _Static_assert(PLAN_CLASS_##class != PLAN_CLASS_COMPUTE || PLAN_COST_##cost != PLAN_COST_NONE, \
                 name " computes, and has no cost"); \
  _Static_assert((PLAN_CLASS_##class == PLAN_CLASS_COLLECTIVE) \
                     == (PLAN_COST_##cost == PLAN_COST_COLLECTIVE), \
                 name " has the class or the cost of a collective, and not the other");
PLAN_OP_LIST (X)
#undef X

/* Accesses of the op list; upper case where the operand may be absent. */
enum
{
  ACCESS_reads = 'r',
  ACCESS_writes = 'w',
  ACCESS_updates = 'u',
  ACCESS_may_read = 'R',
  ACCESS_may_write = 'W',
  ACCESS_may_update = 'U',
  ACCESS_memory = 'm',
  ACCESS_scratch = 's',
};

/* As g_ascii_tolower, but for constant expressions. */
#define LOWER(c) ((c) >= 'A' && (c) <= 'Z' ? (c) - 'A' + 'a' : (c))

#define REF_ACCESS(id, ref) PLAN_SPLIT (REF_ACCESS_OF, id, ref)
#define REF_ACCESS_OF(id, name, access, ...) LOWER (ACCESS_##access),
#define X(id, op_name, class, op_work, op_cost, summary, dims, flops, refs) \
  [PLAN_OP_##id] = { .op_class = PLAN_CLASS_##class, \
                     .n_refs = PLAN_N_REFS_##id, \
                     .n_dims = PLAN_N_DIMS_##id, \
                     .ref_access = { PLAN_EACH (REF_ACCESS, id, refs) } },
const PlanOpShape plan_op_shapes[PLAN_OP_END + 1] = { PLAN_OP_LIST (X) };
#undef X

/* Facts that are needed less often than those of PlanOpShape. */
typedef struct
{
  const char *name;
  PlanWork work;
  PlanCost cost;
  const char *ref_name[PLAN_MAX_REFS];
  gboolean is_optional[PLAN_MAX_REFS];
  const char *dim_name[PLAN_MAX_DIMS];
} OpFacts;

#define REF_NAME(id, ref) PLAN_SPLIT (REF_NAME_OF, id, ref)
#define REF_NAME_OF(id, name, ...) #name,
#define REF_OPTIONAL(id, ref) PLAN_SPLIT (REF_OPTIONAL_OF, id, ref)
#define REF_OPTIONAL_OF(id, name, access, ...) \
  ACCESS_##access == ACCESS_scratch || ACCESS_##access != LOWER (ACCESS_##access),
#define DIM_NAME(id, name) #name,
#define X(id, op_name, class, op_work, op_cost, summary, dims, flops, refs) \
  [PLAN_OP_##id] = { .name = op_name, \
                     .work = PLAN_WORK_##op_work, \
                     .cost = PLAN_COST_##op_cost, \
                     .ref_name = { PLAN_EACH (REF_NAME, id, refs) }, \
                     .is_optional = { PLAN_EACH (REF_OPTIONAL, id, refs) }, \
                     .dim_name = { PLAN_EACH (DIM_NAME, id, dims) } },
static const OpFacts op_facts[PLAN_N_OPS] = { PLAN_OP_LIST (X) };
#undef X

static inline const OpFacts *
facts_of (PlanOpKind kind)
{
  g_assert (kind < PLAN_N_OPS);
  return &op_facts[kind];
}

/* Not const: gcc would initialise copies of a constant word by word, which takes several times as
 * long as a copy, and reads right after it would have to wait. */
static PlanOp empty = { .group = -1,
                        .refs = { [0 ... PLAN_MAX_REFS - 1] = PLAN_REF_NONE },
                        .waits = { [0 ... PLAN_MAX_WAITS - 1] = PLAN_REF_NONE },
                        .record = PLAN_REF_NONE };

gboolean
plan_ref_is_same (const PlanRef *a, const PlanRef *b)
{
  return a->array == b->array && a->offset == b->offset && a->at == b->at && a->loop == b->loop
         && a->modulus == b->modulus && a->moves == b->moves;
}

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

PlanCost
plan_op_cost (PlanOpKind kind)
{
  return facts_of (kind)->cost;
}

const char *
plan_cost_name (PlanCost cost)
{
  static const char *const names[] = {
#define X(id, name) name,
    PLAN_COST_LIST (X)
#undef X
  };
  return names[cost];
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
  static const char *const manners[]
      = { "layout", "kind", "gated", "inverse", "parts", "site", NULL };
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
plan_graph_place_name (PlanGraphPlace place)
{
  static const char *const names[PLAN_N_GRAPH_PLACES] = { "", "forward", "backward", "within" };
  return names[place];
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

#define DIM_DOUBLE(id, name) G_GNUC_UNUSED const double name = (double)dims[PLAN_DIM_##id##_##name];
#define X(id, op_name, class, op_work, op_cost, summary, op_dims, flops, op_refs) \
  case PLAN_OP_##id: \
    { \
      PLAN_EACH (DIM_DOUBLE, id, op_dims) \
      return flops; \
    }
double
plan_op_flops (const PlanOp *op)
{
  const gint64 *dims = op->dims;
  switch (op->kind)
    {
      PLAN_OP_LIST (X)
    case PLAN_OP_REPEAT:
    case PLAN_OP_END:
      return 0;
    }
  g_assert_not_reached ();
}
#undef X

/* Elements of operand `i` of an op. Those of scratch are asked for separately (`of_scratch`). */
#define DIM_SIZE(id, name) G_GNUC_UNUSED const guint64 name = (guint64)dims[PLAN_DIM_##id##_##name];
#define REF_ELEMENTS(id, ref) PLAN_SPLIT (REF_ELEMENTS_OF, id, ref)
#define REF_ELEMENTS_OF(id, name, access, elements, ...) \
  case PLAN_REF_##id##_##name: \
    return (ACCESS_##access == ACCESS_scratch) == of_scratch ? (guint64)(elements) : 0;
#define X(id, op_name, class, op_work, op_cost, summary, op_dims, flops, op_refs) \
  case PLAN_OP_##id: \
    { \
      PLAN_EACH (DIM_SIZE, id, op_dims) \
      switch (i) \
        { \
          PLAN_EACH (REF_ELEMENTS, id, op_refs) \
        } \
      return 0; \
    }
G_ALWAYS_INLINE static inline guint64
elements_of (PlanOpKind op, guint i, const gint64 *dims, const PlanRef *refs, guint64 group_ranks,
             gboolean is_fp32, gboolean of_scratch)
{
  switch (op)
    {
      PLAN_OP_LIST (X)
    case PLAN_OP_REPEAT:
    case PLAN_OP_END:
      return 0;
    }
  return 0;
}
#undef X

guint64
plan_op_ref_elements (const PlanOp *op, guint i, guint ranks)
{
  return elements_of (op->kind, i, op->dims, op->refs, ranks, FALSE, FALSE);
}

guint64
plan_op_scratch_elements (PlanOpKind kind, const gint64 *dims, gboolean is_fp32)
{
  for (guint i = 0; i < plan_op_n_refs (kind); i++)
    if (plan_op_ref_access (kind, i) == 's')
      return elements_of (kind, i, dims, NULL, 1, is_fp32, TRUE);
  return 0;
}
