/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/diff-explain.h"

#include "advise/explain-memory.h"
#include "advise/explain-time.h"

#include <math.h>
#include <string.h>

/* A quantity, as much of it as each of the two plans has. */
typedef struct
{
  char *what;
  double of[2];
} Line;

static void
line_clear (gpointer data)
{
  g_free (((Line *)data)->what);
}

static GArray *
lines_new (void)
{
  GArray *self = g_array_new (FALSE, FALSE, sizeof (Line));
  g_array_set_clear_func (self, line_clear);
  return self;
}

/* Adds to the line with that name, or to a new line at the end. */
static void
add (GArray *lines, const char *what, guint side, double value)
{
  guint i = 0;
  while (i < lines->len && strcmp (g_array_index (lines, Line, i).what, what) != 0)
    i++;
  if (i == lines->len)
    {
      const Line line = { .what = g_strdup (what) };
      g_array_append_val (lines, line);
    }
  g_array_index (lines, Line, i).of[side] += value;
}

/* Orders lines by how much they differ, the largest difference first. */
static gint
compare_changes (gconstpointer a, gconstpointer b)
{
  const Line *x = a, *y = b;
  const double d = fabs (y->of[1] - y->of[0]) - fabs (x->of[1] - x->of[0]);
  return d > 0 ? 1 : d < 0 ? -1 : strcmp (x->what, y->what);
}

static void
print_lines (CliTable *table, const GArray *lines, gboolean all, int decimals)
{
  for (guint i = 0; i < lines->len; i++)
    {
      const Line *line = &g_array_index (lines, Line, i);
      const double change = line->of[1] - line->of[0];
      if (!all && fabs (change) < 0.5 * pow (10, -decimals))
        continue;
      cli_table_add (table, line->what);
      cli_table_add_real (table, line->of[0], decimals);
      cli_table_add_real (table, line->of[1], decimals);
      cli_table_add_real (table, change, decimals);
    }
}

void
cli_compare_memory (CliTable *table, const AdvisePrediction *a, const AdvisePrediction *b)
{
  const AdvisePrediction *const sides[] = { a, b };
  g_autoptr (GArray) sums = lines_new ();
  g_autoptr (GArray) buffers = lines_new ();
  for (guint side = 0; side < 2; side++)
    {
      g_autoptr (GArray) lines = advise_explain_memory (sides[side]);
      g_autoptr (GArray) residents = advise_residents (sides[side]);
      for (guint i = 0; i < lines->len; i++)
        {
          const AdviseMemoryLine *line = &g_array_index (lines, AdviseMemoryLine, i);
          add (sums, line->what, side, advise_mib (line->bytes));
        }
      for (guint i = 0; i < residents->len; i++)
        {
          const AdviseResident *one = &g_array_index (residents, AdviseResident, i);
          g_autofree char *what
              = g_strconcat (plan_category_name (one->category), ": ", one->name, NULL);
          add (buffers, what, side, advise_mib (one->each * (guint64)one->at_peak));
        }
    }
  double all[2] = { 0, 0 };
  for (guint i = 0; i < sums->len; i++)
    for (guint side = 0; side < 2; side++)
      all[side] += g_array_index (sums, Line, i).of[side];
  for (guint side = 0; side < 2; side++)
    add (sums, "all", side, all[side]);
  g_array_sort (buffers, compare_changes);
  print_lines (table, sums, TRUE, 1);
  print_lines (table, buffers, FALSE, 1);
}

gboolean
cli_compare_time (CliTable *table, const AdviseInput *const inputs[2],
                  const AdvisePrediction *const predictions[2], GError **error)
{
  g_autoptr (GArray) lines = lines_new ();
  for (guint side = 0; side < 2; side++)
    {
      g_autoptr (GArray) ops = advise_explain_time (inputs[side], predictions[side], error);
      if (!ops)
        return FALSE;
      for (guint i = 0; i < ops->len; i++)
        {
          const AdviseOpTime *op = &g_array_index (ops, AdviseOpTime, i);
          g_autofree char *what = g_strdup_printf ("%s: %s to %s", op->stream, op->op, op->writes);
          add (lines, what, side, 1e-6 * (double)op->total_ns);
        }
    }
  g_array_sort (lines, compare_changes);
  print_lines (table, lines, FALSE, 3);
  return TRUE;
}
