/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/fit/spreads.h"

#include <math.h>
#include <stdlib.h>

#define ENOUGH_OFFSETS 4 /* fewest from which their variance is taken */

/* The runs that a fit was made to. */
typedef struct
{
  const SimCalibration *request;
  const SimObservation *rows;
  guint n;
} Runs;

/* A relative error with its run's weight. */
typedef struct
{
  double size, weight;
} Miss;

static int
compare_misses (const void *left, const void *right)
{
  const Miss *a = left, *b = right;
  return (a->size > b->size) - (a->size < b->size);
}

double
sim_spreads_rounded (double value)
{
  return floor (value * 1e4 + 0.5) / 1e4;
}

/* Whether a set has the spread of a scope, for its models or for all. */
static gboolean
knows (const SimAdjustments *set, const SimScope *scope)
{
  for (guint i = 0; i < set->uncertainties->len; i++)
    {
      const SimScope *known = &g_array_index (set->uncertainties, SimUncertainty, i).scope;
      if (g_strcmp0 (known->gpu, scope->gpu) == 0 && g_strcmp0 (known->stack, scope->stack) == 0
          && (!known->models || g_strcmp0 (known->models, scope->models) == 0))
        return TRUE;
    }
  return FALSE;
}

/* Adds the spread of a scope: the error within which four of five left-out runs were predicted. One
 * more run is counted, since the next one may miss by more than all that were seen. FALSE: there
 * are too few runs. */
static gboolean
add_spread_of (SimAdjustments *set, const Runs *runs, SimScope scope)
{
  g_autoptr (GArray) misses = g_array_new (FALSE, FALSE, sizeof (Miss));
  g_autoptr (GHashTable) sources = g_hash_table_new (NULL, NULL);
  double total = 0, below = 0;
  guint at = 0;
  for (guint i = 0; i < runs->n; i++)
    {
      const SimObservation *row = &runs->rows[i];
      const double predicted = runs->request->n_parts > 1 ? row->without_part_ns : row->after_ns;
      const Miss miss = { fabs (predicted / row->step_ns - 1), row->weight };
      if (!sim_scope_holds (&scope, row->gpu, row->stack, NULL)
          || (scope.models && !g_str_equal (scope.models, row->has_experts ? "experts" : "dense")))
        continue;
      g_array_append_val (misses, miss);
      g_hash_table_add (sources, GUINT_TO_POINTER (row->source));
      total += row->weight;
    }
  if (total < SIM_ENOUGH_RUNS)
    return FALSE;
  qsort (misses->data, misses->len, sizeof (Miss), compare_misses);
  while (at + 1 < misses->len
         && (below += g_array_index (misses, Miss, at).weight) < 0.8 * (total + 1))
    at++;
  sim_adjustments_add_uncertainty (
      set, (SimUncertainty){
               .scope = scope,
               .pct = sim_spreads_rounded (100 * g_array_index (misses, Miss, at).size),
               .runs = (guint)(total + 0.5),
               .sources = runs->request->n_sources > 0 ? g_hash_table_size (sources) : 0 });
  return TRUE;
}

/* Adds the spreads of a GPU and stack. Models with experts have a spread of their own, since their
 * predictions err more: one spread for all models would be too wide for dense ones and too narrow
 * for those with experts. Where neither kind has enough runs, all runs make one spread. */
static void
add_spread (SimAdjustments *set, const Runs *runs, const char *gpu, const char *stack)
{
  static const char *const models[] = { "dense", "experts" };
  gboolean has_any = FALSE;
  for (guint m = 0; m < G_N_ELEMENTS (models); m++)
    {
      const SimScope scope = { (char *)gpu, (char *)stack, NULL, (char *)models[m] };
      has_any = knows (set, &scope) || add_spread_of (set, runs, scope) || has_any;
    }
  if (!has_any)
    add_spread_of (set, runs, (SimScope){ (char *)gpu, (char *)stack, NULL, NULL });
}

static void
add_spreads (SimAdjustments *set, const Runs *runs)
{
  const SimAdjustments *base = runs->request->base;
  for (guint i = 0; i < runs->n; i++)
    add_spread (set, runs, runs->rows[i].gpu, runs->rows[i].stack);
  for (guint i = 0; base && i < base->uncertainties->len; i++)
    {
      const SimUncertainty *u = &g_array_index (base->uncertainties, SimUncertainty, i);
      if (!knows (set, &u->scope))
        sim_adjustments_add_uncertainty (set, *u);
    }
  if (base)
    return;
  for (guint i = 0; i < runs->n; i++)
    {
      add_spread (set, runs, NULL, runs->rows[i].stack);
      add_spread (set, runs, runs->rows[i].gpu, NULL);
    }
  add_spread (set, runs, NULL, NULL);
}

void
sim_offset_add (SimOffset *self, const SimObservation *row, double predicted_ns, double excess)
{
  const double miss = log (predicted_ns / row->step_ns);
  self->weight += row->weight;
  self->sum += row->weight * miss;
  self->squares += row->weight * miss * miss;
  self->excess += row->weight * excess;
}

