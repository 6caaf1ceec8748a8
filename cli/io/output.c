/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/output.h"

#include "cli/io/commands.h"
#include "cli/io/config.h"
#include "planner/base/error.h"
#include "planner/base/json.h"
#include "planner/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <libsmartcols.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct _CliTable
{
  const CliColumn *columns;
  CliColumn *own_columns; /* freed with the table; NULL: the caller's */
  guint n_columns;
  GPtrArray *cells; /* char *, row after row */
  GArray *colours;  /* CliColour of the first rows; others are plain */
};

/* Whether a JSON document was printed on standard output, which may hold only one. */
static gboolean has_document;

static gint64 began_us;
static gboolean is_verbose;

void
cli_output_begin (void)
{
  /* Opens streams that are closed, since the next file to be opened would take their place. They
   * are opened in the wrong direction, so that using one fails as it should. */
  static const int wrong_way[] = { O_WRONLY, O_RDONLY, O_RDONLY };
  began_us = g_get_monotonic_time ();
  for (int fd = 0; fd <= STDERR_FILENO; fd++)
    if (fcntl (fd, F_GETFD) == -1 && open ("/dev/null", wrong_way[fd]) != fd)
      return; /* /dev/null is missing, and nothing can be done */
}

gboolean
cli_output_end (GError **error)
{
  const gboolean had_error = ferror (stdout) != 0;
  const gboolean is_flushed = fflush (stdout) == 0;
  if (is_flushed && !had_error)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "standard output: %s",
               is_flushed ? "not all of it could be written" : g_strerror (errno));
  return FALSE;
}

static FILE *kept_error; /* with --quiet: a copy of standard error, for errors only */

void
cli_output_quiet (void)
{
  const int kept = fcntl (STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int nowhere = open ("/dev/null", O_WRONLY | O_CLOEXEC);
  if (kept >= 0 && nowhere >= 0 && (kept_error = fdopen (kept, "w")))
    {
      setvbuf (kept_error, NULL, _IONBF, 0);
      dup2 (nowhere, STDERR_FILENO);
    }
  else if (kept >= 0)
    close (kept);
  if (nowhere >= 0)
    close (nowhere);
}

#define LONGEST_WORD 256 /* longest word that is shown whole; no file name is longer */

/* The message on one line, with control characters escaped and long words cut; the caller frees. */
static char *
one_line (const char *message)
{
  GString *line = g_string_new (NULL);
  gsize word = 0; /* bytes of the current word */
  for (const char *c = message; *c; c++)
    {
      word = *c == ' ' ? 0 : word + 1;
      if (word > LONGEST_WORD)
        continue;
      if (word == LONGEST_WORD)
        g_string_append (line, "...");
      else if ((guchar)*c < ' ' || *c == 0x7f)
        g_string_append_printf (line, "\\x%02x", (guint)*c);
      else
        g_string_append_c (line, *c);
    }
  char *text = g_utf8_make_valid (line->str, (gssize)line->len);
  g_string_free (line, TRUE);
  return text;
}

void
cli_output_verbose (void)
{
  is_verbose = TRUE;
}

gboolean
cli_output_is_verbose (void)
{
  return is_verbose;
}

void
cli_tell (const char *format, ...)
{
  va_list args;
  if (!is_verbose)
    return;
  va_start (args, format);
  g_autofree char *text = g_strdup_vprintf (format, args);
  va_end (args);
  g_autofree char *line = one_line (text);
  fprintf (stderr, "fsdplan: %7.3f s: %s\n", 1e-6 * (double)(g_get_monotonic_time () - began_us),
           line);
}

static gboolean lacks_in_store; /* a result could not be stored, which the exit status says */

/* Prints what went wrong, after "fsdplan: ". */
static void
say (const char *text)
{
  FILE *const file = kept_error ? kept_error : stderr;
  const int fd = fileno (file);
  fprintf (file, "%sfsdplan:%s %s\n", cli_colour_begin (CLI_ERROR, fd), cli_colour_end (fd), text);
}

void
cli_output_not_kept (const char *what, const GError *why)
{
  g_autofree char *text = g_strdup_printf ("%s: %s", what, why->message);
  say (text);
  lacks_in_store = TRUE;
}

int
cli_output_status (int status)
{
  return status == CLI_DONE && lacks_in_store ? CLI_NOT_KEPT : status;
}

/* Whether the command line asks for JSON; used where an error came before the options were
 * parsed. */
static gboolean
asks_for_json (int argc, char **argv)
{
  for (int i = 1; i < argc; i++)
    if (strcmp (argv[i], "--format=json") == 0
        || (strcmp (argv[i], "--format") == 0 && g_strcmp0 (argv[i + 1], "json") == 0))
      return TRUE;
  return FALSE;
}

void
cli_output_fail (int argc, char **argv, const GError *failure, int status)
{
  g_autofree char *message = one_line (failure->message);
  cli_config_report ();
  say (message);
  if (has_document || !asks_for_json (argc, argv))
    return;
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  json_builder_set_member_name (builder, "error");
  json_builder_begin_object (builder);
  json_builder_set_member_name (builder, "status");
  json_builder_add_int_value (builder, status);
  json_builder_set_member_name (builder, "message");
  json_builder_add_string_value (builder, message);
  json_builder_end_object (builder);
  json_builder_end_object (builder);
  g_autoptr (JsonNode) root = json_builder_get_root (builder);
  cli_print_json (root);
  fflush (stdout);
}

gboolean
cli_format_parse (const char *text, CliFormat *out_format, GError **error)
{
  static const char *const names[] = { "table", "csv", "json" };
  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    if (strcmp (text ? text : "table", names[i]) == 0)
      {
        *out_format = i;
        return TRUE;
      }
  g_autofree char *shown = plan_text_quote (text);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--format: %s is not one of table, csv, json",
               shown);
  return FALSE;
}

