/* SPDX-License-Identifier: Apache-2.0 */
/* What parses must print and parse again to the same text. */
#include "config.h"

#include "planner/schedule/trace.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanTrace) trace = plan_trace_parse (text, "fuzz", &error);
  if ((trace == NULL) != (error != NULL))
    abort ();
  fuzz_count (trace != NULL);
  if (!trace)
    return 0;
  g_autofree char *printed = plan_trace_print (trace);
  g_autoptr (PlanTrace) again = plan_trace_parse (printed, "again", NULL);
  if (!again)
    abort ();
  g_autofree char *printed_again = plan_trace_print (again);
  if (g_strcmp0 (printed, printed_again) != 0)
    abort ();
  return 0;
}
