/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of the same plans on clusters of growing size. */
#include "config.h"

#include "cli/plot/plot-kinds.h"

#include "advise/predict.h"
#include "advise/workspaces.h"
#include "cli/io/sweep.h"
#include "planner/base/error.h"
#include "planner/base/units.h"
#include "plots/plot.h"

#include <string.h>

#define MAX_SIZES 32

/* How often the cluster is doubled without --gpus. */
#define DOUBLINGS 5

/* Inserts a size in order, unless it is there. */
static void
add_size (GArray *sizes, gint64 size)
{
  guint i = 0;
  while (i < sizes->len && g_array_index (sizes, gint64, i) < size)
    i++;
  if (i == sizes->len || g_array_index (sizes, gint64, i) != size)
    g_array_insert_val (sizes, i, size);
}

/* The sizes that --gpus names, in order, each once. Without --gpus they are the cluster's own and
 * its doublings. */
static GArray *
read_sizes (const char *text, const PlanCluster *cluster, GError **error)
{
  g_autoptr (GArray) sizes = g_array_new (FALSE, FALSE, sizeof (gint64));
  g_autoptr (GArray) asked = text ? cli_parse_gpus (text, error) : NULL;
  if (text && !asked)
    return NULL;
  for (guint i = 0; asked && i < asked->len; i++)
    add_size (sizes, g_array_index (asked, gint64, i));
  for (guint i = 0; !asked && i <= DOUBLINGS; i++)
    add_size (sizes, plan_cluster_devices (cluster) << i);
  if (sizes->len <= MAX_SIZES)
    return g_steal_pointer (&sizes);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--gpus: more than %d sizes", MAX_SIZES);
  return NULL;
}

/* The points and lines drawn so far. */
typedef struct
{
  GArray *points;   /* PlotScalingPoint */
  GPtrArray *names; /* names of the lines; owns them */
  gint64 first;     /* the size that gbs is given for, if gbs grows with the size; else 0 */
  guint n, n_refused;
  GError *why; /* why the first one was refused */
} Growth;

static void
growth_clear (Growth *self)
{
  g_clear_pointer (&self->points, g_array_unref);
  g_clear_pointer (&self->names, g_ptr_array_unref);
  g_clear_error (&self->why);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Growth, growth_clear)

/* Scales the global batch with the number of devices, for weak scaling. */
static gboolean
grow_batch (Plan *plan, gint64 first, gint64 devices, GError **error)
{
  gint64 *const gbs = &plan->value[PLAN_GBS];
  if (first == 0 || *gbs == PLAN_UNSET)
    return TRUE;
  if (*gbs > G_MAXINT32 || *gbs * devices % first != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--weak: gbs %" G_GINT64_FORMAT " on %" G_GINT64_FORMAT
                   " GPUs is not a whole number on %" G_GINT64_FORMAT,
                   *gbs, first, devices);
      return FALSE;
    }
  *gbs = *gbs * devices / first;
  return TRUE;
}

static gboolean
score_at (const AdviseInput *input, const Plan *asked, gint64 first, PlotScalingPoint *point,
          GError **error)
{
  g_autoptr (PlanCase) of = NULL;
  SimSummary summaries[SIM_MAX_STAGES];
  Plan plan = *asked;
  if (!grow_batch (&plan, first, point->gpus, error) || !(of = advise_case (input, &plan, error))
      || !advise_measure_case (input, of, summaries, error))
    return FALSE;
  const double tokens = (double)(of->plan.value[PLAN_GBS] * of->plan.value[PLAN_SEQ]);
  point->tokens_per_s_per_gpu = 1e9 * tokens / (double)summaries[0].step_ns / point->gpus;
  point->fits = TRUE;
  for (gint64 i = 0; i < of->plan.value[PLAN_PP]; i++)
    point->fits = point->fits && summaries[i].memory.device <= input->cluster->memory_bytes;
  return TRUE;
}

