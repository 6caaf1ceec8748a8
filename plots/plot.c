/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plots/plot-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>

static const char style[] =
#include "plots/style.gp.inc"
    ;

#define DATA_FILE "figure.dat"
#define SCRIPT_FILE "figure.gp"
#define OUT_FILE "figure.out"

/* The longest line of a title in a picture, in characters, and of the list below it. */
#define TITLE_WIDTH 100
#define LIST_WIDTH 175

/* The height of a line of that list, in points. */
#define LIST_LINE 14.0

/* The height of a title above several plots, in parts of the picture: its margin, and each line. */
#define TITLE_MARGIN 0.055
#define TITLE_LINE 0.027

/* Text output is as wide as the terminal, within limits. */
#define DEFAULT_COLUMNS 100
#define MIN_COLUMNS 60
#define MAX_COLUMNS 240
#define DEFAULT_LINES 32

void
plot_append_ms (GString *text, gint64 ns)
{
  guint64 size = ns < 0 ? -(guint64)ns : (guint64)ns;

  g_string_append_printf (text, "%s%" G_GUINT64_FORMAT ".%06" G_GUINT64_FORMAT, ns < 0 ? "-" : "",
                          size / 1000000, size % 1000000);
}

void
plot_append_real (GString *text, double value, int decimals)
{
  char format[8],
      number[G_ASCII_DTOSTR_BUF_SIZE + 320]; /* the longest that %f prints of a double */

  g_snprintf (format, sizeof format, "%%.%df", CLAMP (decimals, 0, 9));
  g_string_append (text, g_ascii_formatd (number, sizeof number, format, value));
}

void
plot_append_quoted (GString *text, const char *string)
{
  g_string_append_c (text, '"');
  for (const char *c = string; *c; c++)
    if (*c == '\n')
      g_string_append (text, "\\n");
    else
      g_string_append_c (text, *c == '"'              ? '\''
                               : *c == '\\'           ? '/'
                               : g_ascii_iscntrl (*c) ? ' '
                                                      : *c);
  g_string_append_c (text, '"');
}

void
plot_begin_block (GString *data, const char *name, const char *columns)
{
  g_string_append_printf (data, "%s# %s\n# %s\n", data->len > 0 ? "\n\n" : "", columns, name);
}

typedef struct
{
  const char *name;
  double size, least; /* used from `least` on */
} Unit;

/* The first that is not too large, else the last. */
static const char *
find_unit (const Unit *units, guint n_units, double value, double *out_size)
{
  guint i = 0;

  while (i + 1 < n_units && value < units[i].least)
    i++;
  *out_size = units[i].size;
  return units[i].name;
}

const char *
plot_memory_unit (double bytes, double *out_bytes)
{
  static const Unit units[] = {
    { "GiB", 0x1p30, 0x1p30 }, { "MiB", 0x1p20, 0x1p20 }, { "KiB", 0x1p10, 0x1p10 }, { "B", 1, 1 }
  };

  return find_unit (units, G_N_ELEMENTS (units), bytes, out_bytes);
}

const char *
plot_time_unit (double ns, double *out_ns)
{
  static const Unit units[]
      = { { "s", 1e9, 1e10 }, { "ms", 1e6, 1e6 }, { "us", 1e3, 1e3 }, { "ns", 1, 1 } };

  return find_unit (units, G_N_ELEMENTS (units), ns, out_ns);
}

char *
plot_far_below (guint64 capacity_bytes)
{
  g_autofree char *size = plan_units_format_size (capacity_bytes);

  return g_strdup_printf ("far below the capacity of %s", size);
}

static guint
text_columns (void)
{
  const char *columns = g_getenv ("COLUMNS");
  guint64 value;

  if (!columns || !g_ascii_string_to_unsigned (columns, 10, 1, G_MAXUINT, &value, NULL))
    return DEFAULT_COLUMNS;
  return (guint)CLAMP (value, MIN_COLUMNS, MAX_COLUMNS);
}

