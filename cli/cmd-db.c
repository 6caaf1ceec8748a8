/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/adjustments.h"
#include "cli/io/commands.h"
#include "cli/io/options.h"
#include "cli/io/output.h"
#include "db/plans.h"
#include "db/runs.h"
#include "db/tables.h"
#include "db/traces.h"
#include "db/transfer.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The command line; words[0] is the first word after the verb. */
typedef struct
{
  char *db, *format, *kind_name;
  gboolean is_dry_run, repairs;
  DbKind kind;
  const char *const *words;
  guint n_words;
} Request;

static void
request_clear (Request *self)
{
  g_free (self->db);
  g_free (self->format);
  g_free (self->kind_name);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Request, request_clear)

static const CliColumn run_columns[] = {
  { "run", TRUE },         { "created", FALSE }, { "state", FALSE },   { "backend", FALSE },
  { "comm", FALSE },       { "ranks", TRUE },    { "steps", TRUE },    { "predicted_ms", TRUE },
  { "measured_ms", TRUE }, { "plan", FALSE },    { "message", FALSE },
};

/* Adds a time; an empty cell for 0, which is unknown. */
static void
add_ms (CliTable *table, gint64 ns)
{
  if (ns)
    cli_table_add_real (table, 1e-6 * (double)ns, 3);
  else
    cli_table_add (table, NULL);
}

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
  add_ms (table, run->predicted_step_ns);
  add_ms (table, run->measured_step_ns);
  g_autofree char *plan = g_strdup_printf ("@%" G_GINT64_FORMAT, run->plan_id);
  cli_table_add (table, plan);
  cli_table_add (table, run->message);
}

static gboolean
list_runs (DbStore *store, CliFormat format, GError **error)
{
  g_autoptr (GArray) runs = db_store_list_runs (store, error);
  g_autoptr (CliTable) table = cli_table_new (run_columns, G_N_ELEMENTS (run_columns));
  if (!runs)
    return FALSE;
  for (guint i = 0; i < runs->len; i++)
    add_run (table, &g_array_index (runs, DbRun, i));
  cli_table_print (table, format);
  return TRUE;
}

/* Adds the names of a plan's model and cluster, as "llama3-8b" and "dgx-h100:4", and the number of
 * devices. */
