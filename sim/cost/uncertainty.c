/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cost/uncertainty.h"

#include <math.h>

SimErrorRange
sim_uncertainty_spread (const SimAdjustments *self, const char *gpu, const char *stack)
{
  const SimUncertainty *best = NULL;
  for (guint i = 0; i < self->uncertainties->len; i++)
    {
      const SimUncertainty *u = &g_array_index (self->uncertainties, SimUncertainty, i);
      const guint closeness = (u->scope.stack ? 2 : 0) + (u->scope.gpu ? 1 : 0);
      if (sim_scope_holds (&u->scope, gpu, stack, NULL)
          && (!best || closeness > (guint)(best->scope.stack ? 2 : 0) + (best->scope.gpu ? 1 : 0)))
        best = u;
    }
  return best ? (SimErrorRange){ best->pct, best->runs } : (SimErrorRange){ -1, 0 };
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

/* The square of what a GPU or stack without enough runs adds. Where there are enough runs for a
 * spread of their own it adds nothing; with fewer runs it adds pct^2 / (1 + runs), the variance of
 * their common error as estimated from them and one run to come. */
static double
square_of_strangeness (const SimAdjustments *self, SimDistance distance, const SimSeen *seen)
{
  const double pct = self->distances[distance].pct;
  const guint runs = seen ? seen->runs : 0;
  return runs >= SIM_ENOUGH_RUNS ? 0 : pct * pct / (1 + runs);
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

SimErrorRange
sim_uncertainty_of_time (const SimAdjustments *self, const SimSubject *subject)
{
  const SimErrorRange *far = self->distances;
  const SimSeen *stack = find_seen (self, NULL, subject->stack);
  const SimSeen *of = stack ? stack : find_seen (self, NULL, NULL);
  const SimSeen *gpu = find_seen (self, subject->gpu, NULL);
  SimErrorRange error_range = sim_uncertainty_spread (self, subject->gpu, subject->stack);
  if (error_range.pct < 0 || self->seen->len == 0)
    return error_range;
  double squares = error_range.pct * error_range.pct;
  squares += square_of_strangeness (self, SIM_DISTANCE_GPU, gpu);
  squares += square_of_strangeness (self, SIM_DISTANCE_STACK, stack);
  if (of && subject->devices > of->devices)
    squares += pow (far[SIM_DISTANCE_SIZE].pct
                        * log2 ((double)subject->devices / (double)MAX (of->devices, 1)),
                    2);
  squares += pow (far[SIM_DISTANCE_EXPOSED].pct * subject->exposed, 2);
  if (!is_seen_network (self, subject->network))
    squares += pow (far[SIM_DISTANCE_NETWORK].pct * subject->exposed, 2);
  for (const char *const *mode = subject->modes; mode && *mode; mode++)
    if (!is_seen_mode (*mode, of, gpu))
      squares += pow (far[SIM_DISTANCE_MODE].pct, 2);
  error_range.pct = sqrt (squares);
  return error_range;
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
