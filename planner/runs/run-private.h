/* Shared by planner/runs/run-*.c, which make a plan of the cells of a row. */
#pragma once
#include "planner/runs/run-table.h"
G_BEGIN_DECLS

/* A value of the key sliding_window in `notes`. */
#define PLAN_RUN_ALTERNATING_WINDOW "128 every second layer"

/* Models and clusters by their text; equal rows share them. */
typedef struct
{
  GHashTable *models;   /* char * -> PlanModel */
  GHashTable *clusters; /* char * -> PlanCluster */
} PlanRunParts;

/* Makes model, cluster and plan from the cells, or sets `skipped` to why that is not possible.
 * INVALID names the column of a value that is wrong by itself. */
gboolean plan_run_row_interpret (PlanRunRow *self, PlanRunParts *parts, GError **error);

/* Skips the row with "REASON: more"; only the first reason is kept. */
void plan_run_row_skip (PlanRunRow *self, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Adds a remark on what the plan leaves out or assumes. */
void plan_run_row_remark (PlanRunRow *self, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* The model and the cluster of the row's cells. NULL where the row was skipped, or an error is
 * set. */
const PlanModel *plan_run_row_model (PlanRunRow *self, PlanRunParts *parts, GError **error);
const PlanCluster *plan_run_row_cluster (PlanRunRow *self, PlanRunParts *parts, GError **error);

/* Makes model, cluster and plan from whole texts, and fills in the cells by which runs are told
 * apart. */
gboolean plan_run_row_read_texts (PlanRunRow *self, PlanRunParts *parts, const char *model,
                                  const char *cluster, const char *plan, GError **error);

/* What the switches in `notes` set, leave out or forbid. */
gboolean plan_run_row_apply_notes (PlanRunRow *self, GError **error);

/* The family and latent attention of a row of the family "deepseek", as keys of a model; may skip
 * the row. The caller frees. */
char *plan_run_row_latent_keys (PlanRunRow *self);

/* Whether the FLOPs per token that a row states include a multi-token-prediction module that the
 * row does not name. */
gboolean plan_run_row_shows_module (PlanRunRow *self, const PlanModel *model);

/* Sets how a row's layers are dealt out to pipeline stages; may skip the row. */
void plan_run_row_set_stages (PlanRunRow *self);

/* Sets the fields of expert plans that notes do not give; to be called before these are applied. */
gboolean plan_run_row_assume_experts (PlanRunRow *self, GError **error);

/* Applies what the recipe of the row's source is known to set beyond the row; to be called after
 * the notes. May skip the row. */
gboolean plan_run_row_apply_recipe (PlanRunRow *self, GError **error);

/* The value of a column of numbers; 0 where it is empty. */
gint64 plan_run_row_int (const PlanRunRow *self, PlanRunColumn column);

/* What data/runs.ini knows for the row under a key; NULL: nothing. The caller frees, as with the
 * next function. */
char *plan_run_row_known (const PlanRunRow *self, const char *key);

/* The site that ran it: the source without what distinguishes its rows and versions; NULL:
 * unknown. */
char *plan_run_row_site (const PlanRunRow *self);

gboolean plan_run_row_is (const PlanRunRow *self, PlanRunColumn column, const char *value);

G_END_DECLS
