/* PlanRunTable: training runs that somebody measured, read from CSV row by row, each as a plan.
 *
 * The columns are those of run-columns.h, in any order. What a plan has no words for is never
 * guessed: such a row says why it cannot be planned. Values that are wrong by themselves are
 * errors; they cost their row and no other. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "planner/runs/run-columns.h"
#include <glib.h>
G_BEGIN_DECLS

/* What a run is measured by: X (ID, "name"); time in milliseconds, memory in MiB. */
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
  guint64 line;                   /* of its table, where it begins */
  char *cell[PLAN_N_RUN_COLUMNS]; /* NULL: not known */
  char *skipped;                  /* "REASON: more": why it is no plan; NULL: it is */
  char *remarks;                  /* what the plan leaves out or assumes; NULL: nothing */
  const PlanModel *model;         /* the table's, as is the next; both NULL where skipped */
  const PlanCluster *cluster;
  Plan plan;                              /* not resolved */
  double measured[PLAN_N_RUN_QUANTITIES]; /* 0: not known */
  PlanAnswer ran_out;                     /* of memory */
  gboolean is_for_fitting;                /* else never fitted to */
  gboolean is_partial;                    /* it used what is not modelled, as `remarks` say */
  gboolean time_ok, memory_ok;            /* fit for scoring */
  gboolean is_tiny; /* so small that fixed workspaces weigh more than the model */
} PlanRunRow;

/* A new owner of what the row owns takes it all and leaves zeros. */
void plan_run_row_clear (PlanRunRow *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanRunRow, plan_run_row_clear)

/* Of a pipeline: the stage whose memory a row tells. */
typedef enum
{
  PLAN_RUN_FULLEST_STAGE,
  PLAN_RUN_FIRST_STAGE,
  PLAN_RUN_LAST_STAGE,
} PlanRunMemoryStage;

PlanRunMemoryStage plan_run_row_memory_stage (const PlanRunRow *self);

/* Its value of a key in `notes`; the caller frees. NULL where there is none. */
char *plan_run_row_note (const PlanRunRow *self, const char *key);

/* The row, which may be taken; or `row` NULL and what is wrong: "FILE:LINE: COLUMN: ...". */
typedef void (*PlanRunFunc) (PlanRunRow *row, const char *wrong, gpointer user_data);

typedef struct _PlanRunTable PlanRunTable;

/* Must outlive its rows. `origin` names the text in messages. */
PlanRunTable *plan_run_table_new (const char *origin, PlanRunFunc func, gpointer user_data);
void plan_run_table_free (PlanRunTable *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanRunTable, plan_run_table_free)

/* FALSE once the first line is not that of a table of runs. */
gboolean plan_run_table_feed (PlanRunTable *self, const char *text, gsize length, GError **error);

/* FALSE, too, where there was no first line. */
gboolean plan_run_table_end (PlanRunTable *self, GError **error);

/* A row of which not cells but whole texts tell model, cluster and plan; `row` has the other cells.
 * Takes the row; calls the table's function as for those that were read. */
void plan_run_table_add (PlanRunTable *self, PlanRunRow *row, const char *model,
                         const char *cluster, const char *plan);

const char *plan_run_column_name (PlanRunColumn column);

/* By its name; suggests what was meant. */
gboolean plan_run_column_parse (const char *name, PlanRunColumn *out_column, GError **error);

G_END_DECLS
