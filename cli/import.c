/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out by the first bytes what a file is: a CSV table by its columns, an export of a store by
 * its mark. Everything else is a log, in which any line may be of interest. */
#include "config.h"

#include "cli/import.h"
#include "cli/io/watch.h"

#include "db/tables.h"
#include "planner/base/csv.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/runs/run-table.h"
#include "planner/runs/step-log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK_BYTES 65536
#define MAX_EXPORT_BYTES (G_GUINT64_CONSTANT (1) << 30)

void
cli_import_clear (CliImport *self)
{
  g_clear_pointer (&self->origin, g_free);
  g_clear_pointer (&self->text, g_free);
  g_clear_pointer (&self->tables, g_ptr_array_unref);
  g_clear_pointer (&self->skipped, g_hash_table_unref);
  g_clear_pointer (&self->wrong, g_ptr_array_unref);
}

char *
cli_import_now (void)
{
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  return g_date_time_format (now, "%Y-%m-%dT%H:%M:%SZ");
}

char *
cli_import_machine (gint64 ranks, const char *device, gint64 nodes)
{
  return g_strdup_printf ("%" G_GINT64_FORMAT " x %s, %" G_GINT64_FORMAT " node%s", ranks,
                          device ? device : "unknown device", nodes, nodes == 1 ? "" : "s");
}

char *
cli_import_hash (const char *text)
{
  char *hash = g_compute_checksum_for_string (G_CHECKSUM_SHA256, text, -1);
  hash[16] = '\0';
  return hash;
}

void
cli_import_add (CliImport *self, gboolean is_op, const char *const (*cells)[2], guint n_cells,
                guint64 line)
{
  db_table_add (self->tables->pdata[is_op], cells, n_cells, (guint)line);
  self->n_rows++;
}

void
cli_import_skip (CliImport *self, const char *reason)
{
  const guint n = GPOINTER_TO_UINT (g_hash_table_lookup (self->skipped, reason));
  g_hash_table_insert (self->skipped, g_strdup (reason), GUINT_TO_POINTER (n + 1));
}

/* Arguments of the functions that read tables. */
typedef struct
{
  CliImport *import;
  const CliImportRequest *request;
  char *created;
  GPtrArray *header; /* char *: columns of a table of ops; NULL until they were read */
} Reader;

