/* From the cells of a row to its plan; planner/run-*.c share it. */
#pragma once
#include "planner/runs/run-table.h"
G_BEGIN_DECLS

/* A value of sliding_window in `notes`. */
#define PLAN_RUN_ALTERNATING_WINDOW "128 every second layer"

/* Models and clusters by their text: rows that are alike share them. */
typedef struct
{
  GHashTable *models;   /* char * -> PlanModel */
  GHashTable *clusters; /* char * -> PlanCluster */
} PlanRunParts;

/* Makes model, cluster and plan of the cells, or says in `skipped` why there can be none. INVALID
 * naming the column where a value is wrong by itself. */
gboolean plan_run_row_interpret (PlanRunRow *self, PlanRunParts *parts, GError **error);

/* Keeps the first reason, "REASON: more". */
void plan_run_row_skip (PlanRunRow *self, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Adds to what the plan leaves out or assumes. */
void plan_run_row_remark (PlanRunRow *self, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* The model and the cluster that the row names; NULL where it has been skipped, or an error is set.
 */
const PlanModel *plan_run_row_model (PlanRunRow *self, PlanRunParts *parts, GError **error);
const PlanCluster *plan_run_row_cluster (PlanRunRow *self, PlanRunParts *parts, GError **error);

/* The same from texts that say all of them; and of the plan the cells that runs are told apart by.
 */
gboolean plan_run_row_read_texts (PlanRunRow *self, PlanRunParts *parts, const char *model,
                                  const char *cluster, const char *plan, GError **error);

/* What the switches in `notes` set, leave out or forbid. */
gboolean plan_run_row_apply_notes (PlanRunRow *self, GError **error);

/* The family and latent attention of a row of the family "deepseek", as keys of a model; may skip
 * the row. The caller frees. */
char *plan_run_row_latent_keys (PlanRunRow *self);

/* Whether the FLOPs that a row counts per token are those of the model with a prediction module
 * (MTP), which it does not name. */
gboolean plan_run_row_shows_module (PlanRunRow *self, const PlanModel *model);

/* How a row's layers are dealt out to the stages of its pipeline; may skip the row. */
void plan_run_row_set_stages (PlanRunRow *self);

/* What a plan of experts has where notes do not say it: before these are applied. */
gboolean plan_run_row_assume_experts (PlanRunRow *self, GError **error);

/* What the recipe of a row's source is known to set and the row does not say; behind the notes. May
 * skip the row. */
gboolean plan_run_row_apply_recipe (PlanRunRow *self, GError **error);

/* A column that holds a number; 0 where it is empty. */
gint64 plan_run_row_int (const PlanRunRow *self, PlanRunColumn column);

/* What data/runs.ini knows of the key for it; NULL: nothing. The caller frees, as of the next. */
char *plan_run_row_known (const PlanRunRow *self, const char *key);

/* Who ran it, as a name: the source without what tells its rows and versions apart; NULL: unknown.
 */
char *plan_run_row_site (const PlanRunRow *self);

gboolean plan_run_row_is (const PlanRunRow *self, PlanRunColumn column, const char *value);

G_END_DECLS
