/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/adjustments.h"
#include "cli/import.h"
#include "cli/io/commands.h"
#include "cli/io/output.h"
#include "db/transfer.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <stdio.h>
#include <string.h>

#define MAX_WRONG_SHOWN 20

/* Options beyond those of the plan. */
typedef struct
{
  char *source, *use, *op;
  gboolean is_dry_run;
} Settings;

static void
settings_clear (Settings *self)
{
  g_free (self->source);
  g_free (self->use);
  g_free (self->op);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Settings, settings_clear)

static void
free_import (gpointer import)
{
  cli_import_clear (import);
  g_free (import);
}

static gboolean
read_files (char *const *paths, const CliImportRequest *request, GPtrArray *out_imports,
            GError **error)
{
  for (; *paths; paths++)
    {
      CliImport import;
      if (!cli_import_read (*paths, request, &import, error))
        return FALSE;
      g_ptr_array_add (out_imports, g_memdup2 (&import, sizeof import));
    }
  return TRUE;
}

/* Opens the store. A dry run creates no file. */
static DbStore *
open_store (const char *path, gboolean is_dry_run, GError **error)
{
  g_autofree char *file = NULL;
  gint64 version = 0;
  if (is_dry_run && !db_store_find (path, &file, &version, error))
    return NULL;
  return db_store_open (is_dry_run && version == 0 ? ":memory:" : path, error);
}

static gboolean
store (const GPtrArray *imports, const char *path, gboolean is_dry_run, DbImport *out,
       GError **error)
{
  g_autofree DbSource *sources = g_new0 (DbSource, imports->len);
  gboolean has_rows = FALSE;
  for (guint i = 0; i < imports->len; i++)
    {
      const CliImport *import = imports->pdata[i];
      has_rows |= import->text || import->n_rows > 0;
      sources[i] = (DbSource){ .text = import->text,
                               .origin = import->origin,
                               .accepts = advise_adjustments_accept,
                               .tables = import->text ? NULL : import->tables };
    }
  *out = (DbImport){ 0 };
  if (!has_rows) /* without rows no store is created */
    return TRUE;
  g_autoptr (DbStore) db = open_store (path, is_dry_run, error);
  return db && db_store_import (db, sources, imports->len, is_dry_run, out, error);
}

static int
compare_texts (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *)a, *(const char *const *)b);
}

static void
print_skipped (const CliImport *import)
{
  g_autoptr (GPtrArray) reasons = g_ptr_array_new ();
  GHashTableIter iter;
  gpointer reason;
  g_hash_table_iter_init (&iter, import->skipped);
  while (g_hash_table_iter_next (&iter, &reason, NULL))
    g_ptr_array_add (reasons, reason);
  g_ptr_array_sort (reasons, compare_texts);
  for (guint i = 0; i < reasons->len; i++)
    fprintf (stderr, "%s: %u skipped: %s\n", import->origin,
             GPOINTER_TO_UINT (g_hash_table_lookup (import->skipped, reasons->pdata[i])),
             (char *)reasons->pdata[i]);
}

static void
print_files (const GPtrArray *imports, CliFormat format)
{
  static const CliColumn columns[] = {
    { "file", FALSE }, { "kind", FALSE }, { "rows", TRUE }, { "skipped", TRUE }, { "wrong", TRUE }
  };
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < imports->len; i++)
    {
      const CliImport *import = imports->pdata[i];
      GHashTableIter iter;
      gpointer n;
      guint n_skipped = 0;
      g_hash_table_iter_init (&iter, import->skipped);
      while (g_hash_table_iter_next (&iter, NULL, &n))
        n_skipped += GPOINTER_TO_UINT (n);
      cli_table_add (table, import->origin);
      cli_table_add (table, import->kind);
      if (import->text)
        cli_table_add (table, NULL);
      else
        cli_table_add_int (table, import->n_rows);
      cli_table_add_int (table, n_skipped);
      cli_table_add_int (table, import->wrong->len);
      print_skipped (import);
    }
  cli_table_print (table, format);
}