CliTable *
cli_table_new (const CliColumn *columns, guint n_columns)
{
  CliTable *self = g_new0 (CliTable, 1);
  self->columns = columns;
  self->n_columns = n_columns;
  self->cells = g_ptr_array_new_with_free_func (g_free);
  self->colours = g_array_new (FALSE, TRUE, sizeof (CliColour));
  return self;
}

void
cli_table_own_columns (CliTable *self, CliColumn *columns)
{
  self->own_columns = columns;
}

void
cli_table_free (CliTable *self)
{
  if (!self)
    return;
  g_free (self->own_columns);
  g_ptr_array_unref (self->cells);
  g_array_unref (self->colours);
  g_free (self);
}

void
cli_table_add (CliTable *self, const char *text)
{
  g_ptr_array_add (self->cells, g_strdup (text));
}

void
cli_table_add_int (CliTable *self, gint64 value)
{
  g_ptr_array_add (self->cells, g_strdup_printf ("%" G_GINT64_FORMAT, value));
}

void
cli_table_add_real (CliTable *self, double value, int decimals)
{
  char format[16], text[G_ASCII_DTOSTR_BUF_SIZE];
  g_snprintf (format, sizeof format, "%%.%df", decimals);
  g_ptr_array_add (self->cells, g_strdup (g_ascii_formatd (text, sizeof text, format, value)));
}

void
cli_table_colour (CliTable *self, CliColour colour)
{
  const guint row = (self->cells->len - 1) / self->n_columns;
  g_array_set_size (self->colours, MAX (self->colours->len, row + 1));
  g_array_index (self->colours, CliColour, row) = colour;
}

const char *
cli_table_cell (const CliTable *self, guint row, guint column)
{
  return g_ptr_array_index (self->cells, row * self->n_columns + column);
}

const CliColumn *
cli_table_columns (const CliTable *self, guint *out_n)
{
  *out_n = self->n_columns;
  return self->columns;
}

guint
cli_table_n_rows (const CliTable *self)
{
  return self->cells->len / self->n_columns;
}

