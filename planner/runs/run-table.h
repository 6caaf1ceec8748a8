/* PlanRunTable: reads measured training runs from CSV, row by row, each as a plan.
 *
 * The columns are those of run-columns.h, in any order. What a plan cannot express is never
 * guessed: such a row says why it is skipped. A value that is wrong by itself is an error, which
 * costs only its row. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "planner/runs/run-columns.h"
#include <glib.h>
G_BEGIN_DECLS

/* What is measured of a run: X (ID, "name"); time in milliseconds, memory in MiB. */
#define PLAN_RUN_QUANTITY_LIST(X) \
  X (TIME, "time") \
  X (ALLOCATED, "allocated") \
  X (MAX_ALLOCATED, "max_allocated") \
  X (RESERVED, "reserved") \
  X (DEVICE, "device")

typedef enum
{
#define X(id, name) PLAN_RUN_QUANTITY_##id,
  PLAN_RUN_QUANTITY_LIST (X)
#undef X
      PLAN_N_RUN_QUANTITIES
} PlanRunQuantity;

const char *plan_run_quantity_name (PlanRunQuantity quantity);

typedef struct
{
  guint64 line;                   /* of the table, on which the row begins */
  char *cell[PLAN_N_RUN_COLUMNS]; /* NULL: unknown */
  char *skipped;                  /* "REASON: more": why there is no plan; NULL: there is one */
  char *remarks;                  /* what the plan leaves out or assumes; NULL: nothing */
  const PlanModel *model;         /* these two belong to the table; NULL where skipped */
  const PlanCluster *cluster;
  Plan plan;                              /* not resolved */
  double measured[PLAN_N_RUN_QUANTITIES]; /* 0: unknown */
  PlanAnswer ran_out;                     /* of memory */
  gboolean is_for_fitting;                /* else the row is never fitted to */
  gboolean is_partial;         /* it used something that is not modelled, as `remarks` say */
  gboolean time_ok, memory_ok; /* fit for scoring */
  gboolean is_tiny;            /* so small that fixed workspaces weigh more than the model */
} PlanRunRow;

/* Whoever takes what the row owns must leave zeros in it. */
void plan_run_row_clear (PlanRunRow *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanRunRow, plan_run_row_clear)

/* The stage of a pipeline whose memory a row states. */
typedef enum
{
  PLAN_RUN_FULLEST_STAGE,
  PLAN_RUN_FIRST_STAGE,
  PLAN_RUN_LAST_STAGE,
} PlanRunMemoryStage;

PlanRunMemoryStage plan_run_row_memory_stage (const PlanRunRow *self);

/* The value of a key in `notes`, which the caller frees; NULL where there is none. */
char *plan_run_row_note (const PlanRunRow *self, const char *key);

/* Called with a row, which may be taken; or with `row` NULL and an error text "FILE:LINE: COLUMN:
 * ...". */
typedef void (*PlanRunFunc) (PlanRunRow *row, const char *wrong, gpointer user_data);

typedef struct _PlanRunTable PlanRunTable;

/* Makes a table, which must outlive its rows. `origin` names the text in messages. */
PlanRunTable *plan_run_table_new (const char *origin, PlanRunFunc func, gpointer user_data);
void plan_run_table_free (PlanRunTable *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanRunTable, plan_run_table_free)

/* FALSE once the first line has turned out not to be that of a table of runs. */
gboolean plan_run_table_feed (PlanRunTable *self, const char *text, gsize length, GError **error);

/* FALSE also where there was no first line. */
gboolean plan_run_table_end (PlanRunTable *self, GError **error);

/* Adds a row whose model, cluster and plan are given as whole texts; `row` has the other cells.
 * Takes the row, and calls the table's function as for rows that were read. */
void plan_run_table_add (PlanRunTable *self, PlanRunRow *row, const char *model,
                         const char *cluster, const char *plan);

const char *plan_run_column_name (PlanRunColumn column);

/* Finds a column by its name; the error suggests what was meant. */
gboolean plan_run_column_parse (const char *name, PlanRunColumn *out_column, GError **error);

G_END_DECLS
