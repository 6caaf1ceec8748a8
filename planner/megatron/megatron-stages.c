/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/megatron/megatron-stages.h"

#include "planner/base/error.h"
#include "planner/plan/stages.h"

#include <string.h>

#define F(id) PLAN_MEGATRON_##id
#define MOST_LETTERS 65536 /* most letters of a layout */
#define MOST_BRACKETS 16   /* most brackets within one another */

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

/* Expands "Et*2|(tt|)*2L" to "Ett|tt|tt|L": a letter or a bracket may be followed by how often it
 * is repeated. FALSE where the text has another form. */
static gboolean
unroll (const char **at, guint depth, GString *out)
{
  while (**at && !(depth > 0 && **at == ')'))
    {
      g_autoptr (GString) item = g_string_new (NULL);
      guint64 times = 1;
      const char c = *(*at)++;
      if (c == '(')
        {
          if (depth == MOST_BRACKETS || !unroll (at, depth + 1, item) || *(*at)++ != ')')
            return FALSE;
        }
      else if (strchr ("EtmL|", c))
        g_string_append_c (item, c);
      else if (c != ',')
        return FALSE;
      if (**at == '*')
        {
          char *end;
          if (!g_ascii_isdigit ((*at)[1]))
            return FALSE;
          times = g_ascii_strtoull (*at + 1, &end, 10);
          *at = end;
        }
      if (times > MOST_LETTERS)
        return FALSE;
      for (guint64 i = 0; i < times; i++)
        {
          g_string_append_len (out, item->str, (gssize)item->len);
          if (out->len > MOST_LETTERS)
            return FALSE;
        }
    }
  return TRUE;
}

/* Checks that all prediction modules stand right before the loss, in its stage. */
static gboolean
check_modules (const char *letters, gint64 modules, GError **error)
{
  const char *last = letters + strlen (letters) - 1, *first = strchr (letters, 'm');
  gint64 n = 0;
  while (last > letters && last[-1] == 'm')
    last--;
  for (const char *c = letters; *c; c++)
    n += *c == 'm';
  if (first && first != last)
    return fail (F (PP_LAYOUT), PLAN_ERROR_UNSUPPORTED, error,
                 "places prediction modules (m) elsewhere than just before the loss (L), as in "
                 "'Et*4|(t*4|)*2t*3mL', which is not modelled");
  if (n != modules)
    return fail (F (PP_LAYOUT), PLAN_ERROR_INVALID, error,
                 "places %" G_GINT64_FORMAT
                 " prediction modules (m), and --mtp-num-layers is %" G_GINT64_FORMAT,
                 n, modules);
  return TRUE;
}

/* The layers of every virtual stage, in order; NULL with an error where the text is no layout. */
static GArray *
parse_layout (const char *text, gint64 modules, GError **error)
{
  g_autoptr (GString) letters = g_string_new (NULL);
  g_autoptr (GArray) counts = g_array_new (FALSE, TRUE, sizeof (gint64));
  const char *at = text;
  const gboolean is_read = unroll (&at, 0, letters);
  const char *embedding = strchr (letters->str, 'E'), *loss = strchr (letters->str, 'L');
  if (!is_read || embedding != letters->str || !loss || strchr (loss + 1, 'L')
      || strchr (embedding + 1, 'E') || loss[1] != '\0')
    {
      fail (F (PP_LAYOUT), PLAN_ERROR_INVALID, error,
            "is '%s': stages are separated by '|', E begins the first, t is a layer, L ends the "
            "last, x*n repeats a letter and (...)*n a group, as in 'Et*3|(t*4|)*2t*3L'",
            text);
      return NULL;
    }
  if (!check_modules (letters->str, modules, error))
    return NULL;
  g_array_set_size (counts, 1);
  for (const char *c = letters->str; *c; c++)
    if (*c == '|')
      g_array_set_size (counts, counts->len + 1);
    else if (*c == 't')
      g_array_index (counts, gint64, counts->len - 1)++;
  return g_steal_pointer (&counts);
}

/* Whether the plan deals layers out in exactly this way. */
static gboolean
is_that_layout (const Plan *plan, gint64 layers, const GArray *counts)
{
  const PlanModel model = { .layers = layers };
  const PlanStack *stack = plan_stack_of (plan, PLAN_DEVICE_GPU, NULL);
  const gint64 stages = plan->value[PLAN_PP];
  if (!stack || !plan_stages_divide (&model, stack, plan))
    return FALSE;
  for (gint64 i = 0; i < counts->len; i++)
    {
      const PlanStage stage = plan_stage_of (&model, stack, plan, i % stages);
      if (plan_stage_virtual (&stage, i / stages).layers != g_array_index (counts, gint64, i))
        return FALSE;
    }
  return TRUE;
}

