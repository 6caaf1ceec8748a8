/* CliTable: rows of named columns, printed as a table, CSV or JSON with the same names. */
#pragma once
#include <glib.h>
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

/* First and last in a program: standard streams that are closed stay so; what was printed arrived,
 * or it is an error. */
void cli_output_begin (void);
gboolean cli_output_end (GError **error);

/* From here on standard error has what went wrong alone. */
void cli_output_quiet (void);

/* What was done holds, but the store does not have it: says "what: why", and the program ends with
 * CLI_NOT_KEPT where it would have ended well. */
void cli_output_not_kept (const char *what, const GError *why);
int cli_output_status (int status);

/* Why the program ends, on standard error; with --format=json among its words and no document on
 * standard output also there, as {"error": {"status": N, "message": "..."}}. */
void cli_output_fail (int argc, char **argv, const GError *failure, int status);

typedef enum
{
  CLI_FORMAT_TABLE,
  CLI_FORMAT_CSV,
  CLI_FORMAT_JSON,
} CliFormat;

/* "table", "csv" or "json"; NULL is a table. */
gboolean cli_format_parse (const char *text, CliFormat *out_format, GError **error);

typedef struct
{
  const char *name;
  gboolean is_number; /* right-aligned; bare in JSON, but for words among them */
} CliColumn;

typedef struct _CliTable CliTable;

CliTable *cli_table_new (const CliColumn *columns, guint n_columns);
void cli_table_free (CliTable *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (CliTable, cli_table_free)

/* Frees the columns with the table. */
void cli_table_own_columns (CliTable *self, CliColumn *columns);

/* Cells are added left to right; a row is complete once it has them all. NULL is an empty cell. */
void cli_table_add (CliTable *self, const char *text);
void cli_table_add_int (CliTable *self, gint64 value);
void cli_table_add_real (CliTable *self, double value, int decimals);

/* What is in it: NULL for an empty cell. */
const CliColumn *cli_table_columns (const CliTable *self, guint *out_n);
guint cli_table_n_rows (const CliTable *self);
const char *cli_table_cell (const CliTable *self, guint row, guint column);

/* To stdout, with a newline at the end. A table for people leaves empty columns out. */
void cli_table_print (const CliTable *self, CliFormat format);

/* A label of at most nine columns, then words, in lines of 80 columns. */
void cli_print_row (const char *label, const char *text);

/* Such rows, before they are printed. */
typedef struct
{
  char *label, *text;
} CliRow;

GArray *cli_rows_new (void); /* of CliRow, which it owns */
void cli_rows_add (GArray *self, const char *label, const char *format, ...) G_GNUC_PRINTF (3, 4);
void cli_rows_print (const GArray *self);

/* An array of objects. */
JsonNode *cli_table_to_json (const CliTable *self);

/* Any JSON, indented, to stdout; an object says the version of its schema. */
void cli_print_json (JsonNode *root);

/* Text to a file, by the rules of plan_text_write_file; "-" is stdout. */
gboolean cli_write (const char *path, const char *text, GError **error);

/* The text of a file, by the rules of plan_text_read_file, or of a pipe; "-" is stdin. */
gboolean cli_read (const char *path, char **out_text, GError **error);

G_END_DECLS
