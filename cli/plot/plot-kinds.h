/* CliPlot: the options of a picture, and the kinds of pictures that show more than one plan. */
#pragma once
#include "cli/io/options.h"
#include "cli/query/query.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  CliOptions options;
  char *path;                        /* of the picture's file; NULL: draw as text on the terminal */
  char *run, *gpus, *from, *of, *by; /* as typed; these and `sweeps` are NULL where absent */
  char **sweeps;
  char *const *plans; /* borrowed: arguments after the kind of picture; for loss they are logs */
  gboolean weak;
  char *top_text, *front_text; /* as typed; NULL where absent */
  gint top;
  AdviseQuestion question; /* the search, where nothing is swept; owns its words */
} CliPlot;

/* Reads model, cluster and plan. There must be a global batch, unless it is swept. */
gboolean cli_plot_read (const CliPlot *self, char *const *sweeps, AdviseInput *out_input,
                        GError **error);

/* A title as "llama3-8b on dgx-h100 (8 x h100-80gb)", then `label` if it is not NULL, then the
 * fields that were set and are in neither the label nor `sweeps`, which may be NULL. The caller
 * frees. */
char *cli_plot_title (const AdviseInput *input, const char *label, char *const *sweeps);

/* Adds to a title how many plans were refused, and why the first one was. */
void cli_plot_add_refused (char **title, guint n_refused, guint n, const GError *first);

/* Fails because all `n` plans were refused, with the reason of the first; always FALSE. */
gboolean cli_plot_refuse (guint n, const GError *first, GError **error);

/* Finds the field that a sweep varies. */
gboolean cli_plot_swept_field (const char *sweep, PlanField *out_field, GError **error);

/* Draw an expanded prediction: its timeline; its memory over time. The memory of a pipeline is
 * drawn stage by stage, side by side, and need not be expanded. */
gboolean cli_plot_time (const AdvisePrediction *p, const char *title, const char *path,
                        char **out_text, GError **error);
gboolean cli_plot_memory (const AdvisePrediction *p, guint64 capacity_bytes, const char *title,
                          const char *path, char **out_text, GError **error);

/* Draws the front of memory and time of a search that has answers. `out_marks`, if not NULL,
 * becomes the positions of the front's points (PlotMark), numbered as in `query->result.found`. */
gboolean cli_plot_front (const AdviseQuery *query, const AdviseChoice *choice, const char *path,
                         char **out_text, GArray **out_marks, GError **error);

/* Draws where time and memory of the answers go, a bar for each, as many as a picture holds. */
gboolean cli_plot_answers (const AdviseQuery *query, const AdviseInput *input, const char *path,
                           char **out_text, GError **error);

gboolean cli_plot_pareto (CliPlot *self, char **out_text, GError **error);
gboolean cli_plot_tradeoff (CliPlot *self, char **out_text, GError **error);
gboolean cli_plot_breakdown (CliPlot *self, char **out_text, GError **error);
gboolean cli_plot_scaling (CliPlot *self, char **out_text, GError **error);
gboolean cli_plot_loss (CliPlot *self, char **out_text, GError **error);
gboolean cli_plot_accuracy (CliPlot *self, char **out_text, GError **error);

G_END_DECLS