static void
add_row (CliImport *import, const PlanRunRow *row, const char *use, const char *created)
{
  g_autofree char *model = plan_model_print (row->model);
  g_autofree char *cluster = plan_cluster_print (row->cluster);
  g_autofree char *plan = plan_print (&row->plan);
  g_autofree char *nodes = g_strdup_printf ("%" G_GINT64_FORMAT, row->cluster->nodes);
  char *const *cell = row->cell;
#define CELL(name, column) \
  { \
    name, cell[PLAN_RUN_##column] \
  }
  const char *const cells[][2] = {
    { "created", created },
    CELL ("source", SOURCE),
    CELL ("row_id", ROW_ID),
    { "row_group", cell[PLAN_RUN_GROUP] ? cell[PLAN_RUN_GROUP] : cell[PLAN_RUN_ROW_ID] },
    { "use", use },
    { "quality", cell[PLAN_RUN_QUALITY] ? cell[PLAN_RUN_QUALITY] : "C" },
    CELL ("stack", STACK),
    CELL ("stack_date", STACK_DATE),
    { "model_text", model },
    { "cluster_text", cluster },
    CELL ("gpu", GPU),
    CELL ("gpus", GPUS),
    { "nodes", nodes },
    { "plan_text", plan },
    CELL ("step_ms", STEP_MS),
    CELL ("tokens_per_s_per_gpu", TOKENS_PER_S_PER_GPU),
    CELL ("allocated_mib", ALLOCATED_MIB),
    CELL ("max_allocated_mib", MAX_ALLOCATED_MIB),
    CELL ("reserved_mib", RESERVED_MIB),
    CELL ("device_mib", DEVICE_MIB),
    CELL ("oom", OOM),
    { "time_ok", row->time_ok ? "yes" : "no" },
    { "memory_ok", row->memory_ok ? "yes" : "no" },
    { "notes", cell[PLAN_RUN_NOTES] ? cell[PLAN_RUN_NOTES] : "" },
  };
#undef CELL
  cli_import_add (import, FALSE, cells, G_N_ELEMENTS (cells), row->line);
}

static void
take_run (PlanRunRow *row, const char *wrong, gpointer user_data)
{
  const Reader *self = user_data;
  if (!row)
    {
      g_ptr_array_add (self->import->wrong, g_strdup (wrong));
      return;
    }
  if (row->skipped)
    {
      cli_import_skip (self->import, row->skipped);
      return;
    }
  if (row->measured[PLAN_RUN_QUANTITY_TIME] <= 0 && row->ran_out == PLAN_ANSWER_UNKNOWN
      && row->measured[PLAN_RUN_QUANTITY_ALLOCATED] <= 0
      && row->measured[PLAN_RUN_QUANTITY_MAX_ALLOCATED] <= 0
      && row->measured[PLAN_RUN_QUANTITY_RESERVED] <= 0
      && row->measured[PLAN_RUN_QUANTITY_DEVICE] <= 0)
    {
      cli_import_skip (self->import, "nothing was measured");
      return;
    }
  const char *told = row->cell[PLAN_RUN_USE];
  const char *use = self->request->use ? self->request->use : told ? told : "fit";
  add_row (self->import, row, use, self->created);
}

static void
take_op (guint64 line, GPtrArray *cells, const char *broken, gpointer user_data)
{
  Reader *self = user_data;
  g_autoptr (GHashTable) by_name = g_hash_table_new (g_str_hash, g_str_equal);
  g_autofree char *count = NULL;
  g_autoptr (GError) why = NULL;
  if (!self->header && cells)
    {
      self->header = g_ptr_array_new_with_free_func (g_free);
      for (guint i = 0; i < cells->len; i++)
        g_ptr_array_add (self->header, g_strdup (cells->pdata[i] ? cells->pdata[i] : ""));
      return;
    }
  if (!broken && cells->len != self->header->len)
    broken = count = g_strdup_printf ("%u cells instead of %u", cells->len, self->header->len);
  for (guint i = 0; !broken && i < cells->len; i++)
    if (cells->pdata[i] && !g_utf8_validate (cells->pdata[i], -1, NULL))
      broken = "this is not UTF-8 text";
    else if (cells->pdata[i])
      g_hash_table_insert (by_name, self->header->pdata[i], cells->pdata[i]);
  if (!broken && !cli_import_take_op (self->import, by_name, line, &why))
    broken = why->message;
  if (broken)
    g_ptr_array_add (self->import->wrong, g_strdup_printf ("%s:%" G_GUINT64_FORMAT ": %s",
                                                           self->import->origin, line, broken));
}

typedef enum
{
  FILE_LOG,
  FILE_RUNS,
  FILE_OPS,
  FILE_EXPORT,
  FILE_STEPS,
} FileKind;

static gboolean
has_word (const char *header, const char *word)
{
  const gsize length = strlen (word);
  for (const char *at = strstr (header, word); at; at = strstr (at + 1, word))
    if ((at == header || strchr (",\"\xbf", at[-1])) && strchr (",\"\r\n", at[length]))
      return TRUE;
  return FALSE;
}

/* Whether a line is a header, names separated by commas. */
static gboolean
is_header (const char *line)
{
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_,\r";
  return strchr (line, ',') && strspn (line, letters) == strlen (line);
}

/* Finds the kind of a file from its first bytes. */
static FileKind
find_kind (const char *start, const char **out_name)
{
  g_autofree char *line = g_strndup (start, strcspn (start, "\n"));
  const char *first = start + strspn (start, " \t\r\n");
  *out_name = "runs";
  if (has_word (line, "row_id") && has_word (line, "stack") && has_word (line, "strategy"))
    return FILE_RUNS;
  *out_name = "collectives";
  if (has_word (line, "collective") && has_word (line, "busbw_gb_s"))
    return FILE_OPS;
  *out_name = "products";
  if (has_word (line, "layout")
      && (has_word (line, "achieved_tflops") || has_word (line, "tflops")))
    return FILE_OPS;
  *out_name = "steps";
  if (plan_step_log_is (start))
    return FILE_STEPS;
  *out_name = "export";
  if (*first == '{' || g_str_has_prefix (start, "-- fsdplan")
      || is_header (line)) /* the store says whether it knows these columns */
    return FILE_EXPORT;
  *out_name = "log";
  return FILE_LOG;
}

/* Draws progress on a terminal. */
static void
show_progress (const char *path, guint64 done, guint64 total)
{
  if (total > 16 * CHUNK_BYTES && cli_watch_is_due ())
    fprintf (stderr, "\r%5.1f %% of %s", 100.0 * (double)done / (double)total, path);
}

/* A file that is read piece by piece. */
typedef struct
{
  const char *path;
  FILE *file;
  guint64 done, total; /* `total` 0: unknown */
  char *buffer;        /* CHUNK_BYTES and a NUL */
} Stream;

static gsize
stream_read (Stream *self)
{
  const gsize length = fread (self->buffer, 1, CHUNK_BYTES, self->file);
  self->buffer[length] = '\0';
  self->done += length;
  show_progress (self->path, self->done, self->total);
  return length;
}

static gboolean
read_runs (Stream *stream, gsize length, Reader *reader, GError **error)
{
  g_autoptr (PlanRunTable) table = plan_run_table_new (reader->import->origin, take_run, reader);
  for (; length > 0; length = stream_read (stream))
    if (!plan_run_table_feed (table, stream->buffer, length, error))
      return FALSE;
  return plan_run_table_end (table, error);
}

static gboolean
read_ops (Stream *stream, gsize length, Reader *reader, GError **error)
{
  g_autoptr (PlanCsv) csv = plan_csv_new (take_op, reader);
  for (; length > 0; length = stream_read (stream))
    plan_csv_feed (csv, stream->buffer, length);
  plan_csv_end (csv);
  return TRUE;
}

static gboolean
read_log (Stream *stream, gsize length, Reader *reader, GError **error)
{
  g_autoptr (CliImportLog) log = cli_import_log_new (reader->import->origin);
  for (; length > 0; length = stream_read (stream))
    cli_import_log_feed (log, stream->buffer, length);
  return cli_import_log_end (log, reader->request, reader->import, error);
}

static gboolean
read_export (Stream *stream, gsize length, Reader *reader, GError **error)
{
  GString *text = g_string_new (NULL);
  for (; length > 0 && text->len < MAX_EXPORT_BYTES; length = stream_read (stream))
    g_string_append_len (text, stream->buffer, (gssize)length);
  const gboolean is_text = g_utf8_validate_len (text->str, text->len, NULL) && length == 0;
  reader->import->text = g_string_free (text, FALSE);
  if (!is_text)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: is not a text in UTF-8 of up to 1 GiB",
                 reader->import->origin);
  return is_text;
}