static void
add_names (CliTable *table, const DbPlan *plan)
{
  g_autoptr (PlanModel) model = plan_model_new (plan->model_text, NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_parse (plan->cluster_text, "store", NULL);
  g_autofree char *spec
      = cluster ? g_strdup_printf ("%s:%" G_GINT64_FORMAT, cluster->name, cluster->nodes) : NULL;
  cli_table_add (table, model ? model->name : NULL);
  cli_table_add (table, spec);
  if (cluster)
    cli_table_add_int (table, plan_cluster_devices (cluster));
  else
    cli_table_add (table, NULL);
}

static gboolean
list_plans (DbStore *store, CliFormat format, GError **error)
{
  static const CliColumn columns[]
      = { { "plan", FALSE },        { "model", FALSE },     { "cluster", FALSE },
          { "devices", TRUE },      { "runs", TRUE },       { "queries", TRUE },
          { "predicted_ms", TRUE }, { "device_mib", TRUE }, { "fields", FALSE } };
  g_autoptr (GArray) plans = db_store_list_plans (store, error);
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  if (!plans)
    return FALSE;
  for (guint i = 0; i < plans->len; i++)
    {
      const DbStoredPlan *stored = &g_array_index (plans, DbStoredPlan, i);
      g_autofree char *id = g_strdup_printf ("@%" G_GINT64_FORMAT, stored->id);
      g_autofree char *fields
          = g_strstrip (g_strdelimit (g_strdup (stored->plan.plan_text), "\n", ' '));
      cli_table_add (table, id);
      add_names (table, &stored->plan);
      cli_table_add_int (table, stored->runs);
      cli_table_add_int (table, stored->queries);
      add_ms (table, stored->step_ns);
      if (stored->device_bytes)
        cli_table_add_real (table, (double)stored->device_bytes / 1048576.0, 1);
      else
        cli_table_add (table, NULL);
      cli_table_add (table, fields);
    }
  cli_table_print (table, format);
  return TRUE;
}

static gboolean
list_runs_and_plans (DbStore *store, GError **error)
{
  if (!list_runs (store, CLI_FORMAT_TABLE, error))
    return FALSE;
  printf ("\n");
  return list_plans (store, CLI_FORMAT_TABLE, error);
}

/* A table of stored rows with the named columns; NULL: all columns. */
static CliTable *
table_of (const DbTable *rows, const char *const *names)
{
  const guint n = names ? g_strv_length ((char **)names) : db_kind_n_columns (rows->kind);
  CliColumn *columns = g_new0 (CliColumn, n);
  guint *place = g_newa (guint, n);
  for (guint i = 0; i < n; i++)
    {
      for (place[i] = 0; names && strcmp (db_kind_column_name (rows->kind, place[i]), names[i]);)
        place[i]++;
      place[i] = names ? place[i] : i;
      columns[i] = (CliColumn){ db_kind_column_name (rows->kind, place[i]),
                                db_kind_column_type (rows->kind, place[i]) != DB_TYPE_TEXT };
    }
  CliTable *table = cli_table_new (columns, n);
  cli_table_own_columns (table, columns);
  for (guint row = 0; row < db_table_n_rows (rows); row++)
    for (guint i = 0; i < n; i++)
      cli_table_add (table, db_table_cell (rows, row, place[i]));
  return table;
}

static gboolean
list_stored (const Request *request, GError **error)
{
  static const char *const shown[DB_N_KINDS][12] = {
    [DB_KIND_CLUSTERS] = { "name", "source", "created" },
    [DB_KIND_PLANS] = { "id" }, /* unused: plans and runs have lists of their own */
    [DB_KIND_RUNS] = { "id" },
    [DB_KIND_STEPS] = { "run", "step", "loss", "grad_norm", "step_ns" },
    [DB_KIND_QUERIES] = { "id", "created", "params_id", "question" },
    [DB_KIND_ANSWERS] = { "query", "place", "step_ns", "device_bytes" },
    [DB_KIND_MEASUREMENTS] = { "id", "source", "row_id", "use", "stack", "gpu", "gpus", "step_ms",
                               "max_allocated_mib", NULL },
    [DB_KIND_OPS] = { "id", "created", "machine", "op", "shape", "format", "ranks", "median_ns",
                      "spread_ns", NULL },
    [DB_KIND_WORKSPACES] = { "id", "cudnn", "architecture", "pass", "format", "batch", "seq",
                             "heads", "kv_heads", "head_dim", "workspace_bytes" },
    [DB_KIND_PARAMS] = { "id", "created", "validation", "error_pct" },
    [DB_KIND_FITTED] = { "params", "run", "source", "row_id", "op" },
  };
  CliFormat format;
  if (!cli_format_parse (request->format, &format, error))
    return FALSE;
  g_autoptr (DbStore) store = db_store_open_readonly (request->db, error);
  if (!store)
    return FALSE;
  if (!request->kind_name && format == CLI_FORMAT_TABLE)
    return list_runs_and_plans (store, error);
  if (request->kind == DB_KIND_RUNS)
    return list_runs (store, format, error);
  if (request->kind == DB_KIND_PLANS)
    return list_plans (store, format, error);
  g_autoptr (DbTable) rows = db_store_read_table (store, request->kind, NULL, error);
  if (!rows)
    return FALSE;
  g_autoptr (CliTable) table = table_of (rows, shown[request->kind]);
  cli_table_print (table, format);
  return TRUE;
}

static gboolean
print_steps (DbStore *store, gint64 id, GError **error)
{
  static const CliColumn columns[] = { { "step", TRUE },
                                       { "loss", TRUE },
                                       { "grad_norm", TRUE },
                                       { "step_ms", TRUE },
                                       { "eval_loss", TRUE } };
  g_autoptr (GArray) steps = db_store_list_steps (store, id, error);
  gboolean evaluates = FALSE;
  if (!steps)
    return FALSE;
  for (guint i = 0; i < steps->len; i++)
    evaluates = evaluates || isfinite (g_array_index (steps, DbStep, i).eval_loss);
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns) - !evaluates);
  for (guint i = 0; i < steps->len; i++)
    {
      const DbStep *step = &g_array_index (steps, DbStep, i);
      cli_table_add_int (table, step->step);
      cli_table_add_real (table, step->loss, 7);
      cli_table_add_real (table, step->grad_norm, 7);
      cli_table_add_real (table, 1e-6 * (double)step->step_ns, 3);
      if (evaluates && isfinite (step->eval_loss))
        cli_table_add_real (table, step->eval_loss, 7);
      else if (evaluates)
        cli_table_add (table, NULL);
    }
  putchar ('\n');
  cli_table_print (table, CLI_FORMAT_TABLE);
  return TRUE;
}

