/* SPDX-License-Identifier: Apache-2.0 */
/* What parses must print and parse again to the same text. */
#include "config.h"

#include "planner/schedule/schedule.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "fuzz", &error);
  if ((schedule == NULL) != (error != NULL))
    abort ();
  fuzz_count (schedule != NULL);
  if (!schedule)
    return 0;
  g_autofree char *printed = plan_schedule_print (schedule);
  g_autoptr (PlanSchedule) again = plan_schedule_parse (printed, "again", NULL);
  if (!again)
    abort ();
  g_autofree char *printed_again = plan_schedule_print (again);
  if (g_strcmp0 (printed, printed_again) != 0)
    abort ();
  return 0;
}
