/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/validate.h"

#include "db/tables.h"
#include "planner/error.h"

static char *
text_at (const DbTable *table, guint row, const char *column)
{
  return g_strdup (db_table_cell_named (table, row, column));
}

static double
number_at (const DbTable *table, guint row, const char *column)
{
  const char *cell = db_table_cell_named (table, row, column);
  return cell ? g_ascii_strtod (cell, NULL) : 0;
}

/* What the store keeps of a run, as a table of runs has it. */
static void
take_cells (PlanRunRow *self, const DbTable *table, guint row)
{
  static const struct
  {
    PlanRunColumn column;
    const char *name;
  } cells[] = {
    { PLAN_RUN_ROW_ID, "row_id" }, { PLAN_RUN_GROUP, "row_group" },
    { PLAN_RUN_USE, "use" },       { PLAN_RUN_STACK, "stack" },
    { PLAN_RUN_SOURCE, "source" }, { PLAN_RUN_STACK_DATE, "stack_date" },
    { PLAN_RUN_GPU, "gpu" },       { PLAN_RUN_GPUS, "gpus" },
    { PLAN_RUN_NOTES, "notes" },   { PLAN_RUN_QUALITY, "quality" },
  };
  static const char *const measured[PLAN_N_RUN_QUANTITIES]
      = { "step_ms", "allocated_mib", "max_allocated_mib", "reserved_mib", "device_mib" };
  for (guint i = 0; i < G_N_ELEMENTS (cells); i++)
    self->cell[cells[i].column] = text_at (table, row, cells[i].name);
  for (guint q = 0; q < PLAN_N_RUN_QUANTITIES; q++)
    self->measured[q] = number_at (table, row, measured[q]);
  const char *oom = db_table_cell_named (table, row, "oom");
  self->ran_out = !oom                       ? PLAN_ANSWER_UNKNOWN
                  : g_str_equal (oom, "yes") ? PLAN_ANSWER_YES
                                             : PLAN_ANSWER_NO;
  self->is_for_fitting = g_strcmp0 (self->cell[PLAN_RUN_USE], "fit") == 0;
  self->time_ok = g_strcmp0 (db_table_cell_named (table, row, "time_ok"), "yes") == 0;
  self->memory_ok = g_strcmp0 (db_table_cell_named (table, row, "memory_ok"), "yes") == 0;
}

static gboolean
add_run (CliValidation *self, const DbTable *table, guint row, GError **error)
{
  CliRun run = { .is_selected = TRUE };
  g_autofree char *name = g_strdup_printf ("%s: measurement %s", self->origin,
                                           db_table_cell_named (table, row, "row_id"));
  PlanModel *model = plan_model_new (db_table_cell_named (table, row, "model_text"), error);
  if (!model)
    return FALSE;
  g_ptr_array_add (self->models, model);
  PlanCluster *cluster
      = plan_cluster_parse (db_table_cell_named (table, row, "cluster_text"), name, error);
  if (!cluster)
    return FALSE;
  g_ptr_array_add (self->clusters, cluster);
  if (!plan_parse (db_table_cell_named (table, row, "plan_text"), name, &run.row.plan, error))
    return FALSE;
  take_cells (&run.row, table, row);
  run.row.model = model;
  run.row.cluster = cluster;
  g_free (run.row.cell[PLAN_RUN_STRATEGY]);
  run.row.cell[PLAN_RUN_STRATEGY]
      = plan_field_print (PLAN_STRATEGY, run.row.plan.value[PLAN_STRATEGY]);
  g_array_append_val (self->runs, run);
  return TRUE;
}

gboolean
cli_validation_read_stored (const char *db, CliValidation *out_self, GError **error)
{
  g_auto (CliValidation) self = { 0 };
  g_autoptr (DbStore) store = db_store_open_readonly (db, error);
  g_autoptr (DbTable) table
      = store ? db_store_read_table (store, DB_KIND_MEASUREMENTS, NULL, error) : NULL;
  if (!table)
    {
      g_prefix_error (error, "fsdplan import brings measured runs into the store: ");
      return FALSE;
    }
  cli_validation_init (&self, "the store");
  for (guint i = 0; i < db_table_n_rows (table); i++)
    if (db_table_cell_named (table, i, "cluster_text") && !add_run (&self, table, i, error))
      return FALSE;
  if (self.runs->len == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "no measured run is stored: fsdplan import brings logs and tables in");
      return FALSE;
    }
  *out_self = self;
  self = (CliValidation){ 0 };
  return TRUE;
}
