/* Traces of stored runs: one steady step of one rank, predicted or measured. */
#pragma once
#include "db/store.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include <glib.h>
G_BEGIN_DECLS

/* Adds a trace in one transaction. The schedule gives the names of ops, streams and categories. */
gboolean db_store_add_trace (DbStore *self, gint64 run_id, gint64 rank, const PlanTrace *trace,
                             const PlanSchedule *schedule, GError **error);

/* Loads the trace of that origin ("sim", "cpu") and rank. */
PlanTrace *db_store_load_trace (DbStore *self, gint64 run_id, const char *origin, gint64 rank,
                                GError **error);

G_END_DECLS
