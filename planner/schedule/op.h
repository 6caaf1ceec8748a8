/* PlanOp: one op of one rank on one stream, with its operands, waits and event.
 *
 * A plain value. op-list.h defines what each kind of op means and which operands and dims it has;
 * the functions here make that list usable. */
#pragma once
#include "planner/base/dtype.h"
#include "planner/schedule/op-enums.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_ROW_MAP_HEAD 4 /* numbers at the head of a row map, before those of rows */
#define PLAN_EXACT_LIMBS 20 /* 64-bit limbs of one exact sum (exec/number/exact.h) */
#define PLAN_RANDOM_KEY 2   /* 32-bit words of a key of random numbers (exec/number/random.h) */

#define PLAN_MAX_REFS 13
#define PLAN_MAX_DIMS 7
#define PLAN_MAX_WAITS 4
#define PLAN_MAX_DEPTH 4
#define PLAN_MAX_GROUPS 16
#define PLAN_MAX_AT ((G_GINT64_CONSTANT (1) << 47) - 1)

/* A reference to one element of a buffer or event array: its index is `offset`, plus the value of a
 * loop where loop >= 0, modulo `modulus` where that is not 0 (for arrays that are used in turns).
 * With `moves`, the loop goes through one buffer instead: `at` is where it begins. */
typedef struct
{
  gint32 array; /* index of the buffer or event array; -1: absent */
  gint32 offset;
  guint64 at : 47; /* first element used (buffers only) */
  guint64 moves : 1;
  gint8 loop; /* depth of the repeat whose value is added; -1: none */
  guint8 modulus;
} PlanRef; /* 16 bytes: an op has up to 16 */

#define PLAN_REF_NONE ((PlanRef){ .array = -1, .loop = -1 })

/* What an op is to the CUDA graph of a part of a layer. */
typedef enum
{
  PLAN_GRAPH_NONE,
  PLAN_GRAPH_FORWARD,  /* the first of a forward pass's graph: with it the host launches all */
  PLAN_GRAPH_BACKWARD, /* the same of a backward pass's */
  PLAN_GRAPH_WITHIN,   /* a further one, which costs the host nothing, or memory of graphs' pool */
  PLAN_N_GRAPH_PLACES
} PlanGraphPlace;

typedef struct
{
  PlanOpKind kind;
  PlanStream stream;
  gint8 group; /* index of a collective's group among the schedule's groups; else -1 */
  guint8 n_waits;
  guint16 manner; /* index among the schedule's manners; 0: none (planner/schedule/manner.h) */
  guint8 graph;   /* PlanGraphPlace */
  PlanRef refs[PLAN_MAX_REFS]; /* in the order of the op list's operands */
  gint64 dims[PLAN_MAX_DIMS];  /* in the order of the op list's dims */
  PlanRef waits[PLAN_MAX_WAITS];
  PlanRef record; /* event that happens when the op ends */
} PlanOp;

/* Whether two references name the same element of the same array from the same place on. */
gboolean plan_ref_is_same (const PlanRef *a, const PlanRef *b);

/* Makes an op without operands, waits and event. */
void plan_op_init (PlanOp *self, PlanOpKind kind, PlanStream stream);

/* Facts of the op list that are needed often. Repeats and their ends have none. */
typedef struct
{
  guint8 op_class, n_refs, n_dims;
  char ref_access[PLAN_MAX_REFS]; /* r w u m s */
} PlanOpShape;

extern const PlanOpShape plan_op_shapes[PLAN_OP_END + 1];

static inline PlanOpClass
plan_op_class (PlanOpKind kind)
{
  return (PlanOpClass)plan_op_shapes[kind].op_class;
}

static inline guint
plan_op_n_refs (PlanOpKind kind)
{
  return plan_op_shapes[kind].n_refs;
}

static inline guint
plan_op_n_dims (PlanOpKind kind)
{
  return plan_op_shapes[kind].n_dims;
}

static inline char
plan_op_ref_access (PlanOpKind kind, guint i)
{
  return plan_op_shapes[kind].ref_access[i];
}

/* Whether a CUDA graph may hold an op: what the device does, and memory that it takes. */
static inline gboolean
plan_op_goes_into_graphs (PlanOpKind kind)
{
  return plan_op_class (kind) == PLAN_CLASS_COMPUTE || plan_op_class (kind) == PLAN_CLASS_COLLECTIVE
         || kind == PLAN_OP_ALLOC;
}

/* Facts that are needed less often. */
const char *plan_op_name (PlanOpKind kind);
PlanWork plan_op_work (PlanOpKind kind);
PlanCost plan_op_cost (PlanOpKind kind);
const char *plan_cost_name (PlanCost cost);
const char *plan_work_key (PlanWork work);
const char *plan_work_name (PlanWork work);
const char *plan_op_ref_name (PlanOpKind kind, guint i);
gboolean plan_op_ref_is_optional (PlanOpKind kind, guint i);
const char *plan_op_dim_name (PlanOpKind kind, guint i);
gboolean plan_op_dim_is_size (PlanOpKind kind,
                              guint i); /* whether it says how much is done, and not what */
const char *plan_stream_name (PlanStream stream);
const char *plan_graph_place_name (PlanGraphPlace place); /* "forward" */
const char *plan_category_name (PlanCategory category);

/* Floating-point operations of an op; 0 for those that are bound by memory. */
double plan_op_flops (const PlanOp *op);

/* Elements of operand `i` that the op touches; `ranks` is the size of its group. */
guint64 plan_op_ref_elements (const PlanOp *op, guint i, guint ranks);

/* Elements of the scratch of an op with these dims on a CPU; 0 if it needs none
 * (planner/schedule/scratch.h). */
guint64 plan_op_scratch_elements (PlanOpKind kind, const gint64 *dims, gboolean is_fp32);

G_END_DECLS
