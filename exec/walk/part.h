/* ExecPart: what the ranks of one stage of a pipeline hold of a model, or of all of it where there
 * is one stage, and where that is in the whole one. A plain value; the case must outlive it. */
#pragma once
#include "planner/case/case.h"
#include "planner/layout/layout.h"
#include "planner/model/stage.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const PlanModel *whole;
  PlanStage stage;
  PlanModel model;    /* that part, as a model */
  PlanLayout layout;  /* its own */
  guint ranks, place; /* of the stage; which of them this rank is */
} ExecPart;

void exec_part_init (ExecPart *self, const PlanCase *of, guint rank, guint ranks);

/* The layer of the whole model that one is, of a parameter in such a bucket. */
gint64 exec_part_layer (const ExecPart *self, PlanBucketKind kind, gint64 layer);

/* Whether it is the last stage's copy of the first one's embedding. */
gboolean exec_part_is_copy (const ExecPart *self, PlanTensorRole role);

G_END_DECLS