static gboolean
read_steps (Stream *stream, gsize length, Reader *reader, GError **error)
{
  if (!read_export (stream, length, reader, error))
    return FALSE;
  g_autofree char *text = g_steal_pointer (&reader->import->text);
  return cli_import_take_steps (reader->import, text, error);
}

static gboolean
read_stream (Stream *stream, const CliImportRequest *request, CliImport *import, GError **error)
{
  static gboolean (*const readers[]) (Stream *, gsize, Reader *, GError **) = {
    [FILE_LOG] = read_log,       [FILE_RUNS] = read_runs,   [FILE_OPS] = read_ops,
    [FILE_EXPORT] = read_export, [FILE_STEPS] = read_steps,
  };
  g_autofree char *created = cli_import_now ();
  Reader reader = { .import = import, .request = request, .created = created };
  const gsize length = stream_read (stream);
  const FileKind kind = find_kind (stream->buffer, &import->kind);
  const gboolean is_read = readers[kind](stream, length, &reader, error);
  g_clear_pointer (&reader.header, g_ptr_array_unref);
  if (stream->total > 16 * CHUNK_BYTES)
    cli_watch_erase ();
  if (is_read && ferror (stream->file))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", import->origin, g_strerror (errno));
      return FALSE;
    }
  return is_read;
}

static void
free_table (gpointer table)
{
  db_table_free (table);
}

static void
import_init (CliImport *self, const char *origin)
{
  *self = (CliImport){ .origin = g_strdup (origin) };
  self->tables = g_ptr_array_new_with_free_func (free_table);
  g_ptr_array_add (self->tables, db_table_new (DB_KIND_MEASUREMENTS));
  g_ptr_array_add (self->tables, db_table_new (DB_KIND_OPS));
  self->skipped = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  self->wrong = g_ptr_array_new_with_free_func (g_free);
}

gboolean
cli_import_read (const char *path, const CliImportRequest *request, CliImport *out_self,
                 GError **error)
{
  const gboolean is_stdin = strcmp (path, "-") == 0;
  g_auto (CliImport) self = { 0 };
  g_autofree char *buffer = g_malloc (CHUNK_BYTES + 1);
  Stream stream = { .path = path, .buffer = buffer };
  struct stat info;
  stream.file = is_stdin ? stdin : fopen (path, "r");
  if (!stream.file || fstat (fileno (stream.file), &info) != 0 || S_ISDIR (info.st_mode))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", path,
                   stream.file ? "is a directory, not a file" : g_strerror (errno));
      if (stream.file && !is_stdin)
        fclose (stream.file);
      return FALSE;
    }
  stream.total = S_ISREG (info.st_mode) ? (guint64)info.st_size : 0;
  import_init (&self, is_stdin ? "stdin" : path);
  const gboolean is_read = read_stream (&stream, request, &self, error);
  if (!is_stdin)
    fclose (stream.file);
  if (!is_read)
    return FALSE;
  *out_self = self;
  self = (CliImport){ 0 };
  return TRUE;
}
