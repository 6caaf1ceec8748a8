/* SPDX-License-Identifier: Apache-2.0 */
/* Any text is a plan or an error; what is a plan prints and parses. */
#include "config.h"

#include "planner/megatron/megatron.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autoptr (GError) error = NULL;
  g_auto (PlanMegatron) megatron = { 0 };
  const gint64 date = size % 2 ? 20260310 : 0; /* of Megatron-LM: an older version, or the newest */
  if (plan_megatron_parse (text, "fuzz", date, &megatron, &error) == (error != NULL))
    abort ();
  fuzz_count (!error);
  if (error)
    return 0;
  g_autofree char *printed = plan_print (&megatron.plan);
  Plan again;
  if (!plan_parse (printed, "again", &again, NULL)
      || memcmp (&again, &megatron.plan, sizeof again) != 0)
    abort ();
  g_autoptr (PlanModel) model = plan_megatron_model (&megatron, &error);
  if ((model == NULL) != (error != NULL))
    abort ();
  return 0;
}
