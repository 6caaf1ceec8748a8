/* CliImport: a file of measurements, whatever wrote it, as rows for the store. */
#pragma once
#include "cli/io/options.h"
#include <glib.h>
G_BEGIN_DECLS

/* What the command line says about all files. */
typedef struct
{
  const CliOptions *options; /* the plan of logs that do not tell it; cluster, store */
  const char *source;        /* of rows that have none of their own; NULL: the file's name */
  const char *use;           /* "fit" or "report"; NULL: what a table says, else fit */
  const char *op;            /* of an nccl-tests output that does not tell it; NULL */
} CliImportRequest;

typedef struct
{
  char *origin;
  const char *kind;    /* "runs", "megatron", …; what it was found to be */
  GPtrArray *tables;   /* DbTable */
  char *text;          /* of an export, which the store reads itself; else NULL */
  guint n_rows;        /* for the store */
  GHashTable *skipped; /* char *, why a row is none for the store -> how many */
  GPtrArray *wrong;    /* char *, a line each that could not be read */
} CliImport;

void cli_import_clear (CliImport *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliImport, cli_import_clear)

/* "-" is stdin. Nothing that is known in it is an error. */
gboolean cli_import_read (const char *path, const CliImportRequest *request, CliImport *out_self,
                          GError **error);

/* A row of a table, cells by the names of their columns; of a file's line. */
void cli_import_add (CliImport *self, gboolean is_op, const char *const (*cells)[2], guint n_cells,
                     guint64 line);

/* One more that is none for the store. */
void cli_import_skip (CliImport *self, const char *reason);

/* "8 x h100-80gb, 1 node"; `device` NULL: not known; the caller frees. */
char *cli_import_machine (gint64 ranks, const char *device, gint64 nodes);

/* "2026-11-21T17:13:12Z"; the caller frees. */
char *cli_import_now (void);

/* The first 16 hex digits of the text's SHA-256; the caller frees. */
char *cli_import_hash (const char *text);

/* Logs: takes lines from pieces of text; at the end makes rows of what was in them. */
typedef struct _CliImportLog CliImportLog;

CliImportLog *cli_import_log_new (const char *origin);
void cli_import_log_free (CliImportLog *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (CliImportLog, cli_import_log_free)

void cli_import_log_feed (CliImportLog *self, const char *text, gsize length);
gboolean cli_import_log_end (CliImportLog *self, const CliImportRequest *request, CliImport *import,
                             GError **error);

/* A log of fsdplan run --log. */
gboolean cli_import_take_steps (CliImport *self, const char *text, GError **error);

/* Tables of collectives and of products: one row of cells by name. FALSE: it is wrong. */
gboolean cli_import_take_op (CliImport *self, GHashTable *cells, guint64 line, GError **error);

G_END_DECLS
