/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of an op, a shape and its formats, with tabs between: what parses prints as the same, and a
 * time that is found for it is above 0. */
#include "config.h"

#include "sim/cost/timings.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static void
check (const SimTiming *row)
{
  SimTiming again = { .ranks = 1 };
  g_autofree char *shape = sim_timing_print_shape (row);
  g_autofree char *format = sim_timing_print_format (row);
  if (!sim_timing_parse (plan_op_name (row->kind), shape, format, &again, NULL)
      || memcmp (again.dims, row->dims, sizeof row->dims) != 0
      || memcmp (again.dtype, row->dtype, sizeof row->dtype) != 0)
    abort ();
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_auto (GStrv) lines = g_strsplit (text, "\n", 64);
  g_autoptr (GArray) rows = g_array_new (FALSE, FALSE, sizeof (SimTiming));
  for (char **line = lines; *line; line++)
    {
      g_auto (GStrv) words = g_strsplit (*line, "\t", 3);
      g_autoptr (GError) error = NULL;
      SimTiming row = { .ranks = 1, .ns = 1000 };
      if (g_strv_length (words) < 3)
        continue;
      if (sim_timing_parse (words[0], words[1], words[2], &row, &error) != (error == NULL))
        abort ();
      if (error)
        continue;
      check (&row);
      g_array_append_val (rows, row);
    }
  fuzz_count (rows->len > 0);
  g_autoptr (SimTimings) timings
      = sim_timings_new ((const SimTiming *)(gpointer)rows->data, rows->len);
  for (guint i = 0; i < rows->len; i++)
    {
      double ns;
      SimTimed how;
      const SimTiming *row = &g_array_index (rows, SimTiming, i);
      if (sim_timings_find (timings, row, 1, &ns, &how) && !(ns > 0))
        abort ();
    }
  return 0;
}
