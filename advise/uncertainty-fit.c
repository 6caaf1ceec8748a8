/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/uncertainty-fit.h"

#include "advise/uncertainty.h"
#include "planner/runs/accuracy.h"
#include "sim/cost/uncertainty.h"
#include "sim/fit/spreads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A measured peak of the allocator, with predicted bytes outside of it added; or a run that went
 * out of memory. */
typedef struct
{
  const char *stack;
  guint group;
  double weight;   /* all rows of a group together have a weight of 1 */
  double measured; /* a lower bound where it ran out of memory */
  double device, passing;
  gboolean ran_out;
} Peak;

/* Both scales are searched in these steps. */
#define STEP 0.001
#define MOST_WHOLE 80
#define MOST_PASSING 120

static gboolean
has_peak (const AdviseRun *run)
{
  return run->is_predicted && run->row.is_for_fitting && run->row.memory_ok && !run->row.is_tiny
         && (run->row.measured[PLAN_RUN_QUANTITY_RESERVED] > 0
             || run->row.ran_out == PLAN_ANSWER_YES);
}

static GArray *
collect_peaks (const AdviseValidation *validation)
{
  GArray *peaks = g_array_new (FALSE, FALSE, sizeof (Peak));
  g_autoptr (GHashTable) sizes = g_hash_table_new (NULL, NULL);
  for (guint i = 0; i < validation->runs->len; i++)
    {
      const AdviseRun *run = &g_array_index (validation->runs, AdviseRun, i);
      const gpointer key = GUINT_TO_POINTER (run->group);
      if (!has_peak (run))
        continue;
      const double device = (double)run->device;
      const double off = 1048576
                         * (run->row.measured[PLAN_RUN_QUANTITY_RESERVED]
                            - run->predicted[PLAN_RUN_QUANTITY_RESERVED]);
      const gboolean ran_out = run->row.ran_out == PLAN_ANSWER_YES;
      const Peak peak
          = { .stack = run->row.cell[PLAN_RUN_STACK],
              .group = run->group,
              .ran_out = ran_out,
              .measured = ran_out ? (double)run->row.cluster->memory_bytes : device + off,
              .device = device,
              .passing = device - (double)run->resting };
      g_array_append_val (peaks, peak);
      g_hash_table_insert (
          sizes, key, GUINT_TO_POINTER (GPOINTER_TO_UINT (g_hash_table_lookup (sizes, key)) + 1));
    }
  for (guint i = 0; i < peaks->len; i++)
    {
      Peak *peak = &g_array_index (peaks, Peak, i);
      peak->weight
          = 1.0 / GPOINTER_TO_UINT (g_hash_table_lookup (sizes, GUINT_TO_POINTER (peak->group)));
    }
  return peaks;
}

/* The weight of a stack: its number of groups. */
static double
weight_of (const GArray *peaks, const char *stack)
{
  double sum = 0;
  for (guint i = 0; i < peaks->len; i++)
    if (g_str_equal (g_array_index (peaks, Peak, i).stack, stack))
      sum += g_array_index (peaks, Peak, i).weight;
  return sum;
}

/* Logarithm of the likelihood, without constants, of errors that follow Student's t distribution
 * with four degrees of freedom. */
static double
likelihood (const GArray *peaks, const double *weights, double whole, double passing)
{
  double sum = 0;
  for (guint i = 0; i < peaks->len; i++)
    {
      const Peak *peak = &g_array_index (peaks, Peak, i);
      const double scale = whole * peak->device + passing * peak->passing;
      const double z = (peak->measured - peak->device) / scale;
      if (peak->ran_out)
        sum += weights[i] * log (MAX (1 - plan_accuracy_share_below (z), 1e-12));
      else
        sum -= weights[i] * (2.5 * log1p (z * z / 4) + log (scale / peak->device));
    }
  return sum;
}

