/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the largest sequence length or micro batch that fits.
 *
 * A larger value never takes less memory with the same plan, but fewer plans may be legal with it:
 * ranks, heads and number formats must divide sequences, and micro batches the global batch.
 * Sequence lengths with the same divisors allow the same plans, so among those bisection is right.
 * Micro batches are few, and all are tried. */
#include "config.h"

#include "advise/workspaces.h"
#include "cli/query/query-keep.h"
#include "cli/query/query.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <stdio.h>
#include <string.h>

#define MOST_TOKENS (G_GINT64_CONSTANT (1) << 28)

typedef struct
{
  const AdviseQuestion *question;
  AdviseInput input; /* borrowed, except for the plan */
  PlanField field;
  AdviseChoice choice;
} Largest;

static gboolean
choose (Largest *self, gint64 value, GError **error)
{
  self->input.plan.value[self->field] = value;
  if (!cli_query_choose (&self->choice, self->question, &self->input, error))
    return FALSE;
  self->choice.pinned[self->field] = TRUE;
  return TRUE;
}

static gboolean
try_value (Largest *self, gint64 value, gboolean *out_fits, GError **error)
{
  return choose (self, value, error) && advise_query_fits (&self->choice, out_fits, error);
}

/* Rules require that sequences are divisible by the ranks of a node, by twice their number, and by
 * blocks of number formats. A multiple of all these allows every plan. */
#define DIVISORS 1024

/* The smallest multiple of `step` that allows every plan. */
static gint64
find_unit (const Largest *self, gint64 step)
{
  gint64 odd = self->input.cluster->devices_per_node;
  while (odd % 2 == 0)
    odd /= 2;
  return step / plan_units_gcd (step, DIVISORS * odd) * DIVISORS * odd;
}

/* The largest multiple of `unit` that fits, by doubling and then bisection; 0: not even `unit`
 * fits. */
static gboolean
find_multiple (Largest *self, gint64 unit, gint64 *out_good, GError **error)
{
  gint64 low = 0, high = unit;
  gboolean fits = TRUE;
  while (fits && high < MOST_TOKENS)
    {
      if (!try_value (self, high, &fits, error))
        return FALSE;
      low = fits ? high : low;
      high = fits ? high * 2 : high;
    }
  while (high - low > unit)
    {
      const gint64 middle = (low + high) / 2 / unit * unit;
      if (!try_value (self, middle, &fits, error))
        return FALSE;
      low = fits ? middle : low;
      high = fits ? high : middle;
    }
  *out_good = low;
  return TRUE;
}

/* Sets `good` to the largest of the sorted values that fits, by bisection; leaves it if none does.
 * No value above one that does not fit may fit. */
static gboolean
bisect (Largest *self, const GArray *values, gint64 *good, GError **error)
{
  guint low = 0, high = values->len;
  while (low < high)
    {
      const guint middle = (low + high) / 2;
      const gint64 value = g_array_index (values, gint64, middle);
      gboolean fits;
      if (!try_value (self, value, &fits, error))
        return FALSE;
      *good = fits ? value : *good;
      low = fits ? middle + 1 : low;
      high = fits ? high : middle;
    }
  return TRUE;
}

/* Finds the largest sequence length. The next multiple of `unit` does not fit, so candidates are
 * below it. They are tried by their gcd with `unit`, the largest first, since those with the same
 * one allow the same plans. */
static gboolean
find_seq (Largest *self, gint64 step, gint64 *out_good, gint64 *out_bad, GError **error)
{
  const gint64 unit = find_unit (self, step);
  gint64 good;
  if (!find_multiple (self, unit, &good, error))
    return FALSE;
  const gint64 end = good + unit;
  for (gint64 divisor = unit / 2; divisor >= step && end <= MOST_TOKENS; divisor--)
    {
      g_autoptr (GArray) values = g_array_new (FALSE, FALSE, sizeof (gint64));
      if (unit % divisor != 0 || divisor % step != 0)
        continue;
      for (gint64 value = good / divisor * divisor + divisor; value < end; value += divisor)
        if (plan_units_gcd (value, unit) == divisor)
          g_array_append_val (values, value);
      if (!bisect (self, values, &good, error))
        return FALSE;
    }
  *out_good = good;
  *out_bad = good + step;
  return TRUE;
}

