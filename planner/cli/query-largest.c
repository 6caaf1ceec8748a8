/* SPDX-License-Identifier: Apache-2.0 */
/* The largest sequence or micro batch that fits. A larger one never takes less memory, so sequences
 * are found by halving; micro batches divide the global one, and each is tried. */
#include "config.h"

#include "planner/cli/query.h"
#include "planner/error.h"

#include <stdio.h>
#include <string.h>

#define MOST_TOKENS (G_GINT64_CONSTANT (1) << 28)

typedef struct
{
  const CliQuestion *question;
  CliInput input; /* borrowed, but for the plan */
  PlanField field;
  CliChoice choice;
} Largest;

static gboolean
choose (Largest *self, gint64 value, GError **error)
{
  self->input.plan.value[self->field] = value;
  if (!cli_choice_init (&self->choice, self->question, &self->input, error))
    return FALSE;
  self->choice.pinned[self->field] = TRUE;
  return TRUE;
}

static gboolean
try_value (Largest *self, gint64 value, gboolean *out_fits, GError **error)
{
  return choose (self, value, error) && cli_query_fits (&self->choice, out_fits, error);
}

/* Doubles until it is too much, then halves the gap. 0: not even the first fits. */
static gboolean
find_seq (Largest *self, gint64 step, gint64 *out_good, gint64 *out_bad, GError **error)
{
  gint64 low = 0, high = step;
  gboolean fits = TRUE;
  while (fits && high < MOST_TOKENS)
    {
      if (!try_value (self, high, &fits, error))
        return FALSE;
      low = fits ? high : low;
      high = fits ? high * 2 : high;
    }
  while (high - low > step)
    {
      const gint64 middle = (low + high) / 2 / step * step;
      if (!try_value (self, middle, &fits, error))
        return FALSE;
      low = fits ? middle : low;
      high = fits ? high : middle;
    }
  *out_good = low;
  *out_bad = high;
  return TRUE;
}

/* Divisors of the global batch, from below; 0 where there is none that does not fit. */
static gboolean
find_mbs (Largest *self, gint64 *out_good, gint64 *out_bad, GError **error)
{
  const gint64 gbs = self->input.plan.value[PLAN_GBS];
  *out_good = *out_bad = 0;
  for (gint64 value = 1; value <= gbs && *out_bad == 0; value++)
    {
      gboolean fits;
      if (gbs % value != 0)
        continue;
      if (!try_value (self, value, &fits, error))
        return FALSE;
      if (fits)
        *out_good = value;
      else
        *out_bad = value;
    }
  return TRUE;
}

/* Why a value does not do: the memory it lacks, or the rule it breaks; the caller frees. */
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
  if (cli_query_least (&self->choice, &plan, &bytes, &why))
    return g_strdup_printf ("%s=%" G_GINT64_FORMAT " does not fit: the least any plan takes is "
                            "%.1f MiB, %.1f too much",
                            name, bad, cli_mib (bytes),
                            cli_mib (bytes - self->choice.memory_bytes));
  g_clear_error (&why);
  if (plan_resolve (&self->input.plan, self->input.model, self->input.cluster, &plan, &why))
    return g_strdup_printf ("%s=%" G_GINT64_FORMAT " leaves no legal plan", name, bad);
  return g_strdup_printf ("%s=%" G_GINT64_FORMAT " leaves no legal plan: %s", name, bad,
                          why->message);
}

gboolean
cli_query_largest (const CliQuestion *question, const CliInput *input, const char *field,
                   gint64 step, CliFormat format, GError **error)
{
  Largest self = { .question = question, .input = *input };
  gint64 good, bad;
  g_auto (CliQuery) query = { 0 };
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
  if (!choose (&self, good, error)
      || !cli_query_ask (&self.choice, (guint)question->top, &query, error))
    return FALSE;
  cli_query_keep_answers (question, &self.input, query.answers);
  if (format == CLI_FORMAT_TABLE)
    {
      printf ("largest that fits: %s=%" G_GINT64_FORMAT, field, good);
      if (self.field == PLAN_SEQ)
        printf (" in steps of %" G_GINT64_FORMAT, step);
      printf ("; %s\n\n", next);
    }
  cli_query_print (&query, &self.choice, format);
  return TRUE;
}