static SimMemoryError
most_likely (const GArray *peaks, const double *weights)
{
  SimMemoryError best = { 0 };
  double most = -INFINITY;
  for (guint w = 1; w <= MOST_WHOLE; w++)
    for (guint p = 0; p <= MOST_PASSING; p++)
      {
        const double found = likelihood (peaks, weights, STEP * w, STEP * p);
        if (found <= most)
          continue;
        most = found;
        best.whole = STEP * w;
        best.passing = STEP * p;
      }
  return best;
}

/* Adds the memory errors of a stack. Other stacks' groups count as a few of its own, each stack
 * alike, since few groups alone would say little. Without a stack all stacks count alike, because
 * an unknown stack need not behave like the most frequent one. */
static void
add_memory (const GArray *peaks, const GPtrArray *stacks, const char *stack, SimAdjustments *set)
{
  g_autofree double *weights = g_new (double, peaks->len + 1);
  double total = 0;
  for (guint i = 0; i < peaks->len; i++)
    {
      const Peak *peak = &g_array_index (peaks, Peak, i);
      const gboolean is_own = stack && g_str_equal (peak->stack, stack);
      const double others = stack ? (double)SIM_ENOUGH_RUNS / MAX (stacks->len - 1, 1) : 1;
      weights[i] = is_own ? peak->weight : others * peak->weight / weight_of (peaks, peak->stack);
      total += is_own || !stack ? peak->weight : 0;
    }
  SimMemoryError error = most_likely (peaks, weights);
  error.scope.stack = (char *)stack;
  error.runs = (guint)(total + 0.5);
  sim_adjustments_add_memory (set, error);
}

static int
compare_names (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *)a, *(const char *const *)b);
}

void
advise_uncertainty_fit_memory (const AdviseValidation *validation, SimAdjustments *set)
{
  g_autoptr (GArray) peaks = collect_peaks (validation);
  g_autoptr (GPtrArray) stacks = g_ptr_array_new ();
  double total = 0;
  for (guint i = 0; i < peaks->len; i++)
    {
      const char *stack = g_array_index (peaks, Peak, i).stack;
      if (!g_ptr_array_find_with_equal_func (stacks, stack, g_str_equal, NULL))
        g_ptr_array_add (stacks, (gpointer)stack);
      total += g_array_index (peaks, Peak, i).weight;
    }
  if (total < SIM_ENOUGH_RUNS)
    return;
  g_ptr_array_sort (stacks, compare_names);
  for (guint i = 0; i < stacks->len; i++)
    if (weight_of (peaks, stacks->pdata[i]) >= 1)
      add_memory (peaks, stacks, stacks->pdata[i], set);
  add_memory (peaks, stacks, NULL, set);
}

/* Two measured plans for one task. */
typedef struct
{
  double miss, weight; /* logarithm; all pairs of a task together have a weight of 1 */
} Pair;

/* In the logarithm: plans that are predicted further apart are surely told apart. */
#define NEAR 0.2

static gboolean
is_choice (const AdviseRun *run)
{
  return run->is_predicted && run->row.is_for_fitting && run->row.time_ok
         && run->row.measured[PLAN_RUN_QUANTITY_TIME] > 0;
}

static int
compare_choices (gconstpointer a, gconstpointer b)
{
  const AdviseRun *x = *(const AdviseRun *const *)a, *y = *(const AdviseRun *const *)b;
  const double one = x->row.measured[PLAN_RUN_QUANTITY_TIME],
               other = y->row.measured[PLAN_RUN_QUANTITY_TIME];
  if (x->question != y->question)
    return x->question < y->question ? -1 : 1;
  if (x->configuration != y->configuration)
    return x->configuration < y->configuration ? -1 : 1;
  return (one > other) - (one < other);
}

