/* PlotLabels: labels beside the points of a figure, placed where they cover nothing.
 *
 * init -> avoid what is drawn -> place, the most important label first -> append -> clear.
 * Positions are values on the axes; sizes are estimates in points of the picture. */
#pragma once
#include "plots/plot-private.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  double left, right, bottom, top;
} PlotBox;

typedef struct
{
  PlotBox axes;          /* ranges of the axes */
  PlotBox area;          /* position of the plot, in parts of the picture */
  GArray *lines;         /* lines that labels must not cover */
  GArray *points;        /* PlotBox, in points: what labels may cover if there is no other room */
  GArray *placed;        /* PlotBox, in points: labels placed so far */
  GString *left, *right; /* data of the labels to the left, and to the right, of their points */
} PlotLabels;

void plot_labels_init (PlotLabels *self, const PlotBox *axes, const PlotBox *area);
void plot_labels_clear (PlotLabels *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlotLabels, plot_labels_clear)

void plot_labels_avoid_line (PlotLabels *self, double x0, double y0, double x1, double y1,
                             gboolean is_never_covered);
void plot_labels_avoid_point (PlotLabels *self, double x, double y);

/* Finds room for a label beside a point; FALSE where there is none. `may_cover`: it may cover
 * points, and lines that are not `is_never_covered`. */
gboolean plot_labels_place (PlotLabels *self, double x, double y, const char *text,
                            gboolean may_cover);

/* Appends the blocks "left" and "right" of x, y, label, if they are not empty, and sets the
 * variables n_left and n_right accordingly. */
void plot_labels_append (const PlotLabels *self, GString *data, PlotFigure *figure);

/* Breaks a label into lines at its spaces, and cuts what does not fit; the caller frees. */
char *plot_break_label (const char *label, guint max_width, guint max_lines);

/* Points shown as numbers from 1 on: appends the block "numbers" of x, y, text, in which points
 * whose numbers would collide are one, as in "3-5". In a text the number is the point; in a picture
 * it stands beside it. `area` is the position of the plot there. Returns the number of entries. */
guint plot_append_numbers (GString *data, const PlotBox *axes, const PlotBox *area,
                           const PlotFigure *figure, const double *x, const double *y, guint n);

/* Lines of a text with numbers above its plot, for which its title has to be set, and below it. */
guint plot_numbers_above (const PlotFigure *figure);
#define PLOT_NUMBERS_BELOW 3

G_END_DECLS
