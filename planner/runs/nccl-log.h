/* PlanNcclLog: reads the output of nccl-tests: times of collectives by size, out of place and in
 * place.
 *
 * Lines of other programs may be mixed in. Where the output does not name the collective, it is
 * inferred from the relation of bus to algorithm bandwidth, or stays unknown. */
#pragma once
#include "planner/base/dtype.h"
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint64 line;
  PlanOpKind op;       /* PLAN_OP_ALL_GATHER and so on; PLAN_N_OPS: unknown */
  PlanDtype dtype;     /* of an element */
  guint64 bytes;       /* the size by nccl-tests' definition */
  gint64 ranks, nodes; /* 0: not stated */
  guint iterations;    /* number of iterations of which the time is the mean; 0: not stated */
  gint64 time_ns[2];   /* out of place, in place; 0: not run */
  const char *device, *host,
      *version; /* "NVIDIA H100 80GB HBM3"; NULL: not stated; owned by the log */
} PlanNcclTime;

typedef struct _PlanNcclLog PlanNcclLog;

/* The file's name may tell the collective; `name` NULL: there is no name. */
PlanNcclLog *plan_nccl_log_new (const char *name);
void plan_nccl_log_free (PlanNcclLog *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanNcclLog, plan_nccl_log_free)

void plan_nccl_log_take (PlanNcclLog *self, guint64 line, const char *text);

const GArray *plan_nccl_log_times (const PlanNcclLog *self); /* of PlanNcclTime */

/* The dim `count` that such an op has in a plan's schedule, in elements per rank; 0: it is no whole
 * number. */
guint64 plan_nccl_time_count (const PlanNcclTime *self);

G_END_DECLS