/* One row per configuration, the middle one, sorted by task. */
static GPtrArray *
collect_choices (const AdviseValidation *validation)
{
  g_autoptr (GPtrArray) all = g_ptr_array_new ();
  GPtrArray *choices = g_ptr_array_new ();
  for (guint i = 0; i < validation->runs->len; i++)
    if (is_choice (&g_array_index (validation->runs, AdviseRun, i)))
      g_ptr_array_add (all, &g_array_index (validation->runs, AdviseRun, i));
  g_ptr_array_sort (all, compare_choices);
  for (guint i = 0, end; i < all->len; i = end)
    {
      const AdviseRun *first = all->pdata[i];
      for (end = i; end < all->len; end++)
        {
          const AdviseRun *run = all->pdata[end];
          if (run->question != first->question || run->configuration != first->configuration)
            break;
        }
      g_ptr_array_add (choices, all->pdata[(i + end - 1) / 2]);
    }
  return choices;
}

static int
compare_pairs (gconstpointer a, gconstpointer b)
{
  const Pair *x = a, *y = b;
  return (x->miss > y->miss) - (x->miss < y->miss);
}

/* Adds the pairs of a task's plans. */
static void
add_pairs (AdviseRun *const *runs, guint n, GArray *pairs)
{
  for (guint i = 0; i < n; i++)
    for (guint j = 0; j < i; j++)
      {
        const PlanRunQuantity q = PLAN_RUN_QUANTITY_TIME;
        const double said = log (runs[i]->predicted[q] / runs[j]->predicted[q]);
        const double is = log (runs[i]->row.measured[q] / runs[j]->row.measured[q]);
        const Pair pair = { fabs (said - is), 2.0 / ((double)n * (n - 1)) };
        if (fabs (said) < NEAR)
          g_array_append_val (pairs, pair);
      }
}

void
advise_uncertainty_fit_choices (const AdviseValidation *validation, SimAdjustments *set)
{
  g_autoptr (GPtrArray) choices = collect_choices (validation);
  g_autoptr (GArray) pairs = g_array_new (FALSE, FALSE, sizeof (Pair));
  guint n_tasks = 0, at = 0;
  double total = 0, below = 0;
  for (guint i = 0, end; i < choices->len; i = end)
    {
      const AdviseRun *first = choices->pdata[i];
      const guint before = pairs->len;
      for (end = i; end < choices->len; end++)
        if (((const AdviseRun *)choices->pdata[end])->question != first->question)
          break;
      add_pairs ((AdviseRun *const *)&choices->pdata[i], end - i, pairs);
      n_tasks += pairs->len > before;
    }
  if (n_tasks < SIM_ENOUGH_RUNS)
    return;
  g_array_sort (pairs, compare_pairs);
  for (guint i = 0; i < pairs->len; i++)
    total += g_array_index (pairs, Pair, i).weight;
  while (at + 1 < pairs->len && (below += g_array_index (pairs, Pair, at).weight) < 0.8 * total)
    at++;
  const double pct = 100 * expm1 (g_array_index (pairs, Pair, at).miss);
  set->distances[SIM_DISTANCE_CHOICE]
      = (SimErrorRange){ .pct = floor (100 * pct + 0.5) / 100, .runs = n_tasks };
}

/* Adds words to a comma-separated list, each once and sorted; the caller frees. */
static char *
join (char *list, char **words)
{
  g_auto (GStrv) before = g_strsplit (list ? list : "", ",", -1);
  g_autoptr (GPtrArray) all = g_ptr_array_new ();
  for (char **w = before; *w; w++)
    g_ptr_array_add (all, *w);
  for (char **w = words; *w; w++)
    if (!g_ptr_array_find_with_equal_func (all, *w, g_str_equal, NULL))
      g_ptr_array_add (all, *w);
  g_ptr_array_sort (all, compare_names);
  g_ptr_array_add (all, NULL);
  g_free (list);
  char *joined = g_strjoinv (",", (char **)all->pdata);
  return *joined ? joined : (g_free (joined), NULL);
}

