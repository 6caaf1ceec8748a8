/* PlanPpLayout: how many layers each virtual stage of a pipeline has, as a layout string of
 * Megatron-LM says it ("Et*3|(t*2|)*6tL"). Stages are separated by '|'; E (the embedding) begins
 * the first, t is a layer, m a prediction module, L (output layer and loss) ends the last; x*n
 * repeats a letter, (...)*n a group, and commas mean nothing.
 *
 * A plan holds the number of a layout, since its fields are integers. Equal layouts have the same
 * number. Each is kept up to the program's end; any thread may ask. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 n;             /* virtual stages of all stages; number i is on stage i % pp */
  const gint64 *before; /* n + 1: the layers in front of each, at last all */
  gint64 modules;       /* prediction modules, right before the loss */
} PlanPpLayout;

/* Finds the number of the layout that a text describes. The error begins with "is", for the caller
 * to put a name in front. */
gboolean plan_pp_layout_parse (const char *text, gint64 *out_number, GError **error);

/* The number of the layout with so many layers in each virtual stage. */
gint64 plan_pp_layout_number (const gint64 *layers, gint64 n, gint64 modules);

const PlanPpLayout *plan_pp_layout_of (gint64 number);

/* Its shortest text, in which neighbours that are alike, ends aside, are a group; the caller
 * frees. */
char *plan_pp_layout_print (gint64 number);

G_END_DECLS