/* Prints text from others with control characters escaped, since a terminal would act on them. */
static void
print_lines (const GString *text)
{
  g_autofree char *lines = plan_text_lines (text->str);
  fputs (lines, stdout);
}

static gboolean
print_run (DbStore *store, gint64 id, GError **error)
{
  g_auto (DbRun) run = { 0 };
  if (!db_store_load_run (store, id, &run, error))
    return FALSE;
  g_auto (GStrv) settings = g_strsplit (run.settings ? run.settings : "not recorded", "\n", -1);
  g_autoptr (GString) text = g_string_new (NULL);
  g_autofree char *setting_words = g_strchomp (g_strjoinv (" ", settings));
  g_string_append_printf (text, "run %" G_GINT64_FORMAT ", %s, %s\n", run.id, run.state,
                          run.created);
  if (run.message)
    g_string_append_printf (text, "message %s\n", run.message);
  g_string_append_printf (text,
                          "name %s\nprogram %s, backend %s, comm %s, host %s\n"
                          "device %s\nranks %" G_GINT64_FORMAT ", steps %" G_GINT64_FORMAT
                          ", seed %" G_GINT64_FORMAT ", data %s\nsettings %s\n",
                          run.uid, run.program_version, run.backend, run.comm, run.host, run.device,
                          run.ranks, run.steps, run.seed, run.data ? run.data : "not recorded",
                          setting_words);
  g_string_append_printf (text,
                          "predicted step %.3f ms (%s), measured %.3f ms\n"
                          "plan @%" G_GINT64_FORMAT ", schedule %s\n\nmodel=%s\n%s\n%s",
                          1e-6 * (double)run.predicted_step_ns, run.params_id,
                          1e-6 * (double)run.measured_step_ns, run.plan_id, run.schedule_hash,
                          run.model_text, run.plan_text, run.cluster_text);
  print_lines (text);
  return print_steps (store, id, error);
}

/* Prints a row as lines "NAME VALUE"; a text of several lines follows its name on lines of its
 * own. */
static void
print_row (const DbTable *rows, guint row)
{
  g_autoptr (GString) text = g_string_new (NULL);
  for (guint c = 0; c < db_kind_n_columns (rows->kind); c++)
    {
      const char *cell = db_table_cell (rows, row, c);
      const char *name = db_kind_column_name (rows->kind, c);
      if (cell && strchr (cell, '\n'))
        g_string_append_printf (text, "%s:\n%s%s", name, cell,
                                g_str_has_suffix (cell, "\n") ? "" : "\n");
      else if (cell)
        g_string_append_printf (text, "%s %s\n", name, cell);
    }
  print_lines (text);
}

static gboolean
print_fitted (DbStore *store, const char *params, GError **error)
{
  static const char *const names[] = { "run", "source", "row_id", "op", NULL };
  g_autoptr (DbTable) rows = db_store_read_table (store, DB_KIND_FITTED, params, error);
  if (!rows)
    return FALSE;
  g_autoptr (CliTable) table = table_of (rows, names);
  puts ("fitted to:");
  cli_table_print (table, CLI_FORMAT_TABLE);
  return TRUE;
}

static gboolean
show_stored (const Request *request, GError **error)
{
  const char *key = request->words[0];
  CliFormat format;
  gint64 id = 0;
  if (!cli_format_parse (request->format, &format, error)
      || (request->kind == DB_KIND_RUNS
          && !plan_units_parse_int (key, "run", 1, G_MAXINT64, &id, error)))
    return FALSE;
  g_autoptr (DbStore) store = db_store_open_readonly (request->db, error);
  if (!store)
    return FALSE;
  if (request->kind == DB_KIND_RUNS && format == CLI_FORMAT_TABLE)
    return print_run (store, id, error);
  g_autoptr (DbTable) rows = db_store_read_table (store, request->kind, key, error);
  if (!rows)
    return FALSE;
  if (db_table_n_rows (rows) == 0)
    {
      g_autofree char *shown = plan_text_quote (key);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: there is nothing called %s among its %s", db_store_path (store), shown,
                   db_kind_name (request->kind));
      return FALSE;
    }
  if (format != CLI_FORMAT_TABLE)
    {
      g_autoptr (CliTable) table = table_of (rows, NULL);
      cli_table_print (table, format);
      return TRUE;
    }
  for (guint row = 0; row < db_table_n_rows (rows); row++)
    print_row (rows, row);
  return request->kind != DB_KIND_PARAMS || print_fitted (store, key, error);
}