/* Predicts one plan on every size. */
static gboolean
grow (const AdviseInput *input, const Plan *plan, const char *name, const GArray *sizes,
      Growth *self, GError **error)
{
  for (guint i = 0; i < sizes->len; i++)
    {
      const gint64 size = g_array_index (sizes, gint64, i);
      PlotScalingPoint point = { .line = name, .gpus = (guint)size };
      AdviseInput larger = *input; /* borrows the input's members */
      g_autoptr (PlanCluster) cluster = plan_cluster_resize (input->cluster, size, error);
      if (!cluster)
        return FALSE;
      larger.cluster = cluster;
      self->n++;
      if (score_at (&larger, plan, self->first, &point, self->why ? NULL : &self->why))
        g_array_append_val (self->points, point);
      else
        self->n_refused++;
    }
  return TRUE;
}

/* The name of a line, the values of swept fields, as "optim_grads tp=2". The caller frees. */
static char *
name_of (const Plan *plan, char *const *sweeps)
{
  GString *name = g_string_new (NULL);
  for (; *sweeps; sweeps++)
    {
      PlanField field;
      if (!cli_plot_swept_field (*sweeps, &field, NULL))
        continue;
      g_autofree char *value = plan_field_print (field, plan->value[field]);
      if (name->len > 0)
        g_string_append_c (name, ' ');
      if (field == PLAN_STRATEGY)
        g_string_append (name, value);
      else
        g_string_append_printf (name, "%s=%s", plan_field_name (field), value);
    }
  return g_string_free (name, FALSE);
}

static char *
title_of (const AdviseInput *input, const Growth *growth, char *const *sweeps)
{
  g_autofree char *plain = cli_plot_title (input, NULL, sweeps);
  g_autofree char *start
      = g_strdup_printf (" (%" G_GINT64_FORMAT " x ", plan_cluster_devices (input->cluster));
  /* The title must not state the number of devices, which varies. */
  g_auto (GStrv) halves = g_strsplit (plain, start, 2);
  g_autofree char *devices = g_strjoinv (" (", halves);
  char *title = growth->first > 0
                    ? g_strdup_printf ("%s; weak scaling, that gbs on %" G_GINT64_FORMAT " GPUs",
                                       devices, growth->first)
                    : g_strdup_printf ("%s; strong scaling", devices);
  cli_plot_add_refused (&title, growth->n_refused, growth->n, growth->why);
  return title;
}

gboolean
cli_plot_scaling (CliPlot *self, char **out_text, GError **error)
{
  g_auto (AdviseInput) input = { 0 };
  g_auto (Growth) growth = { .points = g_array_new (FALSE, FALSE, sizeof (PlotScalingPoint)),
                             .names = g_ptr_array_new_with_free_func (g_free) };
  const char *const standard[] = { "strategy", NULL };
  char *const *sweeps = self->sweeps ? self->sweeps : (char *const *)standard;
  if (!cli_plot_read (self, sweeps, &input, error))
    return FALSE;
  g_autoptr (GArray) sizes = read_sizes (self->gpus, input.cluster, error);
  g_autoptr (GArray) plans = sizes ? cli_sweep (&input.plan, sweeps, error) : NULL;
  if (!plans)
    return FALSE;
  growth.first = self->weak ? g_array_index (sizes, gint64, 0) : 0;
  for (guint i = 0; i < plans->len; i++)
    {
      const Plan *plan = &g_array_index (plans, Plan, i);
      g_ptr_array_add (growth.names, name_of (plan, sweeps));
      if (!grow (&input, plan, growth.names->pdata[i], sizes, &growth, error))
        return FALSE;
    }
  if (growth.points->len == 0)
    return cli_plot_refuse (growth.n, growth.why, error);
  g_autofree char *title = title_of (&input, &growth, sweeps);
  return plot_scaling ((const PlotScalingPoint *)(gpointer)growth.points->data, growth.points->len,
                       title, self->path, out_text, error);
}
