/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/runs/accuracy.h"

#include <math.h>
#include <string.h>

#define TOLERATED_SHARE 0.05
#define TOLERATED 200.0

static int
compare_reals (gconstpointer a, gconstpointer b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static GArray *
reals_new (void)
{
  return g_array_new (FALSE, FALSE, sizeof (double));
}

/* The median; sorts the values. */
static double
median (GArray *values)
{
  const guint n = values->len;
  g_array_sort (values, compare_reals);
  return n == 0
             ? 0
             : (g_array_index (values, double, (n - 1) / 2) + g_array_index (values, double, n / 2))
                   / 2;
}

static double
mean (const GArray *values)
{
  double sum = 0;
  for (guint i = 0; i < values->len; i++)
    sum += g_array_index (values, double, i);
  return values->len > 0 ? sum / values->len : 0;
}

/* The smallest of the sorted values that is not exceeded by at least `percent` per cent of them. */
static double
percentile (const GArray *values, guint percent)
{
  const guint n = values->len;
  return n == 0 ? 0 : g_array_index (values, double, (n * percent + 99) / 100 - 1);
}

static int
compare_samples (gconstpointer a, gconstpointer b)
{
  const PlanSample *x = a, *y = b;
  return x->group != y->group
             ? (x->group > y->group) - (x->group < y->group)
             : (x->configuration > y->configuration) - (x->configuration < y->configuration);
}

static PlanSample *
sorted (const PlanSample *samples, guint n)
{
  PlanSample *copy = g_new (PlanSample, n + 1);
  if (n > 0)
    memcpy (copy, samples, n * sizeof *samples);
  qsort (copy, n, sizeof *copy, compare_samples);
  return copy;
}

/* The errors of a sample that are reported. Each goes through two medians: of a configuration's
 * samples, then of a group's configurations. */
typedef enum
{
  ERROR_ABS_PCT,
  ERROR_PCT,
  ERROR_ABS,
  ERROR_BEYOND, /* error over tolerance; up to 1 it is within the tolerance */
  N_ERRORS
} Error;

static double
error_of (const PlanSample *s, Error which)
{
  const double off = s->predicted - s->measured;
  switch (which)
    {
    case ERROR_ABS_PCT:
      return 100 * fabs (off) / s->measured;
    case ERROR_PCT:
      return 100 * off / s->measured;
    case ERROR_ABS:
      return fabs (off);
    case ERROR_BEYOND:
      return fabs (off) / plan_accuracy_tolerance (s->measured);
    case N_ERRORS:
      break;
    }
  g_return_val_if_reached (0);
}

double
plan_accuracy_tolerance (double measured)
{
  return MAX (TOLERATED_SHARE * measured, TOLERATED);
}

static guint
length_of_configuration (const PlanSample *samples, guint n)
{
  guint length = 1;
  while (length < n && compare_samples (&samples[0], &samples[length]) == 0)
    length++;
  return length;
}

/* Mean distance of repeated measurements from their median, in per cent. */
static double
noise_of (const PlanSample *repeats, guint n)
{
  g_autoptr (GArray) values = reals_new ();
  double sum = 0;
  for (guint i = 0; i < n; i++)
    g_array_append_val (values, repeats[i].measured);
  const double middle = median (values);
  for (guint i = 0; i < n; i++)
    sum += fabs (repeats[i].measured - middle);
  return 100 * sum / n / middle;
}

/* The error of each group, in order. */
static GArray *
errors_of_groups (const PlanSample *samples, guint n, Error which)
{
  GArray *errors = reals_new ();
  for (guint i = 0; i < n;)
    {
      g_autoptr (GArray) configurations = reals_new ();
      const guint group = samples[i].group;
      while (i < n && samples[i].group == group)
        {
          g_autoptr (GArray) rows = reals_new ();
          const guint end = i + length_of_configuration (&samples[i], n - i);
          for (; i < end; i++)
            {
              const double error = error_of (&samples[i], which);
              g_array_append_val (rows, error);
            }
          const double error = median (rows);
          g_array_append_val (configurations, error);
        }
      const double error = median (configurations);
      g_array_append_val (errors, error);
    }
  return errors;
}

static void
count (const PlanSample *samples, guint n, PlanAccuracy *out)
{
  double noise = 0;
  for (guint i = 0; i < n;)
    {
      const guint length = length_of_configuration (&samples[i], n - i);
      out->n_configurations++;
      if (length > 1)
        {
          out->n_repeated++;
          noise += noise_of (&samples[i], length);
        }
      i += length;
    }
  out->n_rows = n;
  out->noise_pct = out->n_repeated > 0 ? noise / out->n_repeated : 0;
}

void
plan_accuracy_measure (const PlanSample *samples, guint n_samples, PlanAccuracy *out_accuracy)
{
  g_autofree PlanSample *copy = sorted (samples, n_samples);
  g_autoptr (GArray) abs_pct = errors_of_groups (copy, n_samples, ERROR_ABS_PCT);
  g_autoptr (GArray) pct = errors_of_groups (copy, n_samples, ERROR_PCT);
  g_autoptr (GArray) plain = errors_of_groups (copy, n_samples, ERROR_ABS);
  g_autoptr (GArray) beyond = errors_of_groups (copy, n_samples, ERROR_BEYOND);
  PlanAccuracy self = { .n = abs_pct->len };
  guint n_within = 0;
  count (copy, n_samples, &self);
  self.mean_abs_pct = mean (abs_pct);
  self.median_abs_pct = median (abs_pct);
  self.p90_abs_pct = percentile (abs_pct, 90);
  self.max_abs_pct = percentile (abs_pct, 100);
  self.bias_pct = mean (pct);
  self.mean_abs = mean (plain);
  for (guint i = 0; i < beyond->len; i++)
    n_within += g_array_index (beyond, double, i) <= 1;
  self.within_pct = self.n > 0 ? 100.0 * n_within / self.n : 0;
  *out_accuracy = self;
}

/* The distribution and its inverse have closed forms for four degrees of freedom (Shaw 2006,
 * "Sampling Student's T distribution", J. Computational Finance 9). */
double
plan_accuracy_share_below (double z)
{
  const double s = z / sqrt (4 + z * z);
  return 0.5 + 0.75 * s - 0.25 * s * s * s;
}

double
plan_accuracy_below_share (double share)
{
  const double root = sqrt (MIN (4 * share * (1 - share), 1));
  const double z = 2 * sqrt (MAX (cos (acos (root) / 3) / root - 1, 0));
  return share < 0.5 ? -z : z;
}

typedef struct
{
  double scale, weight;
} Scale;

static int
compare_scales (gconstpointer a, gconstpointer b)
{
  return compare_reals (&((const Scale *)a)->scale, &((const Scale *)b)->scale);
}

/* Since |c p - m| / m = p / m |c - m / p|, the best c is the median of m / p weighted by p / m. */
double
plan_accuracy_best_scale (const PlanSample *samples, guint n_samples)
{
  g_autofree PlanSample *copy = sorted (samples, n_samples);
  g_autofree Scale *scales = g_new (Scale, n_samples + 1);
  double total = 0, sum = 0;
  for (guint i = 0; i < n_samples;)
    {
      guint end = i + 1;
      while (end < n_samples && copy[end].group == copy[i].group)
        end++;
      const guint n = end - i;
      for (; i < end; i++)
        {
          const double scale = copy[i].measured / copy[i].predicted;
          scales[i] = (Scale){ scale, 1 / scale / n };
          total += scales[i].weight;
        }
    }
  qsort (scales, n_samples, sizeof *scales, compare_scales);
  for (guint i = 0; i < n_samples; i++)
    if ((sum += scales[i].weight) >= total / 2)
      return scales[i].scale;
  return 0;
}

static int
compare_candidates (gconstpointer a, gconstpointer b)
{
  const PlanCandidate *x = a, *y = b;
  return x->question != y->question
             ? (x->question > y->question) - (x->question < y->question)
             : (x->configuration > y->configuration) - (x->configuration < y->configuration);
}

/* Merges the rows of each configuration into one, with the median of their measurements. Returns
 * how many are left. */
static guint
merge_repeats (PlanCandidate *choices, guint n)
{
  guint n_left = 0;
  for (guint i = 0; i < n;)
    {
      g_autoptr (GArray) measured = reals_new ();
      PlanCandidate one = choices[i];
      for (; i < n && compare_candidates (&one, &choices[i]) == 0; i++)
        g_array_append_val (measured, choices[i].measured);
      one.measured = median (measured);
      choices[n_left++] = one;
    }
  return n_left;
}

/* The candidate that predictions choose: the fastest of those predicted to fit, or of all where
 * none is. */
static const PlanCandidate *
choose (const PlanCandidate *choices, guint n)
{
  const PlanCandidate *best = &choices[0];
  for (guint i = 1; i < n; i++)
    if (choices[i].fits != best->fits ? choices[i].fits : choices[i].predicted < best->predicted)
      best = &choices[i];
  return best;
}

static void
add_question (PlanRegret *self, const PlanCandidate *choices, guint n)
{
  double least = choices[0].measured, sum = 0;
  for (guint i = 0; i < n; i++)
    {
      least = MIN (least, choices[i].measured);
      sum += choices[i].measured;
    }
  const double regret = 100 * (choose (choices, n)->measured / least - 1);
  self->n++;
  self->n_best += regret <= 0;
  self->mean_pct += regret;
  self->max_pct = MAX (self->max_pct, regret);
  self->blind_pct += 100 * (sum / n / least - 1);
}

void
plan_accuracy_regret (const PlanCandidate *choices, guint n_choices, PlanRegret *out_regret)
{
  g_autofree PlanCandidate *copy = g_new (PlanCandidate, n_choices + 1);
  PlanRegret self = { 0 };
  if (n_choices > 0)
    memcpy (copy, choices, n_choices * sizeof *choices);
  qsort (copy, n_choices, sizeof *copy, compare_candidates);
  const guint n = merge_repeats (copy, n_choices);
  for (guint i = 0; i < n;)
    {
      guint end = i + 1;
      while (end < n && copy[end].question == copy[i].question)
        end++;
      if (end - i > 1)
        add_question (&self, &copy[i], end - i);
      i = end;
    }
  if (self.n > 0)
    {
      self.mean_pct /= self.n;
      self.blind_pct /= self.n;
    }
  *out_regret = self;
}
