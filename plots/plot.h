/* Pictures: C writes a data file, gnuplot draws it.
 *
 * The format follows the file's extension (svg, png, pdf, txt); with no file the
 * picture is text for a terminal. */
#pragma once
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include <glib.h>
G_BEGIN_DECLS

/* One configuration in a memory-performance picture. */
typedef struct
{
  const char *label;
  double memory_gib;
  double tokens_per_s;
  gboolean fits;
} PlotPoint;

/* A training run, steps in order; what is not finite is not drawn. */
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

/* One plan on some number of GPUs, of the line that has its name. */
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

/* One value of a swept field, on the line of those that have the rest in common. */
typedef struct
{
  const char *line;
  const char *label;
  guint64 memory_bytes;
  gint64 step_ns;
} PlotTradeoffPoint;

/* One quantity that was predicted and measured; those of a group share a colour. */
typedef struct
{
  const char *group;
  double predicted, measured;
} PlotAccuracyPoint;

/* Streams of one step: simulated as boxes; measured, which may be NULL, as points beside them. */
gboolean plot_timeline (const PlanTrace *simulated, const PlanTrace *measured,
                        const PlanSchedule *schedule, const char *title, const char *path,
                        char **out_text, GError **error);

/* One step of a pipeline: a row per stage, its forward and backward passes and exchanges as boxes.
 */
gboolean plot_pipeline (const PlanTraceView *views, guint n, const char *title, const char *path,
                        char **out_text, GError **error);

/* Live bytes by category over a step, stacked, peak marked; measured total as points. */
gboolean plot_memory (const PlanTrace *simulated, const PlanTrace *measured,
                      const PlanSchedule *schedule, const char *title, const char *path,
                      char **out_text, GError **error);

/* Memory against throughput, with the device's capacity. `memory` says which memory it is. */
gboolean plot_pareto (const PlotPoint *points, guint n_points, double capacity_gib,
                      const char *memory, const char *title, const char *path, char **out_text,
                      GError **error);

/* Where the points of its front are in such a picture as SVG, in its units from the left top. */
typedef struct
{
  guint point; /* of `points` */
  double x, y;
} PlotMark;

GArray *plot_pareto_marks (const PlotPoint *points, guint n_points, double capacity_gib);

/* Throughput, of all GPUs and of each, and efficiency against their number: a line for each name,
 * its points in any order. What does not fit is named, not drawn. */
gboolean plot_scaling (const PlotScalingPoint *points, guint n_points, const char *title,
                       const char *path, char **out_text, GError **error);

#define PLOT_MAX_BARS 8

/* Where step time and memory of several plans, or of a pipeline's stages, go: a bar each, and the
 * device's capacity. */
gboolean plot_breakdown (const PlotBreakdown *plans, guint n_plans, guint64 capacity_bytes,
                         const char *title, const char *path, char **out_text, GError **error);

/* Memory against step time; points of one line are joined in the order given. */
gboolean plot_tradeoff (const PlotTradeoffPoint *points, guint n_points, guint64 capacity_bytes,
                        const char *title, const char *path, char **out_text, GError **error);

/* Predicted against measured, with the errors' distribution. `quantity` and `unit` say of what:
 * "step time", "ms". Both of every point are more than 0. */
gboolean plot_accuracy (const PlotAccuracyPoint *points, guint n_points, const char *quantity,
                        const char *unit, const char *title, const char *path, char **out_text,
                        GError **error);

/* Losses by step, a line for each run, and its evaluations as points. */
gboolean plot_loss (const PlotLossRun *runs, guint n_runs, const char *title, const char *path,
                    char **out_text, GError **error);

/* The data file a figure would be drawn from, for tests and for people who draw their own. */
char *plot_timeline_data (const PlanTrace *simulated, const PlanTrace *measured,
                          const PlanSchedule *schedule);
char *plot_pipeline_data (const PlanTraceView *views, guint n);
char *plot_memory_data (const PlanTrace *simulated, const PlanTrace *measured,
                        const PlanSchedule *schedule);
char *plot_pareto_data (const PlotPoint *points, guint n_points);
char *plot_breakdown_data (const PlotBreakdown *plans, guint n_plans);
char *plot_tradeoff_data (const PlotTradeoffPoint *points, guint n_points);
char *plot_accuracy_data (const PlotAccuracyPoint *points, guint n_points);
char *plot_loss_data (const PlotLossRun *runs, guint n_runs);
char *plot_scaling_data (const PlotScalingPoint *points, guint n_points);

G_END_DECLS
