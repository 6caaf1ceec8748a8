/* SPDX-License-Identifier: Apache-2.0 */
/* What parses must print and parse again to the same text. */
#include "config.h"

#include "sim/cost/adjust.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autoptr (GError) error = NULL;
  g_autoptr (SimAdjustments) set = sim_adjustments_parse (text, "fuzz", &error);
  if ((set == NULL) != (error != NULL))
    abort ();
  fuzz_count (set != NULL);
  if (!set)
    return 0;
  g_autofree char *printed = sim_adjustments_print (set);
  g_autoptr (SimAdjustments) again = sim_adjustments_parse (printed, "again", NULL);
  if (!again)
    abort ();
  g_autofree char *printed_again = sim_adjustments_print (again);
  if (g_strcmp0 (printed, printed_again) != 0)
    abort ();
  return 0;
}
