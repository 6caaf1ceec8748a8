/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cost/uncertainty.h"

#include <math.h>

/* How well a scope fits a subject for which it holds; the best is used. A scope whose models are
 * like the subject's (with experts or without; or all models) counts most, then one that names the
 * stack, then one that names the GPU; among equals, one that names its models wins. */
static guint
scope_rank (const SimScope *scope, gboolean has_experts)
{
  const gboolean names_no_models = scope->models == NULL;
  const gboolean is_like
      = names_no_models || g_str_equal (scope->models, "experts") == (has_experts != FALSE);
  return (is_like ? 8 : 0) + (scope->stack ? 4 : 0) + (scope->gpu ? 2 : 0)
         + (names_no_models ? 0 : 1);
}

SimErrorRange
sim_uncertainty_spread (const SimAdjustments *self, const char *gpu, const char *stack,
                        gboolean has_experts)
{
  const SimUncertainty *best = NULL;
  for (guint i = 0; i < self->uncertainties->len; i++)
    {
      const SimUncertainty *u = &g_array_index (self->uncertainties, SimUncertainty, i);
      if (sim_scope_holds (&u->scope, gpu, stack, NULL)
          && (!best
              || scope_rank (&u->scope, has_experts) > scope_rank (&best->scope, has_experts)))
        best = u;
    }
  return best ? (SimErrorRange){ best->pct, best->runs, best->sources }
              : (SimErrorRange){ .pct = -1 };
}

/* The entry of exactly this GPU and stack; NULL: none. */
static const SimSeen *
find_seen (const SimAdjustments *self, const char *gpu, const char *stack)
{
  for (guint i = 0; i < self->seen->len; i++)
    {
      const SimSeen *seen = &g_array_index (self->seen, SimSeen, i);
      if (g_strcmp0 (seen->scope.gpu, gpu) == 0 && g_strcmp0 (seen->scope.stack, stack) == 0)
        return seen;
    }
  return NULL;
}

static gboolean
is_among (const char *word, const char *words)
{
  g_auto (GStrv) list = g_strsplit (words ? words : "", ",", -1);
  return g_strv_contains ((const char *const *)list, word);
}

/* The variance that a GPU or stack adds because few runs were seen of it. It is 0 where there are
 * enough runs for a spread of their own; with fewer runs it is pct^2 / (1 + runs), the variance of
 * their common error as estimated from them and one run to come. */
static double
square_of_unseen (const SimAdjustments *self, SimDistance distance, const SimSeen *seen)
{
  const double pct = self->distances[distance].pct;
  const guint runs = seen ? seen->runs : 0;
  return runs >= SIM_ENOUGH_RUNS ? 0 : pct * pct / (1 + runs);
}

/* The variance that a source without runs adds: its own offset, and the mean of those of the
 * sources behind the spread. The variances for a GPU and a stack without runs are
 * subtracted: they were found by leaving out whole sources, so they contain this one. */
static double
square_of_source (const SimAdjustments *self, const SimSubject *subject,
                  const SimErrorRange *spread, const double *squares)
{
  const SimErrorRange *far = self->distances;
  const gboolean by_experts = subject->has_experts && far[SIM_DISTANCE_EXPERTS].runs > 0;
  const double pct = far[by_experts ? SIM_DISTANCE_EXPERTS : SIM_DISTANCE_SOURCE].pct;
  const double whole = pct * pct * (1 + 1.0 / spread->sources);
  return MAX (whole - squares[SIM_DISTANCE_GPU] - squares[SIM_DISTANCE_STACK], 0);
}

static gboolean
is_seen_network (const SimAdjustments *self, gint64 network)
{
  g_autofree char *word = g_strdup_printf ("%" G_GINT64_FORMAT, network);
  for (guint i = 0; i < self->seen->len; i++)
    if (is_among (word, g_array_index (self->seen, SimSeen, i).networks))
      return TRUE;
  return network == 0;
}

/* Whether the spread already covers a mode: runs of the stack have it, and so have runs of the GPU
 * if there are enough of them. */
static gboolean
is_seen_mode (const char *mode, const SimSeen *of_stack, const SimSeen *of_gpu)
{
  const gboolean asks_gpu = of_gpu && of_gpu->runs >= SIM_ENOUGH_RUNS;
  return of_stack && is_among (mode, of_stack->modes)
         && (!asks_gpu || is_among (mode, of_gpu->modes));
}

/* Whether a run's source is none of those whose runs were seen. The user's own runs have no other
 * source than the runs that are to come. */
static gboolean
is_unseen_source (const SimSubject *subject, const SimErrorRange *spread, const SimSeen *of)
{
  return spread->sources > 0 && !(of && subject->source && is_among (subject->source, of->sources));
}

/* Returns whether the subject's source is unseen, and finds the variances that its differences
 * from the runs that were seen add, one for each kind of distance, and the subject's modes that no
 * such run has. */