/* Finds the largest micro batch among the divisors of the global batch. *out_bad is the smallest
 * larger one that does not fit; 0: there is none. */
static gboolean
find_mbs (Largest *self, gint64 *out_good, gint64 *out_bad, GError **error)
{
  const gint64 gbs = self->input.plan.value[PLAN_GBS];
  *out_good = *out_bad = 0;
  for (gint64 value = 1; value <= gbs; value++)
    {
      gboolean fits;
      if (gbs % value != 0)
        continue;
      if (!try_value (self, value, &fits, error))
        return FALSE;
      *out_good = fits ? value : *out_good;
      *out_bad = fits ? 0 : *out_bad ? *out_bad : value;
    }
  return TRUE;
}

/* Why a value does not work: the memory that is lacking, or the rule that refuses it. The caller
 * frees. */
static char *
explain (Largest *self, gint64 bad)
{
  g_autoptr (GError) why = NULL;
  const char *name = plan_field_name (self->field);
  guint64 bytes;
  Plan plan;
  if (bad == 0)
    return g_strdup ("no larger one divides gbs");
  if (!choose (self, bad, &why))
    return g_strdup (why->message);
  if (advise_query_least (&self->choice, &plan, &bytes, &why))
    return g_strdup_printf ("%s=%" G_GINT64_FORMAT " does not fit: the least any plan takes is "
                            "%.1f MiB, %.1f too much",
                            name, bad, advise_mib (bytes),
                            advise_mib (bytes - self->choice.memory_bytes));
  g_clear_error (&why);
  g_autoptr (PlanCase) of = advise_case (&self->input, &self->input.plan, &why);
  if (of)
    return g_strdup_printf ("%s=%" G_GINT64_FORMAT " leaves no legal plan", name, bad);
  return g_strdup_printf ("%s=%" G_GINT64_FORMAT " leaves no legal plan: %s", name, bad,
                          why->message);
}

/* If the next smaller value does not fit, a sentence that says so; else NULL. The caller frees. */
static char *
explain_exception (Largest *self, gint64 good, gint64 step)
{
  gboolean fits = TRUE;
  if (self->field != PLAN_SEQ || good <= step || !try_value (self, good - step, &fits, NULL)
      || fits)
    return NULL;
  g_autofree char *why = explain (self, good - step);
  return g_strdup_printf ("not every smaller one fits, for fewer plans are legal with it: %s", why);
}

gboolean
cli_query_largest (const AdviseQuestion *question, const AdviseInput *input, const char *field,
                   gint64 step, CliFormat format, GError **error)
{
  Largest self = { .question = question, .input = *input };
  gint64 good, bad;
  g_auto (AdviseQuery) query = { 0 };
  self.field = strcmp (field, "mbs") == 0 ? PLAN_MBS : PLAN_SEQ;
  if (!(self.field == PLAN_MBS ? find_mbs (&self, &good, &bad, error)
                               : find_seq (&self, step, &good, &bad, error)))
    return FALSE;
  self.input.plan = input->plan;
  g_autofree char *next = explain (&self, bad);
  if (good == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE, "no %s fits: %s", field, next);
      return FALSE;
    }
  g_autofree char *exception = explain_exception (&self, good, step);
  if (!choose (&self, good, error)
      || !advise_query_ask (&self.choice, (guint)question->top, &query, error))
    return FALSE;
  cli_query_keep_answers (question, &self.input, query.answers);
  if (format == CLI_FORMAT_TABLE)
    {
      printf ("largest that fits: %s=%" G_GINT64_FORMAT, field, good);
      if (self.field == PLAN_SEQ)
        printf (" in steps of %" G_GINT64_FORMAT, step);
      printf ("; %s\n", next);
      if (exception)
        printf ("%s\n", exception);
      putchar ('\n');
    }
  cli_query_print (&query, &self.choice, format);
  return TRUE;
}