static gboolean
find_format (const char *path, PlotFormat *out_format, GError **error)
{
  static const struct
  {
    const char *extension;
    PlotFormat format;
  } formats[] = {
    { ".txt", PLOT_TEXT },
    { ".svg", PLOT_SVG },
    { ".png", PLOT_PNG },
    { ".pdf", PLOT_PDF },
  };

  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    if (!path || g_str_has_suffix (path, formats[i].extension))
      {
        *out_format = formats[i].format; /* the first, text, where there is no file */
        return TRUE;
      }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: the name of a picture ends in .svg, .png, .pdf or .txt", path);
  return FALSE;
}

gboolean
plot_figure_init (PlotFigure *self, const char *path, const char *script, GError **error)
{
  PlotFormat format;

  if (!find_format (path, &format, error))
    return FALSE;
  *self = (PlotFigure){
    .path = path,
    .format = format,
    .columns = text_columns (),
    .lines = DEFAULT_LINES,
    .script = script,
    .settings = g_string_new (NULL),
    .footer = g_string_new (NULL),
  };
  return TRUE;
}

void
plot_figure_clear (PlotFigure *self)
{
  g_clear_pointer (&self->data, g_free);
  g_clear_pointer (&self->title, g_free);
  if (self->settings)
    g_string_free (self->settings, TRUE);
  if (self->footer)
    g_string_free (self->footer, TRUE);
  self->settings = self->footer = NULL;
}

void
plot_figure_set_real (PlotFigure *self, const char *name, double value)
{
  g_string_append_printf (self->settings, "%s = ", name);
  plot_append_real (self->settings, value, 9);
  g_string_append_c (self->settings, '\n');
}

/* Within single quotes gnuplot runs no commands. Its one escape there, the doubled quote, it does
 * not know at the beginning, and where it looks for macros (@name), a bare one counts between
 * double quotes, too. So quotes and line ends stand between the parts, as escapes. */
void
plot_figure_set_text (PlotFigure *self, const char *name, const char *value)
{
  g_string_append_printf (self->settings, "%s = '", name);
  for (const char *c = value; *c; c++)
    if (*c == '\'')
      g_string_append (self->settings, "'.\"\\047\".'");
    else if (*c == '\n')
      g_string_append (self->settings, "'.\"\\n\".'");
    else
      g_string_append_c (self->settings, g_ascii_iscntrl (*c) ? ' ' : *c);
  g_string_append (self->settings, "'\n");
}

/* Breaks lines at spaces so that none is longer than `width`, where a space allows it. */
static void
append_wrapped (GString *text, const char *string, gsize width)
{
  gsize line = 0; /* characters since the last break */
  gssize space = -1;

  for (const char *c = string; *c; c = g_utf8_next_char (c))
    {
      if (*c == ' ')
        space = (gssize)text->len;
      g_string_append_len (text, c, g_utf8_next_char (c) - c);
      if (*c == '\n')
        {
          line = 0;
          space = -1;
        }
      else if (++line > width && space >= 0)
        {
          text->str[space] = '\n';
          line = (gsize)g_utf8_strlen (text->str + space + 1, -1);
          space = -1;
        }
    }
}

static guint
n_lines (const char *text)
{
  guint n = *text != '\0';

  for (; *text; text++)
    n += *text == '\n';
  return n;
}

void
plot_figure_set_title (PlotFigure *self, const char *title, const char *note)
{
  gsize width = self->format == PLOT_TEXT ? self->columns - 4 : TITLE_WIDTH;
  g_autofree char *valid = g_utf8_make_valid (title ? title : "", -1);
  g_autoptr (GString) text = g_string_new (NULL);

  append_wrapped (text, valid, width);
  if (note)
    {
      if (text->len > 0)
        g_string_append_c (text, '\n');
      append_wrapped (text, note, width);
    }
  g_free (self->title);
  self->title = g_string_free (g_steal_pointer (&text), FALSE);
  self->title_lines = n_lines (self->title);
  plot_figure_set_text (self, "figure_title", self->title);
  plot_figure_set_real (self, "title_lines", self->title_lines);
  plot_figure_set_real (self, "title_top", 1 - (TITLE_MARGIN + TITLE_LINE * self->title_lines));
}