/* Prints the traces of a run in their exact text form, the simulated one first. */
static gboolean
export_traces (DbStore *store, const char *word, GError **error)
{
  g_auto (DbRun) run = { 0 };
  gint64 id;
  if (!plan_units_parse_int (word, "run", 1, G_MAXINT64, &id, error)
      || !db_store_load_run (store, id, &run, error))
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

/* A terminal would act on control characters, which an export keeps. */
static void
print_text (const char *text, gpointer user_data)
{
  g_autofree char *shown = isatty (STDOUT_FILENO) ? plan_text_lines (text) : NULL;
  fputs (shown ? shown : text, stdout);
}

/* Prints tables as {"runs": [...], ...}, which import reads. */
static void
print_tables_json (DbTable *const *tables, guint n_tables)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  for (guint t = 0; t < n_tables; t++)
    {
      g_autoptr (CliTable) table = table_of (tables[t], NULL);
      json_builder_set_member_name (builder, db_kind_name (tables[t]->kind));
      json_builder_add_value (builder, cli_table_to_json (table));
    }
  json_builder_end_object (builder);
  g_autoptr (JsonNode) root = json_builder_get_root (builder);
  cli_print_json (root);
}

static gboolean
export_kind (DbStore *store, const char *word, CliFormat format, GError **error)
{
  DbKind kind;
  if (!db_kind_parse (word, &kind, error))
    return FALSE;
  g_autoptr (DbTable) rows = db_store_read_table (store, kind, NULL, error);
  if (!rows)
    return FALSE;
  if (format == CLI_FORMAT_JSON)
    {
      print_tables_json (&rows, 1);
      return TRUE;
    }
  g_autoptr (CliTable) table = table_of (rows, NULL);
  cli_table_print (table, format);
  return TRUE;
}

static gboolean
export_all_json (DbStore *store, GError **error)
{
  g_autoptr (GPtrArray) tables = db_store_read_tables (store, error);
  if (!tables)
    return FALSE;
  print_tables_json ((DbTable *const *)tables->pdata, tables->len);
  return TRUE;
}

/* Exports. The default is SQL for everything and CSV for one kind. */
static gboolean
export_stored (const Request *request, GError **error)
{
  const char *word = request->n_words ? request->words[0] : NULL;
  const char *format_name = request->format ? request->format : word ? "csv" : "sql";
  const gboolean is_sql = strcmp (format_name, "sql") == 0;
  CliFormat format = CLI_FORMAT_CSV;
  if (!is_sql && !cli_format_parse (format_name, &format, error))
    return FALSE;
  if (format == CLI_FORMAT_TABLE || (is_sql && word)
      || (format == CLI_FORMAT_CSV && !is_sql && !word))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "db export: everything is sql or json, one kind is csv or json");
      return FALSE;
    }
  g_autoptr (DbStore) store = db_store_open_readonly (request->db, error);
  if (!store)
    return FALSE;
  return is_sql                    ? db_store_dump (store, print_text, NULL, error)
         : !word                   ? export_all_json (store, error)
         : g_ascii_isdigit (*word) ? export_traces (store, word, error)
                                   : export_kind (store, word, format, error);
}

static void
print_import (const DbImport *import, CliFormat format)
{
  static const CliColumn columns[]
      = { { "kind", FALSE }, { "added", TRUE }, { "already_there", TRUE } };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (DbKind kind = 0; kind <= DB_N_KINDS; kind++)
    {
      const gboolean is_trace = kind == DB_N_KINDS;
      const guint added = is_trace ? import->added_traces : import->added[kind];
      const guint present = is_trace ? import->present_traces : import->present[kind];
      if (added + present == 0)
        continue;
      cli_table_add (table, is_trace ? "traces" : db_kind_name (kind));
      cli_table_add_int (table, added);
      cli_table_add_int (table, present);
    }
  cli_table_print (table, format);
}