static SimSeen *
find_seen (SimAdjustments *set, const char *gpu, const char *stack)
{
  for (guint i = 0; i < set->seen->len; i++)
    {
      SimSeen *seen = &g_array_index (set->seen, SimSeen, i);
      if (g_strcmp0 (seen->scope.gpu, gpu) == 0 && g_strcmp0 (seen->scope.stack, stack) == 0)
        return seen;
    }
  sim_adjustments_add_seen (set,
                            (SimSeen){ .scope = { .gpu = (char *)gpu, .stack = (char *)stack } });
  return &g_array_index (set->seen, SimSeen, set->seen->len - 1);
}

static void
note_run (SimAdjustments *set, const AdviseRun *run, const char *gpu, const char *stack)
{
  const gint64 network = advise_network (run->row.cluster);
  SimSeen *seen = find_seen (set, gpu, stack);
  g_auto (GStrv) modes = advise_modes (&run->of->plan);
  g_autofree char *rate = g_strdup_printf ("%" G_GINT64_FORMAT, network);
  g_autofree char *source = advise_run_source_word (run);
  char *rates[] = { network > 0 ? rate : NULL, NULL }, *sources[] = { source, NULL };
  seen->devices = MAX (seen->devices, plan_cluster_devices (run->row.cluster));
  seen->modes = join (seen->modes, modes);
  seen->networks = join (seen->networks, rates);
  seen->sources = join (seen->sources, sources);
}

void
advise_uncertainty_note_runs (const GPtrArray *runs, const double *weights,
                              const SimAdjustments *base, SimAdjustments *set)
{
  g_autoptr (GHashTable) totals = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  if (base)
    sim_adjustments_add_uncertainties (set, base);
  for (guint i = 0; i < runs->len; i++)
    {
      const AdviseRun *run = runs->pdata[i];
      const char *scopes[][2] = { { run->row.cluster->device_name, NULL },
                                  { NULL, run->row.cell[PLAN_RUN_STACK] },
                                  { NULL, NULL } };
      for (guint s = 0; s < G_N_ELEMENTS (scopes); s++)
        {
          char *key = g_strdup_printf ("%s/%s", scopes[s][0] ? scopes[s][0] : "",
                                       scopes[s][1] ? scopes[s][1] : "");
          double *total = g_hash_table_lookup (totals, key);
          note_run (set, run, scopes[s][0], scopes[s][1]);
          if (!total)
            g_hash_table_insert (totals, g_strdup (key), total = g_new0 (double, 1));
          *total += weights[i];
          g_free (key);
        }
    }
  for (guint i = 0; i < set->seen->len; i++)
    {
      SimSeen *seen = &g_array_index (set->seen, SimSeen, i);
      g_autofree char *key = g_strdup_printf ("%s/%s", seen->scope.gpu ? seen->scope.gpu : "",
                                              seen->scope.stack ? seen->scope.stack : "");
      const double *total = g_hash_table_lookup (totals, key);
      seen->runs += total ? (guint)(*total + 0.5) : 0;
    }
}

guint
advise_part_of (const char *name, GHashTable *names)
{
  gpointer known = g_hash_table_lookup (names, name);
  if (!known)
    g_hash_table_insert (names, g_strdup (name),
                         known = GUINT_TO_POINTER (g_hash_table_size (names) + 1));
  return GPOINTER_TO_UINT (known);
}

/* Fits to all rows but those of each part in turn. */
static SimAdjustments *
leave_out (SimObservation *rows, guint n, guint n_parts, const SimAdjustments *base, const char *id,
           GError **error)
{
  const SimCalibration request
      = { .id = id, .base = base, .n_parts = n_parts, .n_threads = g_get_num_processors () };
  return sim_calibrate (&request, rows, n, error);
}