static void
print_stored (const DbImport *stored, gboolean is_dry_run)
{
  guint added = stored->added_traces, present = stored->present_traces;
  for (DbKind kind = 0; kind < DB_N_KINDS; kind++)
    {
      added += stored->added[kind];
      present += stored->present[kind];
    }
  fprintf (stderr, "%s%u %s added, %u there already\n",
           is_dry_run ? "a dry run, nothing was stored: " : "", added, added == 1 ? "row" : "rows",
           present);
}

/* Prints the lines that could not be read, which make the command fail; the others were stored. */
static int
report_wrong (const GPtrArray *imports, GError **error)
{
  guint n = 0;
  for (guint i = 0; i < imports->len; i++)
    {
      const CliImport *import = imports->pdata[i];
      for (guint w = 0; w < import->wrong->len; w++)
        if (n++ < MAX_WRONG_SHOWN)
          fprintf (stderr, "%s\n", (char *)import->wrong->pdata[w]);
    }
  if (n == 0)
    return CLI_DONE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%u %s could not be read", n,
               n == 1 ? "row" : "rows");
  return CLI_FAILED;
}

#define COLLECTIVES "all_gather|reduce_scatter|all_reduce|all_to_all"

static gboolean
check_op (const char *op, GError **error)
{
  g_auto (GStrv) known = g_strsplit (COLLECTIVES, "|", -1);
  if (g_strv_contains ((const char *const *)known, op))
    return TRUE;
  g_autofree char *shown = plan_text_quote (op);
  g_autofree char *hint = plan_text_suggest (op, (const char *const *)known);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--op: %s is no collective: %s", shown, hint);
  return FALSE;
}

static int
run (char *const *paths, const CliOptions *options, const Settings *settings, GError **error)
{
  const CliImportRequest request = {
    .options = options, .source = settings->source, .use = settings->use, .op = settings->op
  };
  g_autoptr (GPtrArray) imports = g_ptr_array_new_with_free_func (free_import);
  DbImport stored;
  CliFormat format;
  if (settings->use && !g_str_equal (settings->use, "fit")
      && !g_str_equal (settings->use, "report"))
    {
      g_autofree char *shown = plan_text_quote (settings->use);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--use: %s is not fit or report", shown);
      return CLI_FAILED;
    }
  if (settings->op && !check_op (settings->op, error))
    return CLI_FAILED;
  if (!*paths)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "import: a file is needed: a log, a table, or - for standard input");
      return CLI_FAILED;
    }
  if (!cli_format_parse (options->format, &format, error)
      || !read_files (paths, &request, imports, error)
      || !store (imports, options->db, settings->is_dry_run, &stored, error))
    return CLI_FAILED;
  print_files (imports, format);
  print_stored (&stored, settings->is_dry_run);
  return report_wrong (imports, error);
}

int
cmd_import (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (Settings) settings = { 0 };
  const GOptionEntry entries[] = {
    { "dry-run", 0, 0, G_OPTION_ARG_NONE, &settings.is_dry_run, "store nothing", NULL },
    { "source", 0, 0, G_OPTION_ARG_STRING, &settings.source,
      "who measured it, where; the file's name by default", "TEXT" },
    { "use", 0, 0, G_OPTION_ARG_STRING, &settings.use,
      "whether parameters may be fitted to these rows, or never; fit by default", "fit|report" },
    { "op", 0, 0, G_OPTION_ARG_STRING, &settings.op,
      "the collective of an nccl-tests output that does not tell it", COLLECTIVES },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new ("FILE…", "measurements of other tools: training logs, nccl-tests, tables");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  cli_options_add_format (&options, CLI_FORMATS, context);
  cli_context_describe (
      context,
      "Files are known by what is in them: logs of Megatron-LM, torchtitan and fsdplan run --log,\n"
      "output of nccl-tests, tables of runs (the columns of db/data/runs.csv), of collectives and "
      "of\n"
      "products, and what db export wrote. The plan is that of a log's Megatron-LM argument list,\n"
      "all but the devices (--cluster); for other logs, and for a copied line, give it on the\n"
      "command line. All files are stored or none; what is there already is not added again.");
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  return run (argv + 1, &options, &settings, error);
}