/* Whether layers are dealt out evenly, except that the last virtual stage has `last_short` fewer.
 * Tries whether the embedding counts as a layer and, unless the last one is shorter anyway, whether
 * the loss does. */
static gboolean
find_even (Plan *plan, gint64 layers, const GArray *counts, gint64 last_short)
{
  gint64 *value = plan->value;
  value[PLAN_PP_FIRST_LAYERS] = value[PLAN_PP_LAST_LAYERS] = PLAN_UNSET;
  value[PLAN_PP_LAST_SHORT] = last_short;
  for (guint i = 0; i < (last_short > 0 ? 2 : 4); i++)
    {
      value[PLAN_PP_COUNT_EMBEDDING]
          = i & 1 ? PLAN_PP_COUNT_EMBEDDING_ON : PLAN_PP_COUNT_EMBEDDING_OFF;
      value[PLAN_PP_COUNT_LOSS] = i & 2 ? PLAN_PP_COUNT_LOSS_ON : PLAN_PP_COUNT_LOSS_OFF;
      if (is_that_layout (plan, layers, counts))
        return TRUE;
    }
  return FALSE;
}

static gboolean
find_ends (Plan *plan, gint64 layers, const GArray *counts)
{
  gint64 *value = plan->value;
  value[PLAN_PP_COUNT_EMBEDDING] = PLAN_PP_COUNT_EMBEDDING_OFF;
  value[PLAN_PP_COUNT_LOSS] = PLAN_PP_COUNT_LOSS_OFF;
  value[PLAN_PP_FIRST_LAYERS] = value[PLAN_VPP] * g_array_index (counts, gint64, 0);
  value[PLAN_PP_LAST_LAYERS] = value[PLAN_VPP] * g_array_index (counts, gint64, counts->len - 1);
  return value[PLAN_PP_FIRST_LAYERS] > 0 && value[PLAN_PP_LAST_LAYERS] > 0
         && is_that_layout (plan, layers, counts);
}

/* Expresses the layout by other fields; FALSE where that is not possible. */
static gboolean
find_settings (Plan *plan, gint64 layers, const GArray *counts)
{
  const gint64 others = g_array_index (counts, gint64, counts->len > 2 ? 1 : 0);
  const gint64 last_short = others - g_array_index (counts, gint64, counts->len - 1);
  return find_even (plan, layers, counts, 0) || find_ends (plan, layers, counts)
         || (last_short > 1 && find_even (plan, layers, counts, last_short));
}

static gboolean
set_layout (Plan *plan, const PlanMegatronSettings *s, gint64 layers, GError **error)
{
  const char *text = plan_megatron_value (s, F (PP_LAYOUT));
  const gint64 modules = MAX (plan_megatron_int (s, F (MTP_NUM_LAYERS)), 0);
  g_autoptr (GArray) counts = parse_layout (text, modules, error);
  gint64 sum = 0;
  if (!counts)
    return FALSE;
  for (guint i = 0; i < counts->len; i++)
    sum += g_array_index (counts, gint64, i);
  if (counts->len % (guint64)plan->value[PLAN_PP] != 0)
    return fail (F (PP_LAYOUT), PLAN_ERROR_INVALID, error,
                 "has %u stages: their number must be a multiple of "
                 "--pipeline-model-parallel-size, which is %" G_GINT64_FORMAT,
                 counts->len, plan->value[PLAN_PP]);
  if (sum != layers)
    return fail (F (PP_LAYOUT), PLAN_ERROR_INVALID, error,
                 "places %" G_GINT64_FORMAT " layers (t), and --num-layers is %" G_GINT64_FORMAT,
                 sum, layers);
  plan->value[PLAN_VPP] = counts->len / plan->value[PLAN_PP];
  return find_settings (plan, layers, counts)
         || fail (
             F (PP_LAYOUT), PLAN_ERROR_UNSUPPORTED, error,
             "is '%s': modelled are layouts in which all stages but the first and the last have "
             "equally many layers, or all virtual stages but the last, with one fewer in the first "
             "where the embedding counts as a layer",
             text);
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
  if (value[PLAN_VPP] == 1) /* Megatron-LM then switches it off by itself (arguments.py 1010) */
    value[PLAN_PP_OVERLAP] = PLAN_PP_OVERLAP_ON;
  return TRUE;
}