/* Prints a cell by RFC 4180. A missing cell is empty, an empty text is quoted. */
static void
print_csv_cell (const char *text)
{
  if (text && (!*text || strpbrk (text, ",\"\r\n")))
    {
      putchar ('"');
      for (; *text; text++)
        printf (*text == '"' ? "\"\"" : "%c", *text);
      putchar ('"');
    }
  else if (text)
    fputs (text, stdout);
}

/* Prints CSV. On a terminal control characters are escaped, because a terminal would act on
 * them. */
static void
print_csv (const CliTable *self)
{
  const gboolean is_seen = isatty (STDOUT_FILENO);
  for (guint c = 0; c < self->n_columns; c++)
    printf ("%s%s", c ? "," : "", self->columns[c].name);
  putchar ('\n');
  for (guint r = 0; r < cli_table_n_rows (self); r++)
    for (guint c = 0; c < self->n_columns; c++)
      {
        if (c)
          putchar (',');
        const char *text = cli_table_cell (self, r, c);
        g_autofree char *shown = is_seen && text ? plan_text_lines (text) : NULL;
        print_csv_cell (shown ? shown : text);
        if (c == self->n_columns - 1)
          putchar ('\n');
      }
}

/* Breaks a text between words into lines of at most `width` columns, where possible. The caller
 * frees. */
static char *
break_lines (const char *text, gsize width)
{
  g_auto (GStrv) words = g_strsplit (text, " ", -1);
  GString *lines = g_string_new (NULL);
  gsize column = 0;
  for (char **word = words; *word; word++)
    {
      const gsize length = (gsize)g_utf8_strlen (*word, -1);
      const gboolean is_over = column > 0 && column + 1 + length > width;
      if (word != words)
        g_string_append_c (lines, is_over ? '\n' : ' ');
      g_string_append (lines, *word);
      column = is_over || word == words ? length : column + 1 + length;
    }
  return g_string_free (lines, FALSE);
}

/* The width left for the table's last column on a terminal; unlimited without a terminal, or where
 * too little is left. */
static gsize
last_width (const CliTable *self, struct libscols_table *table)
{
  const gsize terminal = scols_table_get_termwidth (table), least = 20;
  gsize others = 0;
  if (!isatty (STDOUT_FILENO) || terminal == 0)
    return G_MAXSIZE;
  for (guint c = 0; c + 1 < self->n_columns; c++)
    {
      gsize widest = strlen (self->columns[c].name);
      for (guint r = 0; r < cli_table_n_rows (self); r++)
        if (cli_table_cell (self, r, c))
          widest = MAX (widest, (gsize)g_utf8_strlen (cli_table_cell (self, r, c), -1));
      others += widest + 1;
    }
  return terminal > others + least ? terminal - others : G_MAXSIZE;
}

/* Sets the colour of a row, and of a cell that says that a plan does not fit. */
static void
colour_row (const CliTable *self, guint r, struct libscols_line *line)
{
  const CliColour colour
      = r < self->colours->len ? g_array_index (self->colours, CliColour, r) : CLI_PLAIN;
  if (colour != CLI_PLAIN)
    scols_line_set_color (line, cli_colour_begin (colour, STDOUT_FILENO));
  for (guint c = 0; c < self->n_columns; c++)
    if (g_str_equal (self->columns[c].name, "fits")
        && g_strcmp0 (cli_table_cell (self, r, c), "no") == 0)
      scols_cell_set_color (scols_line_get_cell (line, c),
                            cli_colour_begin (CLI_ERROR, STDOUT_FILENO));
}

static gboolean
is_empty_column (const CliTable *self, guint column)
{
  for (guint r = 0; r < cli_table_n_rows (self); r++)
    {
      const char *text = cli_table_cell (self, r, column);
      if (text && *text)
        return FALSE;
    }
  return cli_table_n_rows (self) > 0;
}

/* A copy with only the columns that have text in some row, for people to read. CSV and JSON keep
 * every column. */
