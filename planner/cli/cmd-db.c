/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/store.h"
#include "planner/cli/commands.h"
#include "planner/cli/options.h"
#include "planner/cli/output.h"
#include "planner/error.h"
#include "planner/units.h"

#include <stdio.h>
#include <string.h>

static const CliColumn run_columns[] = {
  { "run", TRUE },         { "created", FALSE }, { "state", FALSE },   { "backend", FALSE },
  { "comm", FALSE },       { "ranks", TRUE },    { "steps", TRUE },    { "predicted_ms", TRUE },
  { "measured_ms", TRUE }, { "plan", FALSE },    { "message", FALSE },
};

static void
add_run (CliTable *table, const DbRun *run)
{
  cli_table_add_int (table, run->id);
  cli_table_add (table, run->created);
  cli_table_add (table, run->state);
  cli_table_add (table, run->backend);
  cli_table_add (table, run->comm);
  cli_table_add_int (table, run->ranks);
  cli_table_add_int (table, run->steps);
  cli_table_add_real (table, 1e-6 * (double)run->predicted_step_ns, 3);
  cli_table_add_real (table, 1e-6 * (double)run->measured_step_ns, 3);
  cli_table_add (table, run->plan_hash);
  cli_table_add (table, run->message);
}

static gboolean
list_runs (const char *db, CliFormat format, GError **error)
{
  g_autoptr (DbStore) store = db_store_open_readonly (db, error);
  g_autoptr (GArray) runs = store ? db_store_list_runs (store, error) : NULL;
  g_autoptr (CliTable) table = cli_table_new (run_columns, G_N_ELEMENTS (run_columns));
  if (!runs)
    return FALSE;
  for (guint i = 0; i < runs->len; i++)
    add_run (table, &g_array_index (runs, DbRun, i));
  cli_table_print (table, format);
  return TRUE;
}

static gboolean
print_steps (DbStore *store, gint64 id, GError **error)
{
  static const CliColumn columns[]
      = { { "step", TRUE }, { "loss", TRUE }, { "grad_norm", TRUE }, { "step_ms", TRUE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  g_autoptr (GArray) steps = db_store_list_steps (store, id, error);
  if (!steps)
    return FALSE;
  for (guint i = 0; i < steps->len; i++)
    {
      const DbStep *step = &g_array_index (steps, DbStep, i);
      cli_table_add_int (table, step->step);
      cli_table_add_real (table, step->loss, 7);
      cli_table_add_real (table, step->grad_norm, 7);
      cli_table_add_real (table, 1e-6 * (double)step->step_ns, 3);
    }
  putchar ('\n');
  cli_table_print (table, CLI_FORMAT_TABLE);
  return TRUE;
}

static gboolean
show_run (const char *db, gint64 id, GError **error)
{
  g_auto (DbRun) run = { 0 };
  g_autoptr (DbStore) store = db_store_open_readonly (db, error);
  if (!store || !db_store_load_run (store, id, &run, error))
    return FALSE;
  printf ("run %" G_GINT64_FORMAT ", %s, %s\nprogram %s, backend %s, comm %s, host %s\n"
          "device %s\nranks %" G_GINT64_FORMAT ", steps %" G_GINT64_FORMAT
          ", seed %" G_GINT64_FORMAT "\npredicted step %.3f ms (%s), measured %.3f ms\n"
          "schedule %s\n\nmodel=%s\n%s\n%s",
          run.id, run.state, run.created, run.program_version, run.backend, run.comm, run.host,
          run.device, run.ranks, run.steps, run.seed, 1e-6 * (double)run.predicted_step_ns,
          run.params_id, 1e-6 * (double)run.measured_step_ns, run.schedule_hash, run.model_text,
          run.plan_text, run.cluster_text);
  return print_steps (store, id, error);
}

/* The traces of a run in their exact text form, simulated first. */
static gboolean
export_run (const char *db, gint64 id, GError **error)
{
  g_auto (DbRun) run = { 0 };
  g_autoptr (DbStore) store = db_store_open_readonly (db, error);
  if (!store || !db_store_load_run (store, id, &run, error))
    return FALSE;
  const char *const origins[] = { "sim", run.backend };
  for (guint i = 0; i < G_N_ELEMENTS (origins); i++)
    {
      g_autoptr (PlanTrace) trace = db_store_load_trace (store, id, origins[i], 0, error);
      if (!trace)
        return FALSE;
      g_autofree char *text = plan_trace_print (trace);
      fputs (text, stdout);
    }
  return TRUE;
}

/* Looked up first: opening for writing would make a store where there is none. */
static gboolean
delete_run (const char *db, gint64 id, GError **error)
{
  g_auto (DbRun) run = { 0 };
  g_autoptr (DbStore) present = db_store_open_readonly (db, error);
  if (!present || !db_store_load_run (present, id, &run, error))
    return FALSE;
  g_clear_pointer (&present, db_store_close);
  g_autoptr (DbStore) store = db_store_open (db, error);
  return store && db_store_delete_run (store, id, error);
}

static gboolean
act (const char *verb, gint64 id, const CliOptions *options, CliFormat format, GError **error)
{
  if (strcmp (verb, "list") == 0)
    return list_runs (options->db, format, error);
  if (strcmp (verb, "show") == 0)
    return show_run (options->db, id, error);
  if (strcmp (verb, "export") == 0)
    return export_run (options->db, id, error);
  return delete_run (options->db, id, error);
}

int
cmd_db (int argc, char **argv, GError **error)
{
  static const char *const verbs[] = { "list", "show", "export", "delete", NULL };
  g_auto (CliOptions) options = { 0 };
  CliFormat format;
  gint64 id = 0;
  const GOptionEntry entries[] = {
    { "db", 0, 0, G_OPTION_ARG_STRING, &options.db,
      "the store of runs; $XDG_DATA_HOME/fsdplan/fsdplan.db unless said", "FILE" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context = cli_context_new ("list|show|export|delete [ID]",
                                                    "list, show, export or delete stored runs");
  cli_context_describe (context, "show prints a run with all it takes to repeat it, and its steps; "
                                 "export prints its traces;\nonly list takes a --format.");
  cli_context_add (context, entries);
  cli_options_add_format (&options, context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (argc < 2 || !g_strv_contains (verbs, argv[1])
      || argc != (strcmp (argv[1], "list") == 0 ? 2 : 3))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "db: use list, show ID, export ID or delete ID");
      return CLI_FAILED;
    }
  if (!cli_format_parse (options.format, &format, error)
      || (argc == 3 && !plan_units_parse_int (argv[2], "run", 1, G_MAXINT64, &id, error)))
    return CLI_FAILED;
  return act (argv[1], id, &options, format, error) ? CLI_DONE : CLI_FAILED;
}
