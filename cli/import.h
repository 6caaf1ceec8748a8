/* CliImport: a file of measurements from any tool, as rows for the store. */
#pragma once
#include "cli/io/options.h"
#include <glib.h>
G_BEGIN_DECLS

/* Options for all files. */
typedef struct
{
  const CliOptions *options; /* plan of logs that lack it; cluster and store */
  const char *source;        /* source of rows that name none; NULL: the file's name */
  const char *use;           /* "fit" or "report"; NULL: as the table says, else fit */
  const char *op;            /* collective of nccl-tests output that does not name it; or NULL */
} CliImportRequest;

typedef struct
{
  char *origin;
  const char *kind;    /* what the file was found to be: "runs", "megatron", … */
  GPtrArray *tables;   /* DbTable */
  char *text;          /* of an export, which the store reads itself; else NULL */
  guint n_rows;        /* rows for the store */
  GHashTable *skipped; /* char *, why rows are skipped -> how many */
  GPtrArray *wrong;    /* char *: a message for each line that could not be read */
} CliImport;

void cli_import_clear (CliImport *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliImport, cli_import_clear)

/* Reads a file; "-" is standard input. Fails if nothing in it is known. */
gboolean cli_import_read (const char *path, const CliImportRequest *request, CliImport *out_self,
                          GError **error);

/* Adds a row, as cells by column name, which came from line `line` of the file. */
void cli_import_add (CliImport *self, gboolean is_op, const char *const (*cells)[2], guint n_cells,
                     guint64 line);

/* Counts a row that cannot be stored, by the reason. */
void cli_import_skip (CliImport *self, const char *reason);

/* A machine as "8 x h100-80gb, 1 node"; `device` NULL: unknown. The caller frees. */
char *cli_import_machine (gint64 ranks, const char *device, gint64 nodes);

/* The current time as "2026-11-21T17:13:12Z"; the caller frees. */
char *cli_import_now (void);

/* The first 16 hex digits of the text's SHA-256; the caller frees. */
char *cli_import_hash (const char *text);

/* Reads a log in pieces of text; _end makes rows of what was found. */
typedef struct _CliImportLog CliImportLog;

CliImportLog *cli_import_log_new (const char *origin);
void cli_import_log_free (CliImportLog *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (CliImportLog, cli_import_log_free)

void cli_import_log_feed (CliImportLog *self, const char *text, gsize length);
gboolean cli_import_log_end (CliImportLog *self, const CliImportRequest *request, CliImport *import,
                             GError **error);

/* Reads a log of fsdplan run --log. */
gboolean cli_import_take_steps (CliImport *self, const char *text, GError **error);

/* Reads one row of a table of collectives or products, as cells by column name. FALSE: it is
 * faulty. */
gboolean cli_import_take_op (CliImport *self, GHashTable *cells, guint64 line, GError **error);

G_END_DECLS
