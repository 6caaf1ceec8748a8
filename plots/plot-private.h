/* PlotFigure: what a figure hands to gnuplot.
 *
 * A figure's .c fills one in and calls plot_figure_draw; its .gp finds the data
 * file in `data`, the values set here in variables, and draws. */
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

/* Size of a picture in points; PNG has two pixels for each. */
#define PLOT_WIDTH 960
#define PLOT_HEIGHT 540

typedef struct
{
  const char *path; /* NULL: returned as text */
  PlotFormat format;
  guint columns, lines; /* of text; lines may be changed before drawing */
  const char *script;   /* the figure's .gp */
  char *data;           /* the data file */
  GString *settings;    /* gnuplot commands that run before the script */
  GString *footer;      /* printed below a text */
  char *title;          /* lines, with the note */
} PlotFigure;

/* Finds the format; INVALID for an extension that is none. */
gboolean plot_figure_init (PlotFigure *self, const char *path, const char *script, GError **error);
void plot_figure_clear (PlotFigure *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlotFigure, plot_figure_clear)

/* The title, and what a reader must know about this figure (or NULL). Where a title is over several
 * plots, these end at `title_top` of the picture. */
void plot_figure_set_title (PlotFigure *self, const char *title, const char *note);

/* A gnuplot variable. */
void plot_figure_set_real (PlotFigure *self, const char *name, double value);
void plot_figure_set_text (PlotFigure *self, const char *name, const char *value);

/* Draws, then puts the result in place whole. *out_text, where given, is NULL unless path was. */
gboolean plot_figure_draw (PlotFigure *self, char **out_text, GError **error);

/* The same for a text that needs no gnuplot: the title, `body`, and the footer. */
gboolean plot_figure_write (PlotFigure *self, const char *body, char **out_text, GError **error);

/* A block of the data file: its name, and above it what its columns are, since gnuplot takes the
 * last comment for the name. A block must not be empty. */
void plot_begin_block (GString *data, const char *name, const char *columns);

/* The unit in which people like to read so much: "GiB", "ms"; and how much it is. */
const char *plot_memory_unit (double bytes, double *out_bytes);
const char *plot_time_unit (double ns, double *out_ns);

/* A capacity of more than so many times what there is to see is not drawn: the rest would be too
 * small. These words say so instead; the caller frees. */
#define PLOT_FAR_AWAY 3.0
char *plot_far_below (guint64 capacity_bytes);

/* The category at a place in a stack of memory, from the bottom, and its letter. */
PlanCategory plot_memory_category (guint place);
char plot_memory_letter (guint place);

/* Nanoseconds as exact milliseconds: "1.421000". */
void plot_append_ms (GString *text, gint64 ns);

/* A number with `decimals` places, whatever the locale. */
void plot_append_real (GString *text, double value, int decimals);

/* A string in a data file. Of escapes gnuplot knows that of line ends there: quotes and backslashes
 * are replaced. */
void plot_append_quoted (GString *text, const char *string);

G_END_DECLS
