/* CliPlot: what a picture is asked for by, and the kinds of picture that show more than one plan.
 */
#pragma once
#include "cli/io/options.h"
#include "cli/query/query.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  CliOptions options;
  char *path;                        /* of the picture; NULL: text on the terminal */
  char *run, *gpus, *from, *of, *by; /* as typed; NULL where absent, like the next */
  char **sweeps;
  char *const *plans; /* borrowed: words behind the kind of picture; logs, of loss */
  gboolean weak;
  char *top_text, *front_text; /* as typed; NULL: not said */
  gint top;
  AdviseQuestion question; /* what is searched, where nothing is swept; its words are owned */
} CliPlot;

/* Reads model, cluster and plan; the global batch must be there, unless it is swept. */
gboolean cli_plot_read (const CliPlot *self, char *const *sweeps, AdviseInput *out_input,
                        GError **error);

/* "llama3-8b on dgx-h100 (8 x h100-80gb)", then `label` or NULL, then the fields of the plan that
 * were set and are in neither; `sweeps` may be NULL. The caller frees. */
char *cli_plot_title (const AdviseInput *input, const char *label, char *const *sweeps);

/* Adds to a title how many plans were left out, and why the first was. */
void cli_plot_add_refused (char **title, guint n_refused, guint n, const GError *first);

/* Says that all `n` plans were refused, the first because of `first`; always FALSE. */
gboolean cli_plot_refuse (guint n, const GError *first, GError **error);

/* The field that a sweep varies. */
gboolean cli_plot_swept_field (const char *sweep, PlanField *out_field, GError **error);

/* The timeline of a prediction, which is expanded; its memory over time, expanded too unless it is
 * a pipeline, of which the stages are drawn side by side. */
gboolean cli_plot_time (const AdvisePrediction *p, const char *title, const char *path,
                        char **out_text, GError **error);
gboolean cli_plot_memory (const AdvisePrediction *p, guint64 capacity_bytes, const char *title,
                          const char *path, char **out_text, GError **error);

/* The front of memory and time of a search that has answers. `out_marks` may be NULL: PlotMark of
 * the points of the front, by their places in `query->result.found`. */
gboolean cli_plot_front (const AdviseQuery *query, const AdviseChoice *choice, const char *path,
                         char **out_text, GArray **out_marks, GError **error);

/* Where the time and memory of its answers go, as many as a picture holds, a bar each. */
gboolean cli_plot_answers (const AdviseQuery *query, const AdviseInput *input, const char *path,
                           char **out_text, GError **error);

gboolean cli_plot_pareto (CliPlot *self, char **out_text, GError **error);
gboolean cli_plot_tradeoff (CliPlot *self, char **out_text, GError **error);
gboolean cli_plot_breakdown (CliPlot *self, char **out_text, GError **error);
gboolean cli_plot_scaling (CliPlot *self, char **out_text, GError **error);
gboolean cli_plot_loss (CliPlot *self, char **out_text, GError **error);
gboolean cli_plot_accuracy (CliPlot *self, char **out_text, GError **error);

G_END_DECLS
