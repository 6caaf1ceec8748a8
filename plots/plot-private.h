/* PlotFigure: everything that a figure hands to gnuplot.
 *
 * A figure's .c file fills one in and calls plot_figure_draw. Its .gp file finds the data file in
 * `data` and the values set here in variables, and draws. */
#pragma once
#include "plots/plot.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLOT_TEXT, /* characters, for a terminal */
  PLOT_SVG,
  PLOT_PNG,
  PLOT_PDF,
} PlotFormat;

/* Size of a picture in points; a PNG has two pixels per point. */
#define PLOT_WIDTH 960
#define PLOT_HEIGHT 540

typedef struct
{
  const char *path; /* NULL: the figure is returned as text */
  PlotFormat format;
  guint columns, lines; /* of text output; `lines` may be changed before drawing */
  const char *script;   /* the figure's .gp */
  char *data;           /* the data file */
  GString *settings;    /* gnuplot commands that are run before the script */
  GString *footer;      /* printed below text output; small, below a picture */
  char *title;          /* title lines, with the note */
  guint title_lines;
} PlotFigure;

/* Initialises a figure for the format of `path`; INVALID for an unknown extension. */
gboolean plot_figure_init (PlotFigure *self, const char *path, const char *script, GError **error);
void plot_figure_clear (PlotFigure *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlotFigure, plot_figure_clear)

/* Sets the title, and a note on what a reader must know about this figure (or NULL). If the title
 * is above several plots, these end at the variable `title_top`. */
void plot_figure_set_title (PlotFigure *self, const char *title, const char *note);

/* Sets a gnuplot variable. */
void plot_figure_set_real (PlotFigure *self, const char *name, double value);
void plot_figure_set_text (PlotFigure *self, const char *name, const char *value);

/* Draws to a temporary place, then moves the result to `path`. Without a path *out_text is the
 * figure as text; otherwise it is NULL. */
gboolean plot_figure_draw (PlotFigure *self, char **out_text, GError **error);

/* Writes text output that needs no gnuplot: the title, `body` and the footer. */
gboolean plot_figure_write (PlotFigure *self, const char *body, char **out_text, GError **error);

/* Begins a block of the data file with its name, and above that a comment on its columns, since
 * gnuplot takes the last comment for the name. A block must not be empty. */
void plot_begin_block (GString *data, const char *name, const char *columns);

/* The unit in which such a quantity is usually read ("GiB", "ms"), and its size. */
const char *plot_memory_unit (double bytes, double *out_bytes);
const char *plot_time_unit (double ns, double *out_ns);

/* A capacity of more than this multiple of what is shown is not drawn, since everything else would
 * be too small. The returned words say so instead; the caller frees. */
#define PLOT_FAR_AWAY 3.0
char *plot_far_below (guint64 capacity_bytes);

/* The category at a place in the stack of memory, counted from the bottom, and its letter. */
PlanCategory plot_memory_category (guint place);
char plot_memory_letter (guint place);

/* Nanoseconds as exact milliseconds: "1.421000". */
void plot_append_ms (GString *text, gint64 ns);

/* A number with `decimals` places, whatever the locale. */
void plot_append_real (GString *text, double value, int decimals);

/* Appends a string to a data file. Gnuplot knows only the escape of line ends there, so quotes and
 * backslashes are replaced. */
void plot_append_quoted (GString *text, const char *string);

G_END_DECLS