/* The variance of single runs about the mean of their group, pooled over all groups. */
static double
variance_within (const SimOffset *offsets, guint n)
{
  double sum = 0, freedom = 0;
  for (guint i = 0; i < n; i++)
    if (offsets[i].weight > 0)
      {
        sum += offsets[i].squares - offsets[i].sum * offsets[i].sum / offsets[i].weight;
        freedom += MAX (offsets[i].weight - 1, 0);
      }
  return freedom > 0 ? MAX (sum, 0) / freedom : 0;
}

/* The sum over groups of the squared mean, divided by the variance that the mean has if offsets
 * have the variance `between`, and runs the variance `within` about them. */
static double
scaled_squares (const SimOffset *offsets, guint n, double within, double between)
{
  double sum = 0;
  for (guint i = 0; i < n; i++)
    if (offsets[i].weight > 0)
      {
        const SimOffset *of = &offsets[i];
        sum += pow (of->sum / of->weight, 2)
               / MAX ((between * of->excess + within) / of->weight, 1e-12);
      }
  return sum;
}

/* The quantile of 90 % of Student's t (Abramowitz and Stegun, 26.7.5): eight of ten lie within it
 * on both sides. */
static double
eight_of_ten (guint freedom)
{
  const double z = 1.2815515655446004, z3 = z * z * z, z5 = z3 * z * z, n = freedom;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n);
}

/* Estimates the variance of offsets after Paule and Mandel (1982): with it the scaled squares of
 * the means sum to the number of groups. The means are taken about 0, which is an offset's expected
 * value. */
SimErrorRange
sim_offset_range (const SimOffset *offsets, guint n)
{
  const double within = variance_within (offsets, n);
  double low = 0, high = 4;
  guint counted = 0;
  for (guint i = 0; i < n; i++)
    counted += offsets[i].weight > 0;
  if (counted < ENOUGH_OFFSETS)
    return (SimErrorRange){ 0 };
  for (guint i = 0; i < 100; i++)
    {
      const double middle = 0.5 * (low + high);
      if (scaled_squares (offsets, n, within, middle) > counted)
        low = middle;
      else
        high = middle;
    }
  return (SimErrorRange){
    .pct = sim_spreads_rounded (100 * expm1 (eight_of_ten (counted) * sqrt (high))), .runs = counted
  };
}

/* The weight of other sources' runs on a row's GPU or with its stack, whichever is less. */
static double
weight_of_others (const Runs *runs, const SimObservation *row)
{
  double gpu = 0, stack = 0;
  for (guint i = 0; i < runs->n; i++)
    {
      const SimObservation *other = &runs->rows[i];
      if (other->source == row->source)
        continue;
      gpu += g_strcmp0 (other->gpu, row->gpu) == 0 ? other->weight : 0;
      stack += g_strcmp0 (other->stack, row->stack) == 0 ? other->weight : 0;
    }
  return MIN (gpu, stack);
}

/* The number of other sources with runs of a row's stack on its GPU. It is 1 where there is none:
 * the row is then predicted from runs on the GPU and runs of the stack, which together count as
 * one. */
static guint
other_sources (const Runs *runs, const SimObservation *row)
{
  g_autoptr (GHashTable) sources = g_hash_table_new (NULL, NULL);
  for (guint i = 0; i < runs->n; i++)
    {
      const SimObservation *other = &runs->rows[i];
      if (other->source != row->source && g_strcmp0 (other->gpu, row->gpu) == 0
          && g_strcmp0 (other->stack, row->stack) == 0)
        g_hash_table_add (sources, GUINT_TO_POINTER (other->source));
    }
  return MAX (g_hash_table_size (sources), 1);
}

/* Whether a row counts for the offset of its source. A row of a dense model counts only if other
 * sources have enough runs on its GPU and of its stack, so that nothing but its source is new. Few
 * sources have models with experts, so each row of those counts: their offset then includes what a
 * new GPU and a new stack add, which square_of_source (sim/cost/uncertainty.c) subtracts. */
static gboolean
counts_for_source (const Runs *runs, const SimObservation *row, gboolean has_experts)
{
  return !row->has_experts == !has_experts
         && (has_experts || weight_of_others (runs, row) >= SIM_ENOUGH_RUNS);
}

/* Finds how much the offsets of sources vary. For models with experts they are found apart, because
 * sources differ more in their kernels for experts than in others. */
static void
add_source_distance (SimAdjustments *set, const Runs *runs, gboolean has_experts)
{
  const guint n = runs->request->n_sources;
  g_autofree SimOffset *offsets = g_new0 (SimOffset, n + 1);
  if (n < ENOUGH_OFFSETS)
    return;
  for (guint i = 0; i < runs->n; i++)
    {
      const SimObservation *row = &runs->rows[i];
      if (counts_for_source (runs, row, has_experts))
        sim_offset_add (&offsets[row->source], row, row->without_source_ns,
                        1 + 1.0 / other_sources (runs, row));
    }
  const SimErrorRange found = sim_offset_range (offsets, n);
  if (found.runs > 0)
    set->distances[has_experts ? SIM_DISTANCE_EXPERTS : SIM_DISTANCE_SOURCE] = found;
}

void
sim_spreads_add (SimAdjustments *set, const SimCalibration *request, const SimObservation *rows,
                 guint n)
{
  const Runs runs = { request, rows, n };
  add_spreads (set, &runs);
  add_source_distance (set, &runs, FALSE);
  add_source_distance (set, &runs, TRUE);
}