/* The footer as a list below a picture. Returns what it adds to the picture's height, in points. */
static double
append_list (GString *script, const PlotFigure *self)
{
  const char *font = self->format == PLOT_SVG ? ",10" : ",7";
  g_autoptr (GString) text = g_string_new (NULL);
  PlotFigure labels = { .settings = g_string_new (NULL) };

  append_wrapped (text, self->footer->str, LIST_WIDTH);
  g_auto (GStrv) lines = g_strsplit (g_strchomp (text->str), "\n", -1);
  const guint n = g_strv_length (lines);
  const double height = *text->str ? LIST_LINE * (n + 1) : 0;
  for (guint i = 0; height > 0 && i < n; i++)
    {
      plot_figure_set_text (&labels, "list_line", lines[i]);
      g_string_append_printf (labels.settings,
                              "set label %u list_line font '%s' at screen 0.02, screen ", 100 + i,
                              font);
      plot_append_real (labels.settings, LIST_LINE * (n - i) / (PLOT_HEIGHT + height), 6);
      g_string_append_c (labels.settings, '\n');
    }
  g_string_append (script, "shrink = ");
  plot_append_real (script, PLOT_HEIGHT / (PLOT_HEIGHT + height), 9);
  g_string_append_printf (script, "\nup (y) = 1 - (1 - y) * shrink\n%s", labels.settings->str);
  g_string_free (labels.settings, TRUE);
  return height;
}

static char *
make_script (const PlotFigure *self)
{
  GString *script = g_string_new ("data = '" DATA_FILE "'\n");
  const double height = PLOT_HEIGHT + (self->format == PLOT_TEXT ? 0 : append_list (script, self));

  g_string_append_printf (script, "text = %d\n", self->format == PLOT_TEXT);
  switch (self->format)
    {
    case PLOT_TEXT:
      g_string_append_printf (script, "set terminal dumb nofeed noenhanced size %u,%u\n",
                              self->columns, self->lines);
      break;
    case PLOT_SVG:
      g_string_append_printf (script,
                              "set terminal svg noenhanced size %d,%.0f background '#ffffff'"
                              " font 'Helvetica,Arial,sans-serif,12'\n",
                              PLOT_WIDTH, height);
      break;
    case PLOT_PNG:
      g_string_append_printf (script,
                              "set terminal pngcairo noenhanced size %d,%.0f fontscale 2"
                              " linewidth 2 pointscale 2 font 'Sans,9'\n",
                              2 * PLOT_WIDTH, 2 * height);
      break;
    case PLOT_PDF:
      g_string_append_printf (script,
                              "set terminal pdfcairo noenhanced size %gin,%gin"
                              " font 'Sans,9' fontscale 0.75 linewidth 1.5\n",
                              PLOT_WIDTH / 96.0, height / 96.0);
      break;
    }
  g_string_append (script, "set output '" OUT_FILE "'\n");
  g_string_append (script, self->settings->str);
  g_string_append (script, style);
  g_string_append (script, self->script);
  return g_string_free (script, FALSE);
}

/* A private folder in which gnuplot works; it goes when it is cleared. */
typedef struct
{
  char *path;
} Scratch;

static void
scratch_clear (Scratch *self)
{
  static const char *const files[] = { DATA_FILE, SCRIPT_FILE, OUT_FILE };

  for (guint i = 0; self->path && i < G_N_ELEMENTS (files); i++)
    {
      g_autofree char *file = g_build_filename (self->path, files[i], NULL);

      g_remove (file);
    }
  if (self->path)
    g_rmdir (self->path);
  g_clear_pointer (&self->path, g_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Scratch, scratch_clear)

/* Takes what GLib said about a file into our domain; always FALSE. */
static gboolean
io_error (GError **error, GError *cause)
{
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "cannot draw: %s", cause->message);
  g_error_free (cause);
  return FALSE;
}

