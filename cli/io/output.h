/* CliTable: rows of named columns, printed as a table, CSV or JSON with the same names. */
#pragma once
#include "cli/io/colour.h"
#include <glib.h>
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

/* Called first and last in a program. The first keeps closed standard streams closed; the last
 * fails if output could not be written. */
void cli_output_begin (void);
gboolean cli_output_end (GError **error);

/* From now on standard error shows errors only; or also what cli_tell says. */
void cli_output_quiet (void);
void cli_output_verbose (void);
gboolean cli_output_is_verbose (void);

/* What was read or done, on standard error behind the seconds since the program began: nothing
 * unless it is verbose. */
void cli_tell (const char *format, ...) G_GNUC_PRINTF (1, 2);

/* Reports "what: why" for a result that could not be stored; cli_output_status then turns success
 * into CLI_NOT_KEPT. */
void cli_output_not_kept (const char *what, const GError *why);
int cli_output_status (int status);

/* Prints why the program ends on standard error. With --format=json on the command line, and no
 * document on standard output yet, also prints {"error": {"status": N, "message": "..."}} there. */
void cli_output_fail (int argc, char **argv, const GError *failure, int status);

typedef enum
{
  CLI_FORMAT_TABLE,
  CLI_FORMAT_CSV,
  CLI_FORMAT_JSON,
} CliFormat;

/* Parses "table", "csv" or "json"; NULL is a table. */
gboolean cli_format_parse (const char *text, CliFormat *out_format, GError **error);

typedef struct
{
  const char *name;
  gboolean is_number; /* right-aligned; not quoted in JSON, except words among the numbers */
} CliColumn;

typedef struct _CliTable CliTable;

CliTable *cli_table_new (const CliColumn *columns, guint n_columns);
void cli_table_free (CliTable *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (CliTable, cli_table_free)

/* Makes the table own its columns and free them. */
void cli_table_own_columns (CliTable *self, CliColumn *columns);

/* Cells are added from left to right; NULL is an empty cell. A row is complete when it has them
 * all. */
void cli_table_add (CliTable *self, const char *text);
void cli_table_add_int (CliTable *self, gint64 value);
void cli_table_add_real (CliTable *self, double value, int decimals);

/* Colours the last row on a terminal. "no" in a column named "fits" has the colour of errors by
 * itself. */
void cli_table_colour (CliTable *self, CliColour colour);

/* The table's content; NULL for an empty cell. */
const CliColumn *cli_table_columns (const CliTable *self, guint *out_n);
guint cli_table_n_rows (const CliTable *self);
const char *cli_table_cell (const CliTable *self, guint row, guint column);

/* Prints the table on standard output, with a newline at its end. A table for people leaves empty
 * columns out. */
void cli_table_print (const CliTable *self, CliFormat format);

/* Prints a label of at most nine columns and a text, in lines of 80 columns. A label "note" has the
 * colour of notes. */
void cli_print_row (const char *label, const char *text);

/* A row for cli_print_row that is printed later. */
typedef struct
{
  char *label, *text;
} CliRow;

GArray *cli_rows_new (void); /* of CliRow, whose texts it frees */
void cli_rows_add (GArray *self, const char *label, const char *format, ...) G_GNUC_PRINTF (3, 4);
void cli_rows_print (const GArray *self);

/* The rows as a JSON array of objects. */
JsonNode *cli_table_to_json (const CliTable *self);

/* Prints JSON, indented, on standard output; adds the schema's version to an object. */
void cli_print_json (JsonNode *root);

/* Writes a text to a file as plan_text_write_file does; "-" is standard output. */
gboolean cli_write (const char *path, const char *text, GError **error);

/* Reads a file as plan_text_read_file does, or a pipe; "-" is standard input. */
gboolean cli_read (const char *path, char **out_text, GError **error);

G_END_DECLS