static gboolean
measure_distances (const SimAdjustments *self, const SimSubject *subject,
                   const SimErrorRange *spread, double squares[SIM_N_DISTANCES],
                   GPtrArray *unseen_modes)
{
  const SimErrorRange *far = self->distances;
  const SimSeen *stack = find_seen (self, NULL, subject->stack);
  const SimSeen *of = stack ? stack : find_seen (self, NULL, NULL);
  const SimSeen *gpu = find_seen (self, subject->gpu, NULL);
  squares[SIM_DISTANCE_GPU] = square_of_unseen (self, SIM_DISTANCE_GPU, gpu);
  squares[SIM_DISTANCE_STACK] = square_of_unseen (self, SIM_DISTANCE_STACK, stack);
  const gboolean is_unseen = is_unseen_source (subject, spread, of);
  if (is_unseen)
    squares[SIM_DISTANCE_SOURCE] = square_of_source (self, subject, spread, squares);
  if (of && subject->devices > of->devices)
    squares[SIM_DISTANCE_SIZE] = pow (
        far[SIM_DISTANCE_SIZE].pct * log2 ((double)subject->devices / (double)MAX (of->devices, 1)),
        2);
  squares[SIM_DISTANCE_EXPOSED] = pow (far[SIM_DISTANCE_EXPOSED].pct * subject->exposed, 2);
  if (!is_seen_network (self, subject->network))
    squares[SIM_DISTANCE_NETWORK] = pow (far[SIM_DISTANCE_NETWORK].pct * subject->exposed, 2);
  for (const char *const *mode = subject->modes; mode && *mode; mode++)
    if (!is_seen_mode (*mode, of, gpu))
      {
        squares[SIM_DISTANCE_MODE] += pow (far[SIM_DISTANCE_MODE].pct, 2);
        g_ptr_array_add (unseen_modes, (gpointer)*mode);
      }
  return is_unseen;
}

SimErrorRange
sim_uncertainty_of_time (const SimAdjustments *self, const SimSubject *subject)
{
  SimErrorRange error_range
      = sim_uncertainty_spread (self, subject->gpu, subject->stack, subject->has_experts);
  if (error_range.pct < 0 || self->seen->len == 0)
    return error_range;
  g_autoptr (GPtrArray) unseen_modes = g_ptr_array_new ();
  double squares[SIM_N_DISTANCES] = { 0 }, sum = error_range.pct * error_range.pct;
  if (!measure_distances (self, subject, &error_range, squares, unseen_modes))
    error_range.sources = 0;
  for (guint i = 0; i < SIM_N_DISTANCES; i++)
    sum += squares[i];
  error_range.pct = sqrt (sum);
  return error_range;
}

/* A mode's word is "field:value", or the field alone where any value other than the default is
 * meant. */
static void
add_modes (GPtrArray *names, const GPtrArray *modes)
{
  for (guint i = 0; i < modes->len; i++)
    g_ptr_array_add (names, g_strdelimit (g_strdup (modes->pdata[i]), ":", '='));
}

char *
sim_uncertainty_unlike (const SimAdjustments *self, const SimSubject *subject)
{
  const SimErrorRange spread
      = sim_uncertainty_spread (self, subject->gpu, subject->stack, subject->has_experts);
  const double whole = sim_uncertainty_of_time (self, subject).pct;
  const double matters = (whole < 0 ? 0 : whole * whole) / 10;
  g_autoptr (GPtrArray) unseen_modes = g_ptr_array_new ();
  g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
  double squares[SIM_N_DISTANCES] = { 0 };
  if (whole >= 0 && self->seen->len > 0)
    measure_distances (self, subject, &spread, squares, unseen_modes);
  if (squares[SIM_DISTANCE_STACK] > matters)
    g_ptr_array_add (names, g_strdup_printf ("stack=%s", subject->stack));
  if (squares[SIM_DISTANCE_GPU] > matters)
    g_ptr_array_add (names, g_strdup (subject->gpu));
  if (squares[SIM_DISTANCE_MODE] > matters)
    add_modes (names, unseen_modes);
  if (squares[SIM_DISTANCE_SIZE] > matters)
    g_ptr_array_add (names, g_strdup ("so many devices"));
  if (squares[SIM_DISTANCE_NETWORK] > matters)
    g_ptr_array_add (names, g_strdup ("such a network"));
  g_ptr_array_add (names, NULL);
  return names->len > 1 ? g_strjoinv (", ", (char **)names->pdata) : NULL;
}

const SimMemoryError *
sim_uncertainty_of_memory (const SimAdjustments *self, const char *stack)
{
  const SimMemoryError *best = NULL;
  for (guint i = 0; i < self->memory->len; i++)
    {
      const SimMemoryError *m = &g_array_index (self->memory, SimMemoryError, i);
      if (sim_scope_holds (&m->scope, NULL, stack, NULL) && (!best || m->scope.stack))
        best = m;
    }
  return best;
}