static gboolean
read_text (const char *path, char **out_text, GError **error)
{
  g_autofree char *text = NULL;
  g_autoptr (GError) why = NULL;
  gsize length;
  const char *file = strcmp (path, "-") == 0 ? "/dev/stdin" : path;
  const gboolean is_readable = access (file, R_OK) == 0;
  if (!is_readable || !g_file_get_contents (file, &text, &length, &why))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", path,
                   is_readable ? why->message : g_strerror (errno));
      return FALSE;
    }
  if (!g_utf8_validate_len (text, length, NULL))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: is not a text in UTF-8", path);
      return FALSE;
    }
  *out_text = g_steal_pointer (&text);
  return TRUE;
}

/* Opens the store for an import. A dry run creates no file. */
static DbStore *
open_for_import (const Request *request, GError **error)
{
  g_autofree char *file = NULL;
  gint64 version = 0;
  if (request->is_dry_run && !db_store_find (request->db, &file, &version, error))
    return NULL;
  return db_store_open (request->is_dry_run && version == 0 ? ":memory:" : request->db, error);
}

static gboolean
import_stored (const Request *request, GError **error)
{
  g_autoptr (GPtrArray) texts = g_ptr_array_new_with_free_func (g_free);
  g_autofree DbSource *sources = g_new0 (DbSource, request->n_words);
  DbImport import;
  CliFormat format;
  if (!cli_format_parse (request->format, &format, error))
    return FALSE;
  for (guint i = 0; i < request->n_words; i++)
    {
      char *text = NULL;
      if (!read_text (request->words[i], &text, error))
        return FALSE;
      g_ptr_array_add (texts, text);
      sources[i] = (DbSource){ .text = text,
                               .origin = request->words[i],
                               .accepts = advise_adjustments_accept };
    }
  g_autoptr (DbStore) store = open_for_import (request, error);
  if (!store
      || !db_store_import (store, sources, request->n_words, request->is_dry_run, &import, error))
    return FALSE;
  if (request->is_dry_run)
    fputs ("fsdplan: a dry run: nothing was stored\n", stderr);
  print_import (&import, format);
  return TRUE;
}

static gboolean
delete_stored (const Request *request, GError **error)
{
  g_autofree char *file = NULL;
  gint64 version;
  if (!db_store_find (request->db, &file, &version, error))
    return FALSE;
  if (version == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: nothing was stored yet", file);
      return FALSE;
    }
  g_autoptr (DbStore) store = db_store_open (request->db, error);
  return store && db_store_delete (store, request->kind, request->words, request->n_words, error);
}

/* Repairs what can be repaired without losing measurements. */
static gboolean
repair (const char *db, GError **error)
{
  g_autoptr (DbStore) store = db_store_open (db, error);
  guint n = 0;
  if (!store || !db_store_repair_numbers (store, &n, error))
    return FALSE;
  if (n > 0)
    printf ("repaired: numbers go on behind the largest in use, in %u table%s\n", n,
            n == 1 ? "" : "s");
  for (;;)
    {
      g_autoptr (DbTable) sets = db_store_read_table (store, DB_KIND_PARAMS, NULL, error);
      const char *id = sets ? advise_adjustments_unreadable (sets, NULL) : NULL;
      if (!id)
        return sets != NULL;
      if (!db_store_delete (store, DB_KIND_PARAMS, &id, 1, error))
        return FALSE;
      printf ("repaired: parameter set %s, which could not be read, is deleted\n", id);
    }
}

static gboolean
add_unreadable (DbStore *store, GPtrArray *faults, GError **error)
{
  g_autoptr (GError) why = NULL;
  g_autoptr (DbTable) sets = db_store_read_table (store, DB_KIND_PARAMS, NULL, error);
  const char *id = sets ? advise_adjustments_unreadable (sets, &why) : NULL;
  if (id)
    g_ptr_array_add (faults,
                     g_strdup_printf ("parameter set %s cannot be read: %s", id, why->message));
  return sets != NULL;
}

static gboolean
check_stored (const Request *request, GError **error)
{
  if (request->repairs && !repair (request->db, error))
    return FALSE;
  g_autoptr (DbStore) store = db_store_open_readonly (request->db, error);
  g_autoptr (GPtrArray) faults = store ? db_store_list_faults (store, error) : NULL;
  if (!faults || (faults->len == 0 && !add_unreadable (store, faults, error)))
    return FALSE;
  for (guint i = 0; i < faults->len; i++)
    puts (g_ptr_array_index (faults, i));
  if (faults->len == 0)
    {
      puts ("no faults");
      return TRUE;
    }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT, "%s: %u fault%s%s", db_store_path (store),
               faults->len, faults->len == 1 ? "" : "s",
               request->repairs
                   ? ""
                   : "; --repair mends numbers that are used up, and unreadable parameter sets");
  return FALSE;
}