static CliTable *
without_empty_columns (const CliTable *self)
{
  CliColumn *columns = g_new0 (CliColumn, self->n_columns);
  g_autofree guint *kept = g_new0 (guint, self->n_columns);
  guint n = 0;
  for (guint c = 0; c < self->n_columns; c++)
    if (!is_empty_column (self, c))
      {
        columns[n] = self->columns[c];
        kept[n++] = c;
      }
  CliTable *table = cli_table_new (columns, n);
  cli_table_own_columns (table, columns);
  for (guint r = 0; r < cli_table_n_rows (self); r++)
    for (guint i = 0; i < n; i++)
      cli_table_add (table, cli_table_cell (self, r, kept[i]));
  g_array_append_vals (table->colours, self->colours->data, self->colours->len);
  return table;
}

static void
print_table (const CliTable *all)
{
  g_autoptr (CliTable) self = without_empty_columns (all);
  if (self->n_columns == 0)
    return;
  struct libscols_table *table = scols_new_table ();
  const guint last = self->n_columns - 1;
  const gsize width = last_width (self, table);
  const gboolean has_colour = cli_colour_is_on (STDOUT_FILENO);
  scols_table_enable_colors (table, has_colour);
  for (guint c = 0; c < self->n_columns; c++)
    {
      const gboolean is_broken = c == last && width < G_MAXSIZE;
      struct libscols_column *column
          = scols_table_new_column (table, self->columns[c].name, 0,
                                    self->columns[c].is_number ? SCOLS_FL_RIGHT
                                    : is_broken                ? SCOLS_FL_WRAP
                                                               : 0);
      if (!is_broken)
        continue;
      scols_column_set_safechars (column, "\n");
      scols_column_set_wrapfunc (column, scols_wrapnl_chunksize, scols_wrapnl_nextchunk, NULL);
    }
  for (guint r = 0; r < cli_table_n_rows (self); r++)
    {
      struct libscols_line *line = scols_table_new_line (table, NULL);
      for (guint c = 0; c < last; c++)
        scols_line_set_data (line, c,
                             cli_table_cell (self, r, c) ? cli_table_cell (self, r, c) : "");
      g_autofree char *text = break_lines (
          cli_table_cell (self, r, last) ? cli_table_cell (self, r, last) : "", width);
      scols_line_set_data (line, last, text);
      if (has_colour)
        colour_row (self, r, line);
    }
  scols_print_table (table);
  scols_unref_table (table);
}

/* Adds a number without quotes if it is finite; columns of numbers may also hold words, which are
 * strings. */
static void
add_json_number (JsonBuilder *builder, const char *text)
{
  char *end;
  const gint64 whole = g_ascii_strtoll (text, &end, 10);
  const gboolean is_whole = *text && !*end;
  const double real = g_ascii_strtod (text, &end);
  if (is_whole)
    json_builder_add_int_value (builder, whole);
  else if (*text && !*end && isfinite (real))
    json_builder_add_double_value (builder, real);
  else
    json_builder_add_string_value (builder, text);
}

JsonNode *
cli_table_to_json (const CliTable *self)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_array (builder);
  for (guint r = 0; r < cli_table_n_rows (self); r++)
    {
      json_builder_begin_object (builder);
      for (guint c = 0; c < self->n_columns; c++)
        {
          const char *text = cli_table_cell (self, r, c);
          json_builder_set_member_name (builder, self->columns[c].name);
          if (!text)
            json_builder_add_null_value (builder);
          else if (!self->columns[c].is_number)
            json_builder_add_string_value (builder, text);
          else
            add_json_number (builder, text);
        }
      json_builder_end_object (builder);
    }
  json_builder_end_array (builder);
  return json_builder_get_root (builder);
}

void
cli_print_json (JsonNode *root)
{
  if (JSON_NODE_HOLDS_OBJECT (root))
    json_object_set_int_member (json_node_get_object (root), PLAN_JSON_VERSION_NAME,
                                PLAN_JSON_VERSION);
  g_autoptr (JsonGenerator) generator = json_generator_new ();
  json_generator_set_root (generator, root);
  json_generator_set_pretty (generator, TRUE);
  json_generator_set_indent (generator, 2);
  g_autofree char *text = json_generator_to_data (generator, NULL);
  puts (text);
  has_document = TRUE;
}

