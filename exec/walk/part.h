/* ExecPart: what the ranks of one pipeline stage hold of a model (all of it where there is one
 * stage), and where their layers are in the whole model. A plain value; the case must outlive
 * it. */
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
  PlanModel model;    /* the stage's layers as a model of their own */
  PlanLayout layout;  /* of `model` */
  guint ranks, place; /* number of ranks of the stage; which of them this rank is */
} ExecPart;

void exec_part_init (ExecPart *self, const PlanCase *of, guint rank, guint ranks);

/* The number in the whole model of a layer of this stage, for a parameter in a bucket of this
 * kind. */
gint64 exec_part_layer (const ExecPart *self, PlanBucketKind kind, gint64 layer);

/* Whether a parameter is the last stage's copy of the tied embedding, which the first stage
 * owns. */
gboolean exec_part_is_copy (const ExecPart *self, PlanTensorRole role);

G_END_DECLS
