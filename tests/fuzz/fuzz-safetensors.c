/* SPDX-License-Identifier: Apache-2.0 */
/* What parses lies inside the file, and every tensor is found by its name. */
#include "config.h"

#include "planner/model/safetensors.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSafetensors) header = plan_safetensors_parse (data, size, "fuzz", &error);
  if ((header == NULL) != (error != NULL))
    abort ();
  fuzz_count (header != NULL);
  for (guint i = 0; header && i < header->tensors->len; i++)
    {
      const PlanSafetensor *tensor = &g_array_index (header->tensors, PlanSafetensor, i);
      if (tensor->begin > size || tensor->bytes > size - tensor->begin
          || plan_safetensors_find (header, tensor->name) != tensor)
        abort ();
      if (tensor->dtype != PLAN_N_DTYPES
          && plan_dtype_bytes (tensor->dtype, plan_safetensor_elements (tensor)) != tensor->bytes)
        abort ();
    }
  return 0;
}
