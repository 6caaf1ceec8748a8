/* Figures: C code writes a data file, and gnuplot draws it.
 *
 * The format follows from the file's extension (svg, png, pdf, txt). Without a file the figure is
 * text for a terminal. */
#pragma once
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include <glib.h>
G_BEGIN_DECLS

/* One configuration in a figure of memory and performance. */
typedef struct
{
  const char *label; /* for the list below the figure, if the point is on the front; NULL: the point
                        is not listed */
  double memory_gib;
  double tokens_per_s;
  gboolean fits;
} PlotPoint;

/* The steps of a training run, in order. Values that are not finite are not drawn. */
typedef struct
{
  gint64 step;
  double loss, eval_loss;
} PlotLossStep;

typedef struct
{
  const char *label;
  const PlotLossStep *steps;
  guint n;
} PlotLossRun;

/* A plan on some number of GPUs; `line` names the line that it is on. */
typedef struct
{
  const char *line;
  guint gpus;
  double tokens_per_s_per_gpu;
  gboolean fits;
} PlotScalingPoint;

/* One plan among several. */
typedef struct
{
  const char *label;
  const PlanTrace *trace;
} PlotBreakdown;

/* One value of a swept field; `line` names the line of points that have all other fields in
 * common. */
typedef struct
{
  const char *line;
  const char *label;
  guint64 memory_bytes;
  gint64 step_ns;
} PlotTradeoffPoint;

/* A quantity that was predicted and measured; points of a group share a colour. */
typedef struct
{
  const char *group;
  double predicted, measured;
} PlotAccuracyPoint;

/* The streams of one step: simulated spans as boxes, and measured ones (may be NULL) as points
 * beside them. */
gboolean plot_timeline (const PlanTrace *simulated, const PlanTrace *measured,
                        const PlanSchedule *schedule, const char *title, const char *path,
                        char **out_text, GError **error);

/* One step of a pipeline: a row per stage, with forward and backward passes and exchanges as boxes.
 * Measured traces of the same stages are points beside them; `measured` may be NULL. */
gboolean plot_pipeline (const PlanTraceView *views, const PlanTraceView *measured, guint n,
                        const char *title, const char *path, char **out_text, GError **error);

/* Sets offset_ns of simulated stages. Two stages begin a trade at the same time, so the first trade
 * of each two neighbours says by how much one trace begins later. The first to begin gets 0. */
void plot_pipeline_align (PlanTraceView *views, guint n);

/* Live bytes by category over a step, stacked, with the peak marked; the measured total as
 * points. */
gboolean plot_memory (const PlanTrace *simulated, const PlanTrace *measured,
                      const PlanSchedule *schedule, const char *title, const char *path,
                      char **out_text, GError **error);

/* Memory against throughput, with the device's capacity. `memory` names the kind of memory. */
gboolean plot_pareto (const PlotPoint *points, guint n_points, double capacity_gib,
                      const char *memory, const char *title, const char *path, char **out_text,
                      GError **error);

/* The positions of the front's points in that figure as SVG, in its units from the top left. */
typedef struct
{
  guint point; /* of `points` */
  double x, y;
} PlotMark;

GArray *plot_pareto_marks (const PlotPoint *points, guint n_points, double capacity_gib);

/* Throughput of all GPUs and per GPU, and efficiency, against the number of GPUs: a line per name,
 * whose points may be in any order. Plans that do not fit are named and not drawn. */
gboolean plot_scaling (const PlotScalingPoint *points, guint n_points, const char *title,
                       const char *path, char **out_text, GError **error);

#define PLOT_MAX_BARS 8

/* The parts of step time and memory of several plans, or of a pipeline's stages, as bars, with the
 * device's capacity. */
gboolean plot_breakdown (const PlotBreakdown *plans, guint n_plans, guint64 capacity_bytes,
                         const char *title, const char *path, char **out_text, GError **error);

/* Memory against step time; the points of a line are joined in the order given. */
gboolean plot_tradeoff (const PlotTradeoffPoint *points, guint n_points, guint64 capacity_bytes,
                        const char *title, const char *path, char **out_text, GError **error);

/* Predictions against measurements, with the distribution of errors. `quantity` and `unit` say of
 * what: "step time", "ms". Both values of every point are above 0. */
gboolean plot_accuracy (const PlotAccuracyPoint *points, guint n_points, const char *quantity,
                        const char *unit, const char *title, const char *path, char **out_text,
                        GError **error);

/* Losses by step: a line per run, and its evaluations as points. */
gboolean plot_loss (const PlotLossRun *runs, guint n_runs, const char *title, const char *path,
                    char **out_text, GError **error);

/* The data file from which a figure would be drawn, for tests and for people who draw their own. */
char *plot_timeline_data (const PlanTrace *simulated, const PlanTrace *measured,
                          const PlanSchedule *schedule);
char *plot_pipeline_data (const PlanTraceView *views, const PlanTraceView *measured, guint n);
char *plot_memory_data (const PlanTrace *simulated, const PlanTrace *measured,
                        const PlanSchedule *schedule);
char *plot_pareto_data (const PlotPoint *points, guint n_points);
char *plot_breakdown_data (const PlotBreakdown *plans, guint n_plans);
char *plot_tradeoff_data (const PlotTradeoffPoint *points, guint n_points);
char *plot_accuracy_data (const PlotAccuracyPoint *points, guint n_points);
char *plot_loss_data (const PlotLossRun *runs, guint n_runs);
char *plot_scaling_data (const PlotScalingPoint *points, guint n_points);

G_END_DECLS
