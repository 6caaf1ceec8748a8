/* SPDX-License-Identifier: Apache-2.0 */
/* A table of training runs, in pieces of a size that the first byte tells: rows are whole, those
 * that can be planned have all of a plan, and the pieces do not matter. */
#include "config.h"

#include "planner/runs/run-table.h"
#include "tests/fuzz/accepted.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static guint n_rows;

static void
take (PlanRunRow *row, const char *wrong, gpointer user_data)
{
  GString *seen = user_data;
  if ((row == NULL) != (wrong != NULL))
    abort ();
  if (!row)
    {
      g_string_append (seen, wrong);
      return;
    }
  if (!row->cell[PLAN_RUN_ROW_ID] || (row->skipped == NULL) != (row->model != NULL)
      || (row->model != NULL) != (row->cluster != NULL))
    abort ();
  for (guint q = 0; q < PLAN_N_RUN_QUANTITIES; q++)
    if (!(row->measured[q] >= 0)
        || (row->measured[q] > 0
            && !isfinite (1e200 / row->measured[q]))) /* errors in percent stay finite */
      abort ();
  n_rows += row->skipped ? 0 : 1;
  g_autofree char *plan = plan_print (&row->plan);
  Plan again;
  if (!plan_parse (plan, "plan", &again, NULL))
    abort ();
  if (row->model && !plan_model_check (row->model, NULL))
    abort ();
  g_string_append_printf (seen, "%" G_GUINT64_FORMAT "%s%s", row->line, plan,
                          row->skipped ? row->skipped : "");
}

static char *
read_all (const char *text, gsize length, gsize piece)
{
  GString *seen = g_string_new (NULL);
  g_autoptr (PlanRunTable) table = plan_run_table_new ("fuzz.csv", take, seen);
  g_autoptr (GError) error = NULL;
  gboolean ok = TRUE;
  for (gsize at = 0; ok && at < length; at += piece)
    ok = plan_run_table_feed (table, text + at, MIN (piece, length - at), &error);
  if (ok)
    ok = plan_run_table_end (table, &error);
  if (ok != (error == NULL))
    abort ();
  g_string_append (seen, error ? error->message : "");
  return g_string_free (seen, FALSE);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  if (size == 0)
    return 0;
  n_rows = 0;
  g_autofree char *whole = read_all ((const char *)data, size, size);
  fuzz_count (n_rows > 0);
  g_autofree char *pieces = read_all ((const char *)data, size, 1 + data[0] % 64);
  if (!g_str_equal (whole, pieces))
    abort ();
  return 0;
}
