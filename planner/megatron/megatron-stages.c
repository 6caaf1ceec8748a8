/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/megatron/megatron-stages.h"

#include "planner/base/error.h"
#include "planner/plan/pp-layout.h"
#include "planner/plan/stages.h"

#define F(id) PLAN_MEGATRON_##id

static gboolean fail (PlanMegatronFlag flag, PlanErrorCode code, GError **error, const char *format,
                      ...) G_GNUC_PRINTF (4, 5);

static gboolean
fail (PlanMegatronFlag flag, PlanErrorCode code, GError **error, const char *format, ...)
{
  va_list arguments;
  va_start (arguments, format);
  g_autofree char *text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  g_set_error (error, PLAN_ERROR, code, "%s %s", plan_megatron_flag_name (flag), text);
  return FALSE;
}

static gboolean
set_layout (Plan *plan, const PlanMegatronSettings *s, gint64 layers, GError **error)
{
  const PlanModel model
      = { .layers = layers, .mtp = MAX (plan_megatron_int (s, F (MTP_NUM_LAYERS)), 0) };
  gint64 number;
  if (!plan_pp_layout_parse (plan_megatron_value (s, F (PP_LAYOUT)), &number, error))
    {
      g_prefix_error (error, "%s ", plan_megatron_flag_name (F (PP_LAYOUT)));
      return FALSE;
    }
  const PlanPpLayout *layout = plan_pp_layout_of (number);
  const gint64 sum = layout->before[layout->n];
  if (layout->modules != model.mtp)
    return fail (F (PP_LAYOUT), PLAN_ERROR_INVALID, error,
                 "places %" G_GINT64_FORMAT
                 " prediction modules (m), and --mtp-num-layers is %" G_GINT64_FORMAT,
                 layout->modules, model.mtp);
  if (layout->n % plan->value[PLAN_PP] != 0)
    return fail (F (PP_LAYOUT), PLAN_ERROR_INVALID, error,
                 "has %" G_GINT64_FORMAT " stages: their number must be a multiple of "
                 "--pipeline-model-parallel-size, which is %" G_GINT64_FORMAT,
                 layout->n, plan->value[PLAN_PP]);
  if (sum != layers)
    return fail (F (PP_LAYOUT), PLAN_ERROR_INVALID, error,
                 "places %" G_GINT64_FORMAT " layers (t), and --num-layers is %" G_GINT64_FORMAT,
                 sum, layers);
  plan->value[PLAN_VPP] = layout->n / plan->value[PLAN_PP];
  plan->value[PLAN_PP_LAYOUT] = plan->value[PLAN_PP] > 1 ? number : PLAN_UNSET;
  plan_stages_settle (plan, &model);
  return TRUE;
}

/* Sets the number of virtual stages from the layers in each, as arguments.py 953-975 does. */
static gboolean
set_virtual_layers (Plan *plan, const PlanMegatronSettings *s, gint64 layers, GError **error)
{
  const gint64 *value = plan->value;
  const gint64 each = plan_megatron_int (s, F (VIRTUAL_LAYERS));
  const gint64 counted = layers + (value[PLAN_PP_COUNT_EMBEDDING] == PLAN_PP_COUNT_EMBEDDING_ON)
                         + (value[PLAN_PP_COUNT_LOSS] == PLAN_PP_COUNT_LOSS_ON);
  if (value[PLAN_PP_FIRST_LAYERS] != PLAN_UNSET || value[PLAN_PP_LAST_LAYERS] != PLAN_UNSET)
    return fail (F (VIRTUAL_LAYERS), PLAN_ERROR_INVALID, error,
                 "excludes layers that are said of the first or the last stage: give "
                 "--num-virtual-stages-per-pipeline-rank");
  if (each < 1 || counted % value[PLAN_PP] != 0 || counted / value[PLAN_PP] % each != 0)
    return fail (F (VIRTUAL_LAYERS), PLAN_ERROR_INVALID, error,
                 "is %" G_GINT64_FORMAT ": --pipeline-model-parallel-size times it must divide the "
                 "layers, of which there are %" G_GINT64_FORMAT " as stages count them",
                 each, counted);
  plan->value[PLAN_VPP] = counted / value[PLAN_PP] / each;
  return TRUE;
}

gboolean
plan_megatron_set_stages (Plan *plan, const PlanMegatronSettings *s, GError **error)
{
  static const PlanMegatronFlag ways[] = { F (VPP), F (VIRTUAL_LAYERS), F (PP_LAYOUT) };
  const gint64 layers = plan_megatron_int (s, F (NUM_LAYERS));
  gint64 *value = plan->value;
  guint given = G_N_ELEMENTS (ways);
  for (guint i = 0; i < G_N_ELEMENTS (ways); i++)
    {
      if (!plan_megatron_is_given (s, ways[i]))
        continue;
      /* a log also shows the flags that Megatron-LM derived from the one given */
      if (given < G_N_ELEMENTS (ways) && !s->is_log)
        return fail (ways[i], PLAN_ERROR_INVALID, error, "and %s exclude each other",
                     plan_megatron_flag_name (ways[given]));
      given = i;
    }
  /* With a single stage the group does not matter, and one micro batch per stage is its default: in
   * both cases it is left open. */
  if (value[PLAN_PP] == 1 || value[PLAN_PP_GROUP] == value[PLAN_PP])
    value[PLAN_PP_GROUP] = PLAN_UNSET;
  const gboolean is_done
      = given == G_N_ELEMENTS (ways) || ways[given] == F (VPP) || layers < 1 || value[PLAN_PP] < 1;
  if (!is_done
      && !(ways[given] == F (PP_LAYOUT) ? set_layout (plan, s, layers, error)
                                        : set_virtual_layers (plan, s, layers, error)))
    return FALSE;
  const gboolean is_overlapped
      = value[PLAN_VPP] > 1 && value[PLAN_PP_OVERLAP] != PLAN_PP_OVERLAP_OFF;
  if (plan_megatron_is_on (s, F (PP_WARMUP_FLUSH)) && !is_overlapped)
    return fail (F (PP_WARMUP_FLUSH), PLAN_ERROR_INVALID, error,
                 "needs virtual pipeline stages, and no --no-overlap-p2p-communication: else "
                 "Megatron-LM exchanges in batches and refuses it (model_parallel_config.py 570)");
  if (plan_megatron_is_on (s, F (PP_WARMUP_FLUSH)))
    value[PLAN_PP_OVERLAP] = PLAN_PP_OVERLAP_WARMUP_FLUSH;
  if (value[PLAN_VPP] == 1) /* Megatron-LM then switches it off by itself (arguments.py 1010) */
    value[PLAN_PP_OVERLAP] = PLAN_PP_OVERLAP_ON;
  return TRUE;
}
