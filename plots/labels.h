/* PlotLabels: texts beside the points of a figure, each where it covers nothing.
 *
 * init -> avoid what is drawn -> place, the most important first -> append -> clear. Places are
 * values on the axes; sizes are estimated, in points of the picture. */
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
  PlotBox axes;          /* their ranges */
  PlotBox area;          /* the plot, as parts of the picture */
  GArray *lines;         /* what a label must not cover */
  GArray *points;        /* PlotBox, in points: what it may cover at a pinch */
  GArray *placed;        /* PlotBox, in points: labels */
  GString *left, *right; /* labels by the side of their points that they are on */
} PlotLabels;

void plot_labels_init (PlotLabels *self, const PlotBox *axes, const PlotBox *area);
void plot_labels_clear (PlotLabels *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlotLabels, plot_labels_clear)

void plot_labels_avoid_line (PlotLabels *self, double x0, double y0, double x1, double y1,
                             gboolean even_at_a_pinch);
void plot_labels_avoid_point (PlotLabels *self, double x, double y);

/* Finds room for a text beside a point; FALSE where there is none. */
gboolean plot_labels_place (PlotLabels *self, double x, double y, const char *text,
                            gboolean is_at_a_pinch);

/* Blocks "left" and "right" of x, y, text, where they have something in them, and the variables
 * n_left and n_right that say so. */
void plot_labels_append (const PlotLabels *self, GString *data, PlotFigure *figure);

/* A label broken into lines at its spaces, cut where it needs more; the caller frees. */
char *plot_break_label (const char *label, guint max_width, guint max_lines);

/* In a text points are numbers from 1 on; those that would run into one another are one, as in
 * "3-5". Appends the block "numbers" of x, y, text; returns how many there are. */
guint plot_append_numbers (GString *data, const PlotBox *axes, const PlotFigure *figure,
                           const double *x, const double *y, guint n);

G_END_DECLS
