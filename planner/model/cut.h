/* PlanModelCut: what a part of a model lacks (planner/model/stage.h); all 0 in a whole one. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 first_layer; /* of the whole model's layers */
  gboolean no_embedding, no_head;
  gboolean shares_embedding; /* its embedding or its output layer is a copy of the other one's */
} PlanModelCut;

G_END_DECLS