/* The error within which four fifths of the runs of GPUs or of stacks lie that were left out. */
static gboolean
fit_distance (const GPtrArray *runs, SimObservation *rows, SimDistance distance,
              const SimAdjustments *base, SimAdjustments *set, GError **error)
{
  g_autoptr (GHashTable) names = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; i < runs->len; i++)
    rows[i].part
        = advise_part_of (distance == SIM_DISTANCE_GPU ? rows[i].gpu : rows[i].stack, names);
  g_autoptr (SimAdjustments) others
      = leave_out (rows, runs->len, g_hash_table_size (names) + 1, base, set->id, error);
  if (!others)
    return FALSE;
  const SimErrorRange all = sim_uncertainty_spread (others, NULL, NULL, FALSE);
  if (all.runs > 0)
    set->distances[distance] = all;
  return TRUE;
}

/* Whether any runs lack a mode, and any without experts have it; `holders` says which have it. */
static gboolean
can_be_left_out (const char *holders, const SimObservation *rows)
{
  gboolean has_dense = FALSE;
  for (guint i = 0; holders[i]; i++)
    has_dense = has_dense || (holders[i] == 'x' && !rows[i].has_experts);
  return has_dense && strchr (holders, '-');
}

/* The modes of runs without experts, each as a string of which runs have it. Modes that the same
 * runs have cannot be told apart, so that they are one. */
static GHashTable *
find_modes (const GPtrArray *runs, const SimObservation *rows)
{
  g_autoptr (GHashTable) all = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  GHashTable *distinct = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  GHashTableIter each;
  gpointer mode, holders;
  for (guint i = 0; i < runs->len; i++)
    {
      g_auto (GStrv) words = advise_modes (&((const AdviseRun *)runs->pdata[i])->of->plan);
      for (char **w = words; *w; w++)
        {
          if (!g_hash_table_contains (all, *w))
            g_hash_table_insert (all, g_strdup (*w), g_strnfill (runs->len, '-'));
          ((char *)g_hash_table_lookup (all, *w))[i] = 'x';
        }
    }
  g_hash_table_iter_init (&each, all);
  while (g_hash_table_iter_next (&each, &mode, &holders))
    if (can_be_left_out (holders, rows))
      g_hash_table_add (distinct, g_strdup (holders));
  return distinct;
}

/* How far off the runs of a mode are on the whole that were all left out, each mode counting once.
 * What single runs vary besides is in every spread already. Models with experts have an offset of
 * their own. */
static gboolean
fit_modes (const GPtrArray *runs, SimObservation *rows, const SimAdjustments *base,
           SimAdjustments *set, GError **error)
{
  g_autoptr (GHashTable) modes = find_modes (runs, rows);
  g_autoptr (GArray) offsets = g_array_new (FALSE, FALSE, sizeof (SimOffset));
  g_autoptr (GList) sorted = g_list_sort (g_hash_table_get_keys (modes), (GCompareFunc)strcmp);
  for (const GList *at = sorted; at; at = at->next)
    {
      SimOffset offset = { 0 };
      for (guint i = 0; i < runs->len; i++)
        rows[i].part = ((const char *)at->data)[i] == 'x';
      g_autoptr (SimAdjustments) others = leave_out (rows, runs->len, 2, base, set->id, error);
      if (!others)
        return FALSE;
      for (guint i = 0; i < runs->len; i++)
        if (rows[i].part == 1 && !rows[i].has_experts)
          sim_offset_add (&offset, &rows[i], rows[i].without_part_ns, 1);
      g_array_append_val (offsets, offset);
    }
  const SimErrorRange found
      = sim_offset_range ((const SimOffset *)(gpointer)offsets->data, offsets->len);
  if (found.runs > 0)
    set->distances[SIM_DISTANCE_MODE] = found;
  return TRUE;
}

gboolean
advise_uncertainty_fit_distances (const GPtrArray *runs, const SimObservation *rows,
                                  const SimAdjustments *base, SimAdjustments *set, GError **error)
{
  g_autofree SimObservation *copy = g_memdup2 (rows, runs->len * sizeof *rows);
  return fit_distance (runs, copy, SIM_DISTANCE_GPU, base, set, error)
         && fit_distance (runs, copy, SIM_DISTANCE_STACK, base, set, error)
         && fit_modes (runs, copy, base, set, error);
}
