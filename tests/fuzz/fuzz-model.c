/* SPDX-License-Identifier: Apache-2.0 */
/* The text as a config.json and, where it cannot be a path, as a list of dimensions: what parses
 * must pass its check, add up, print, and parse again to the same text. */
#include "config.h"

#include "planner/model/model.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static void
check_model (const PlanModel *model, const GError *error)
{
  if ((model == NULL) != (error != NULL))
    abort ();
  if (!model)
    return;
  if (!plan_model_check (model, NULL))
    abort ();
  g_autofree char *printed = plan_model_print (model);
  g_autoptr (PlanModel) again = plan_model_new (printed, NULL);
  if (!again)
    abort ();
  g_autofree char *printed_again = plan_model_print (again);
  if (!g_str_equal (printed, printed_again)
      || plan_model_parameters (model) != plan_model_parameters (again))
    abort ();
  guint64 parts[PLAN_N_PARTS], sum = 0;
  const guint64 all = plan_model_count (model, parts);
  for (guint i = 0; i < PLAN_N_PARTS; i++)
    sum += parts[i];
  if (sum != all || plan_model_active_parameters (model) > all
      || !(plan_model_flops_per_token (model, model->max_seq, model->vocab) > 0))
    abort ();
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autoptr (GError) of_config = NULL;
  g_autoptr (GError) of_list = NULL;
  g_autoptr (PlanModel) config
      = plan_model_parse_config ((const char *)data, size, "fuzz.json", &of_config);
  check_model (config, of_config);
  g_autoptr (PlanModel) list = NULL;
  if (!strchr (text, '/') && strchr (text, '='))
    {
      list = plan_model_new (text, &of_list);
      check_model (list, of_list);
    }
  fuzz_count (config || list);
  return 0;
}
