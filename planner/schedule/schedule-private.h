/* The members of a schedule, for the files that build, print and check it. */
#pragma once
#include "planner/schedule/echo.h"
G_BEGIN_DECLS

struct _PlanSchedule
{
  guint rank, ranks;
  guint64 serial;
  PlanOp *nodes; /* a REPEAT has the dims PLAN_REPEAT_... */
  guint n_nodes, room;
  GArray *buffers; /* PlanBuffer */
  GArray *events;  /* PlanEvent */
  gboolean is_graph;
  GArray *echoes;    /* PlanEcho, in the order of their places */
  GArray *groups;    /* PlanGroup */
  GArray *manners;   /* PlanManner; the first one is all zeros */
  GArray *variables; /* char *: name of the variable of each REPEAT node, in node order */
  guint section_start[PLAN_N_SECTIONS + 1];
  guint n_sections_begun;
  guint open[PLAN_MAX_DEPTH]; /* REPEAT nodes that have not ended yet, while building */
  guint depth;
};

const char *plan_schedule_variable (const PlanSchedule *self, const PlanOp *repeat);

G_END_DECLS
