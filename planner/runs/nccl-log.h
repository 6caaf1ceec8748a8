/* PlanNcclLog: what nccl-tests printed: times of collectives by size, out of place and in place.
 *
 * Lines of other programs may stand between. Which collective it was is not always said: then it
 * follows from how bus and algorithm bandwidth relate, or is not known. */
#pragma once
#include "planner/base/dtype.h"
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint64 line;
  PlanOpKind op;                       /* PLAN_OP_ALL_GATHER, ...; PLAN_N_OPS: not known */
  PlanDtype dtype;                     /* of an element */
  guint64 bytes;                       /* what nccl-tests calls the size */
  gint64 ranks, nodes;                 /* 0: not said */
  guint iterations;                    /* that the time is the mean of; 0: not said */
  gint64 time_ns[2];                   /* out of place, in place; 0: was not run */
  const char *device, *host, *version; /* "NVIDIA H100 80GB HBM3"; NULL: not said; the log's */
} PlanNcclTime;

typedef struct _PlanNcclLog PlanNcclLog;

/* `name` of the file may tell the collective; NULL: it does not. */
PlanNcclLog *plan_nccl_log_new (const char *name);
void plan_nccl_log_free (PlanNcclLog *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanNcclLog, plan_nccl_log_free)

void plan_nccl_log_take (PlanNcclLog *self, guint64 line, const char *text);

const GArray *plan_nccl_log_times (const PlanNcclLog *self); /* of PlanNcclTime */

/* Elements that each rank has at the op that a plan's schedule would hold; 0: no whole number. */
guint64 plan_nccl_time_count (const PlanNcclTime *self);

G_END_DECLS