void
cli_table_print (const CliTable *self, CliFormat format)
{
  if (format == CLI_FORMAT_CSV)
    print_csv (self);
  else if (format == CLI_FORMAT_TABLE)
    print_table (self);
  else
    {
      g_autoptr (JsonNode) root = cli_table_to_json (self);
      cli_print_json (root);
    }
}

#define ROW_WIDTH 80
#define ROW_INDENT 10

void
cli_print_row (const char *label, const char *text)
{
  g_auto (GStrv) words = g_strsplit (text, " ", -1);
  int column = ROW_INDENT;
  const gboolean is_note = g_str_equal (label, "note");
  printf ("%s%-*s%s", is_note ? cli_colour_begin (CLI_NOTE, STDOUT_FILENO) : "", ROW_INDENT, label,
          is_note ? cli_colour_end (STDOUT_FILENO) : "");
  for (char **word = words; *word; word++)
    {
      const int length = (int)g_utf8_strlen (*word, -1);
      const gboolean is_first = column == ROW_INDENT;
      const gboolean is_over = !is_first && column + 1 + length > ROW_WIDTH;
      if (is_over)
        printf ("\n%*s", ROW_INDENT, "");
      else if (!is_first)
        putchar (' ');
      fputs (*word, stdout);
      column = (is_over ? ROW_INDENT : column + !is_first) + length;
    }
  putchar ('\n');
}

static void
clear_row (gpointer data)
{
  CliRow *self = data;
  g_free (self->label);
  g_free (self->text);
}

GArray *
cli_rows_new (void)
{
  GArray *self = g_array_new (FALSE, FALSE, sizeof (CliRow));
  g_array_set_clear_func (self, clear_row);
  return self;
}

void
cli_rows_add (GArray *self, const char *label, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  const CliRow row = { g_strdup (label), g_strdup_vprintf (format, args) };
  va_end (args);
  g_array_append_val (self, row);
}

void
cli_rows_print (const GArray *self)
{
  for (guint i = 0; i < self->len; i++)
    {
      const CliRow *row = &g_array_index (self, CliRow, i);
      cli_print_row (row->label, row->text);
    }
}

/* Whether a path is standard output, such as /dev/stdout: it must not be truncated. */
static gboolean
is_standard_output (const char *path)
{
  struct stat here, there;
  return stat (path, &there) == 0 && fstat (STDOUT_FILENO, &here) == 0
         && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

gboolean
cli_write (const char *path, const char *text, GError **error)
{
  if (strcmp (path, "-") != 0 && !is_standard_output (path))
    {
      cli_tell ("write %s", path);
      return plan_text_write_file (path, text, strlen (text), error);
    }
  fputs (text, stdout);
  return TRUE;
}

/* Reads a stream of unknown size to its end: standard input or a pipe such as <(...). */
static gboolean
read_stream (FILE *file, const char *name, char **out_text, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL);
  char chunk[65536];
  for (gsize n; text->len <= PLAN_TEXT_MAX_BYTES && (n = fread (chunk, 1, sizeof chunk, file)) > 0;)
    g_string_append_len (text, chunk, (gssize)n);
  if (ferror (file))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", name, g_strerror (errno));
      return FALSE;
    }
  if (!plan_text_check (text->str, text->len, name, error))
    return FALSE;
  *out_text = g_string_free (g_steal_pointer (&text), FALSE);
  return TRUE;
}

gboolean
cli_read (const char *path, char **out_text, GError **error)
{
  gsize length;
  GStatBuf info;
  cli_tell ("read %s", strcmp (path, "-") == 0 ? "standard input" : path);
  if (strcmp (path, "-") == 0)
    return read_stream (stdin, "standard input", out_text, error);
  if (g_stat (path, &info) != 0 || !S_ISFIFO (info.st_mode))
    return plan_text_read_file (path, out_text, &length, error);
  FILE *const file = fopen (path, "r");
  if (!file)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", path, g_strerror (errno));
      return FALSE;
    }
  const gboolean ok = read_stream (file, path, out_text, error);
  fclose (file);
  return ok;
}
