/* SPDX-License-Identifier: Apache-2.0 */
/* A log of steps: what is read has runs whose steps go up, and times that are not negative. A log
 * that breaks off behind its last whole line is read, too, and has no more steps. */
#include "config.h"

#include "planner/runs/step-log.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static guint
count_steps (const GPtrArray *runs)
{
  guint n = 0;
  for (guint r = 0; r < runs->len; r++)
    {
      const PlanLoggedRun *run = runs->pdata[r];
      gint64 last = 0;
      for (guint i = 0; i < run->steps->len; i++)
        {
          const PlanLoggedStep *step = &g_array_index (run->steps, PlanLoggedStep, i);
          if (step->step <= last || step->step_ns < 0)
            abort ();
          last = step->step;
        }
      if (run->cells->len % 2 != 0 || run->measured_ns < 0)
        abort ();
      n += run->steps->len;
    }
  return n;
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autoptr (GError) error = NULL;
  g_autoptr (GPtrArray) runs = plan_step_log_read (text, "fuzz", &error);
  if ((runs == NULL) != (error != NULL))
    abort ();
  fuzz_count (runs != NULL);
  if (!runs)
    return 0;
  const guint n = count_steps (runs);
  char *end = strrchr (text, '\n');
  if (end)
    end[1] = '\0';
  g_autoptr (GPtrArray) before = plan_step_log_read (text, "fuzz", NULL);
  if (!before || count_steps (before) > n)
    abort ();
  return 0;
}
