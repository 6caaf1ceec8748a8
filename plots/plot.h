/* Pictures: C writes a data file, gnuplot draws it.
 *
 * The format follows the file's extension (svg, png, pdf, txt); with no file the
 * picture is text for a terminal. */
#pragma once
#include "planner/schedule.h"
#include "planner/trace.h"
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

/* Streams of one step: simulated as boxes; measured, which may be NULL, as points beside them. */
gboolean plot_timeline (const PlanTrace *simulated, const PlanTrace *measured,
                        const PlanSchedule *schedule, const char *title, const char *path,
                        char **out_text, GError **error);

/* Live bytes by category over a step, stacked, peak marked; measured total as points. */
gboolean plot_memory (const PlanTrace *simulated, const PlanTrace *measured,
                      const PlanSchedule *schedule, const char *title, const char *path,
                      char **out_text, GError **error);

/* Memory against throughput, with the device's capacity. */
gboolean plot_pareto (const PlotPoint *points, guint n_points, double capacity_gib,
                      const char *title, const char *path, char **out_text, GError **error);

/* The data file a figure would be drawn from, for tests and for people who draw their own. */
char *plot_timeline_data (const PlanTrace *simulated, const PlanTrace *measured,
                          const PlanSchedule *schedule);
char *plot_memory_data (const PlanTrace *simulated, const PlanTrace *measured,
                        const PlanSchedule *schedule);
char *plot_pareto_data (const PlotPoint *points, guint n_points);

G_END_DECLS