static gboolean
print_path (const Request *request, GError **error)
{
  g_autofree char *file = NULL;
  gint64 version;
  if (!db_store_find (request->db, &file, &version, error))
    return FALSE;
  puts (file);
  if (version == 0)
    puts ("nothing was stored yet");
  else if (version < db_store_latest_version ())
    printf ("version %" G_GINT64_FORMAT ", becomes %" G_GINT64_FORMAT " when next written\n",
            version, db_store_latest_version ());
  else
    printf ("version %" G_GINT64_FORMAT "\n", version);
  return TRUE;
}

static const struct
{
  const char *name, *usage;
  guint min_words, max_words;
  gboolean (*act) (const Request *request, GError **error);
} verbs[] = {
  { "list", "list", 0, 0, list_stored },
  { "show", "show ID", 1, 1, show_stored },
  { "export", "export [KIND|ID]", 0, 1, export_stored },
  { "import", "import FILE...", 1, G_MAXUINT, import_stored },
  { "delete", "delete ID...", 1, G_MAXUINT, delete_stored },
  { "check", "check", 0, 0, check_stored },
  { "path", "path", 0, 0, print_path },
};

static gboolean
act (const char *verb, Request *request, GError **error)
{
  if (request->is_dry_run && strcmp (verb, "import") != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "db: --dry-run is for import");
      return FALSE;
    }
  if (request->repairs && strcmp (verb, "check") != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "db: --repair is for check");
      return FALSE;
    }
  g_autoptr (GString) usages = g_string_new (NULL);
  for (guint v = 0; v < G_N_ELEMENTS (verbs); v++)
    {
      if (strcmp (verb, verbs[v].name) == 0 && request->n_words >= verbs[v].min_words
          && request->n_words <= verbs[v].max_words)
        return verbs[v].act (request, error);
      g_string_append_printf (usages, "%s%s", v ? ", " : "", verbs[v].usage);
    }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "db: use %s", usages->str);
  return FALSE;
}

int
cmd_db (int argc, char **argv, GError **error)
{
  g_auto (Request) request = { .kind = DB_KIND_RUNS };
  const GOptionEntry entries[] = {
    { "kind", 0, 0, G_OPTION_ARG_STRING, &request.kind_name,
      "runs, plans, queries, clusters, steps, measurements, ops, cudnn, params or fitted: of what "
      "to "
      "list, show or delete; runs by default, and in a list plans beside them",
      "KIND" },
    { "format", 0, 0, G_OPTION_ARG_STRING, &request.format,
      "of what is printed; table, of an export sql, of one kind csv by default",
      "table|csv|json|sql" },
    { "dry-run", 0, 0, G_OPTION_ARG_NONE, &request.is_dry_run,
      "import: say what would be added, and store nothing", NULL },
    { "repair", 0, 0, G_OPTION_ARG_NONE, &request.repairs,
      "check: mend what can be mended without losing a measurement", NULL },
    { "db", 0, 0, G_OPTION_ARG_STRING, &request.db,
      "the store; $XDG_DATA_HOME/fsdplan/fsdplan.db by default", "FILE" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new ("list|show|export|import|delete|check|path [KIND|ID|FILE]…",
                         "what is stored: list, show, export, import, delete or check it");
  cli_context_describe (context,
                        "  list              what there is of a kind\n"
                        "  show ID           all of one thing; clusters and params by their names\n"
                        "  export            everything, as SQL or JSON\n"
                        "  export KIND       one kind, as CSV or JSON\n"
                        "  export ID         the traces of a run\n"
                        "  import FILE…      what export wrote; adds only what is not there yet\n"
                        "  delete ID…        all of them, or none\n"
                        "  check             look for damage and contradictions\n"
                        "  path              where the store is, and its version\n");
  cli_context_add (context, entries);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  request.words = (const char *const *)argv + 2;
  request.n_words = argc > 2 ? (guint)argc - 2 : 0;
  if (request.kind_name && !db_kind_parse (request.kind_name, &request.kind, error))
    {
      g_prefix_error (error, "--kind: ");
      return CLI_FAILED;
    }
  return act (argc > 1 ? argv[1] : "", &request, error) ? CLI_DONE : CLI_FAILED;
}