static gboolean
write_file (const Scratch *scratch, const char *name, const char *contents, GError **error)
{
  g_autofree char *file = g_build_filename (scratch->path, name, NULL);
  GError *cause = NULL;

  return g_file_set_contents (file, contents, -1, &cause) || io_error (error, cause);
}

static gboolean
run_gnuplot (const Scratch *scratch, GError **error)
{
  char *argv[] = { (char *)"gnuplot", (char *)"--default-settings", (char *)SCRIPT_FILE, NULL };
  g_auto (GStrv) environment = g_environ_setenv (g_get_environ (), "LC_ALL", "C.UTF-8", TRUE);
  g_autoptr (GError) cause = NULL;
  g_autofree char *complaint = NULL;
  int status;

  if (!g_spawn_sync (scratch->path, argv, environment,
                     G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, &complaint,
                     &status, &cause))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "cannot draw: gnuplot is needed and does not start: %s", cause->message);
      return FALSE;
    }
  if (g_spawn_check_wait_status (status, &cause))
    return TRUE;

  g_strstrip (g_strdelimit (complaint, "\n", ' '));
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "cannot draw: gnuplot: %s",
               *complaint ? complaint : cause->message);
  return FALSE;
}

/* The dumb terminal fills every line up; nobody wants those spaces, nor empty first lines. */
static char *
tidy_text (const char *drawn, const char *footer)
{
  g_auto (GStrv) lines = g_strsplit (drawn, "\n", -1);
  GString *text = g_string_new (NULL);

  for (char **line = lines; *line; line++)
    {
      g_strchomp (*line);
      if (text->len > 0 || **line)
        g_string_append_printf (text, "%s\n", *line);
    }
  while (g_str_has_suffix (text->str, "\n\n"))
    g_string_truncate (text, text->len - 1);
  if (*footer)
    g_string_append_printf (text, "\n%s", footer);
  return g_string_free (text, FALSE);
}

/* Gives the result to the caller, or to the file: whole, or not at all. */
static gboolean
deliver (const PlotFigure *self, const char *result, gsize length, char **out_text, GError **error)
{
  if (self->path && !plan_text_write_file (self->path, result, length, error))
    return FALSE;
  if (out_text)
    *out_text = self->path ? NULL : g_strdup (result);
  return TRUE;
}

static gboolean
deliver_drawn (const PlotFigure *self, const Scratch *scratch, char **out_text, GError **error)
{
  g_autofree char *file = g_build_filename (scratch->path, OUT_FILE, NULL);
  g_autofree char *drawn = NULL;
  g_autofree char *text = NULL;
  gsize length = 0;

  if (!g_file_get_contents (file, &drawn, &length, NULL) || length == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "cannot draw: gnuplot wrote nothing");
      return FALSE;
    }
  if (self->format != PLOT_TEXT)
    return deliver (self, drawn, length, out_text, error);
  text = tidy_text (drawn, self->footer->str);
  return deliver (self, text, strlen (text), out_text, error);
}

gboolean
plot_figure_write (PlotFigure *self, const char *body, char **out_text, GError **error)
{
  g_autofree char *whole
      = g_strconcat (self->title, *self->title ? "\n\n" : "", body, self->footer->str, NULL);

  return deliver (self, whole, strlen (whole), out_text, error);
}

gboolean
plot_figure_draw (PlotFigure *self, char **out_text, GError **error)
{
  g_auto (Scratch) scratch = { NULL };
  g_autofree char *script = make_script (self);
  GError *cause = NULL;

  scratch.path = g_dir_make_tmp ("fsdplan-plot-XXXXXX", &cause);
  if (!scratch.path)
    return io_error (error, cause);
  return write_file (&scratch, DATA_FILE, self->data, error)
         && write_file (&scratch, SCRIPT_FILE, script, error) && run_gnuplot (&scratch, error)
         && deliver_drawn (self, &scratch, out_text, error);
}
