/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/plan/plan.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/plan/plan-words.h"
#include "planner/plan/pp-layout.h"
#include "planner/plan/rules.h"
#include "planner/plan/stack-history.h"
#include "planner/plan/stages.h"

#include <string.h>

#define VERSION_MINORS 1000 /* a VERSION is major times this plus minor */
#define SHARE_ONE 1000000
#define MAX_FACTOR 1000
#define MAX_INT G_MAXINT32
#define MAX_AUTO G_GINT64_CONSTANT (1000000000000000)

typedef enum
{
  TYPE_ENUM,
  TYPE_INT,
  TYPE_COUNT,
  TYPE_SHARE,
  TYPE_FACTOR,
  TYPE_LIMIT,
  TYPE_LAYOUT,
  TYPE_NAMES,
  TYPE_AUTO,
  TYPE_STACK,
  TYPE_VERSION,
} FieldType;

#define V(field, id, name) name,
#define X(id, name, type, values, initial, numerics, summary) \
  static const char *const values_of_##id[] = { values (V, id) NULL };
PLAN_FIELD_LIST (X)
#undef X
#undef V

G_STATIC_ASSERT (PLAN_STACK_N_VALUES <= PLAN_STACK_BASE);

static const struct
{
  const char *name;
  const char *summary;
  const char *const *values;
  gint64 initial;
  FieldType type;
} fields[] = {
#define X(id, name, type, values, initial, numerics, summary) \
  { name, summary, values_of_##id, initial, TYPE_##type },
  PLAN_FIELD_LIST (X)
#undef X
};

static const char *const field_names[] = {
#define X(id, name, type, values, initial, numerics, summary) name,
  PLAN_FIELD_LIST (X)
#undef X
      NULL
};

void
plan_init (Plan *self)
{
  for (guint i = 0; i < PLAN_N_FIELDS; i++)
    self->value[i] = fields[i].initial;
}

gboolean
plan_field_parse (const char *name, PlanField *out_field, GError **error)
{
  for (guint i = 0; i < PLAN_N_FIELDS; i++)
    if (g_str_equal (name, fields[i].name))
      {
        *out_field = (PlanField)i;
        return TRUE;
      }
  g_autofree char *shown = plan_text_quote (name);
  const char *const meant = plan_words_find_field (name);
  g_autofree char *hint = meant ? g_strdup_printf ("did you mean '%s'?", meant)
                                : plan_text_suggest (name, field_names);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is not a field of a plan: %s", shown,
               hint);
  return FALSE;
}

const char *
plan_field_name (PlanField field)
{
  g_return_val_if_fail ((guint)field < PLAN_N_FIELDS, NULL);
  return fields[field].name;
}

const char *
plan_field_summary (PlanField field)
{
  g_return_val_if_fail ((guint)field < PLAN_N_FIELDS, NULL);
  return fields[field].summary;
}

const char *const *
plan_field_names (PlanField field)
{
  g_return_val_if_fail ((guint)field < PLAN_N_FIELDS, NULL);
  return fields[field].values[0] ? fields[field].values : NULL;
}

gboolean
plan_field_is_of (PlanField field, const PlanModel *model)
{
  return model->experts > 0 || field < PLAN_ETP || field > PLAN_EP_DELAY_WGRAD;
}

char *
plan_field_values (PlanField field)
{
  g_return_val_if_fail ((guint)field < PLAN_N_FIELDS, NULL);
  g_autofree char *names = g_strjoinv ("|", (char **)fields[field].values);
  switch (fields[field].type)
    {
    case TYPE_ENUM:
      return g_steal_pointer (&names);
    case TYPE_INT:
      return g_strdup ("integer >= 1");
    case TYPE_COUNT:
      return g_strdup ("integer >= 0");
    case TYPE_SHARE:
      return g_strdup ("0 to 1");
    case TYPE_FACTOR:
      return g_strdup ("number >= 1");
    case TYPE_LIMIT:
      return g_strdup ("none, or number > 0");
    case TYPE_LAYOUT:
      return g_strdup ("auto, or a layout as Et*3|(t*2|)*6tL");
    case TYPE_NAMES:
      return g_strdup_printf ("none, or %s joined by +", names);
    case TYPE_AUTO:
      return g_strdup ("auto, or integer >= 1");
    case TYPE_STACK:
      return g_strdup_printf ("%s, then @yyyy-mm-dd for a date or @RELEASE", names);
    case TYPE_VERSION:
      return g_strdup ("major.minor");
    }
  g_return_val_if_reached (NULL);
}

static gint64
find_own_value (PlanField field, const char *text)
{
  for (guint i = 0; fields[field].values[i]; i++)
    if (g_str_equal (text, fields[field].values[i]))
      return i;
  return -1;
}

/* The index of a name among a field's values, or of the value that another framework's word means;
 * -1 if there is none. */
static gint64
find_value (PlanField field, const char *text)
{
  const gint64 own = find_own_value (field, text);
  const char *const meant = own < 0 ? plan_words_find_value (field, text, NULL) : NULL;
  return meant ? find_own_value (field, meant) : own;
}

static gboolean
refuse (PlanField field, const char *value, GError **error)
{
  g_autofree char *shown = plan_text_quote (value);
  const char *advice = NULL;
  plan_words_find_value (field, value, &advice);
  if (advice)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s is not one value: write %s",
                   fields[field].name, shown, advice);
      return FALSE;
    }
  g_autofree char *allowed = plan_field_values (field);
  g_autofree char *hint
      = fields[field].values[0] ? plan_text_suggest (value, fields[field].values) : NULL;
  const gboolean close = hint && g_str_has_prefix (hint, "did");
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s must be %s%s%s", fields[field].name,
               shown, allowed, close ? ": " : "", close ? hint : "");
  return FALSE;
}

static gboolean
set_names (PlanField field, const char *text, gint64 *out, GError **error)
{
  gint64 mask = 0;
  g_auto (GStrv) names = g_strsplit (g_str_equal (text, "none") ? "" : text, "+", -1);
  if (!g_str_equal (text, "none") && !names[0])
    return refuse (field, text, error);
  for (guint i = 0; names[i]; i++)
    {
      const gint64 at = find_value (field, names[i]);
      if (at < 0)
        return refuse (field, names[i], error);
      if (mask & (G_GINT64_CONSTANT (1) << at))
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: '%s' is given twice",
                       fields[field].name, names[i]);
          return FALSE;
        }
      mask |= G_GINT64_CONSTANT (1) << at;
    }
  *out = mask;
  return TRUE;
}

/* Reads a number with at most six decimals, so that millionths are exact. */
static gboolean
set_millionths (PlanField field, const char *text, double min, double max, gint64 *out,
                GError **error)
{
  const char *const point = strchr (text, '.');
  double value;
  if (!plan_units_parse_real (text, fields[field].name, min, max, &value, error))
    return FALSE;
  if (strpbrk (text, "eE-") || (point && strlen (point + 1) > 6))
    {
      g_autofree char *shown = plan_text_quote (text);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: %s must be written with at most six decimals, as %s", fields[field].name,
                   shown, min < 1 ? "0.25" : "1.25");
      return FALSE;
    }
  *out = (gint64)(value * SHARE_ONE + 0.5);
  return TRUE;
}

/* The value of `n` digits; -1 if a character is no digit. */
static int
digits_of (const char *text, guint n)
{
  int value = 0;
  for (guint i = 0; i < n; i++)
    {
      if (!g_ascii_isdigit (text[i]))
        return -1;
      value = value * 10 + g_ascii_digit_value (text[i]);
    }
  return value;
}

/* Reads "yyyy-mm-dd" as yyyymmdd; -1 if it is not a date. */
static gint64
parse_date (const char *text)
{
  if (strlen (text) != strlen ("yyyy-mm-dd") || text[4] != '-' || text[7] != '-')
    return -1;
  const int year = digits_of (text, 4), month = digits_of (text + 5, 2),
            day = digits_of (text + 8, 2);
  if (year < 1 || month < 1 || day < 1
      || !g_date_valid_dmy ((GDateDay)day, (GDateMonth)month, (GDateYear)year))
    return -1;
  return (gint64)year * 10000 + month * 100 + day;
}

static gboolean
set_stack (PlanField field, const char *text, gint64 *out, GError **error)
{
  const char *const at = strchr (text, '@');
  g_autofree char *name = at ? g_strndup (text, (gsize)(at - text)) : g_strdup (text);
  const gint64 which = find_value (field, name);
  gint64 date = at ? parse_date (at + 1) : 0;
  if (which < 0)
    return refuse (field, name, error);
  if (date < 0)
    date = plan_stack_release_date (which, at + 1);
  if (date == 0 && at)
    {
      g_autofree char *shown = plan_text_quote (at + 1);
      g_set_error (
          error, PLAN_ERROR, PLAN_ERROR_INVALID,
          "%s: %s is neither a date nor a known release: write %s@yyyy-mm-dd, or %s alone for "
          "the newest known",
          fields[field].name, shown, name, name);
      return FALSE;
    }
  *out = which + PLAN_STACK_BASE * date;
  return TRUE;
}

static gboolean
set_version (PlanField field, const char *text, gint64 *out, GError **error)
{
  g_auto (GStrv) parts = g_strsplit (text, ".", -1);
  gint64 major, minor;
  if (g_strv_length (parts) != 2
      || !plan_units_parse_int (parts[0], "major", 1, VERSION_MINORS - 1, &major, NULL)
      || !plan_units_parse_int (parts[1], "minor", 0, VERSION_MINORS - 1, &minor, NULL))
    {
      g_autofree char *shown = plan_text_quote (text);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: %s is not a version: write major.minor, as 2.28", fields[field].name,
                   shown);
      return FALSE;
    }
  *out = major * VERSION_MINORS + minor;
  return TRUE;
}

static gboolean
set_layout (PlanField field, const char *text, gint64 *out, GError **error)
{
  *out = PLAN_UNSET;
  if (g_str_equal (text, "auto") || plan_pp_layout_parse (text, out, error))
    return TRUE;
  g_prefix_error (error, "%s ", fields[field].name);
  return FALSE;
}

static gboolean
parse_value (PlanField field, const char *text, gint64 *out, GError **error)
{
  const char *const name = fields[field].name;
  switch (fields[field].type)
    {
    case TYPE_ENUM:
      {
        const gint64 at = find_value (field, text);
        if (at < 0)
          return refuse (field, text, error);
        *out = at;
        return TRUE;
      }
    case TYPE_INT:
      return plan_units_parse_int (text, name, 1, MAX_INT, out, error);
    case TYPE_COUNT:
      return plan_units_parse_int (text, name, 0, MAX_INT, out, error);
    case TYPE_SHARE:
      return set_millionths (field, text, 0, 1, out, error);
    case TYPE_FACTOR:
      return set_millionths (field, text, 1, MAX_FACTOR, out, error);
    case TYPE_LIMIT:
      if (!g_str_equal (text, "none"))
        return set_millionths (field, text, 1. / SHARE_ONE, MAX_FACTOR, out, error);
      *out = 0;
      return TRUE;
    case TYPE_NAMES:
      return set_names (field, text, out, error);
    case TYPE_AUTO:
      if (!g_str_equal (text, "auto"))
        return plan_units_parse_int (text, name, 1, MAX_AUTO, out, error);
      *out = PLAN_UNSET;
      return TRUE;
    case TYPE_LAYOUT:
      return set_layout (field, text, out, error);
    case TYPE_STACK:
      return set_stack (field, text, out, error);
    case TYPE_VERSION:
      return set_version (field, text, out, error);
    }
  g_return_val_if_reached (FALSE);
}

gboolean
plan_set (Plan *self, const char *name, const char *value, GError **error)
{
  PlanField field;
  return plan_field_parse (name, &field, error)
         && parse_value (field, value, &self->value[field], error);
}

static char *
print_names (PlanField field, gint64 mask)
{
  GString *text = g_string_new (NULL);
  for (guint i = 0; fields[field].values[i]; i++)
    if (mask & (G_GINT64_CONSTANT (1) << i))
      g_string_append_printf (text, "%s%s", text->len > 0 ? "+" : "", fields[field].values[i]);
  return g_string_free (text->len > 0 ? text : g_string_append (text, "none"), FALSE);
}

static char *
print_millionths (gint64 value)
{
  const gint64 whole = value / SHARE_ONE, part = value % SHARE_ONE;
  if (part == 0)
    return g_strdup_printf ("%" G_GINT64_FORMAT, whole);
  char *text = g_strdup_printf ("%" G_GINT64_FORMAT ".%06" G_GINT64_FORMAT, whole, part);
  for (gsize end = strlen (text); text[end - 1] == '0'; end--)
    text[end - 1] = '\0';
  return text;
}

static char *
print_stack (PlanField field, gint64 value)
{
  const char *const name = fields[field].values[value % PLAN_STACK_BASE];
  if (value / PLAN_STACK_BASE == 0)
    return g_strdup (name);
  g_autofree char *date = plan_stack_date_text (value / PLAN_STACK_BASE);
  return g_strconcat (name, "@", date, NULL);
}

char *
plan_field_print (PlanField field, gint64 value)
{
  g_return_val_if_fail ((guint)field < PLAN_N_FIELDS, NULL);
  if (value == PLAN_UNSET)
    return g_strdup ("auto");
  switch (fields[field].type)
    {
    case TYPE_ENUM:
      return g_strdup (fields[field].values[value]);
    case TYPE_INT:
    case TYPE_COUNT:
    case TYPE_AUTO:
      return g_strdup_printf ("%" G_GINT64_FORMAT, value);
    case TYPE_SHARE:
    case TYPE_FACTOR:
      return print_millionths (value);
    case TYPE_LIMIT:
      return value == 0 ? g_strdup ("none") : print_millionths (value);
    case TYPE_LAYOUT:
      return plan_pp_layout_print (value);
    case TYPE_NAMES:
      return print_names (field, value);
    case TYPE_STACK:
      return print_stack (field, value);
    case TYPE_VERSION:
      return g_strdup_printf ("%d.%d", (int)(value / VERSION_MINORS),
                              (int)(value % VERSION_MINORS));
    }
  g_return_val_if_reached (NULL);
}

char *
plan_print (const Plan *self)
{
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < PLAN_N_FIELDS; i++)
    if (self->value[i] != fields[i].initial)
      {
        g_autofree char *value = plan_field_print ((PlanField)i, self->value[i]);
        g_string_append_printf (text, "%s=%s\n", fields[i].name, value);
      }
  return g_string_free (text, FALSE);
}

/* Reads one line, from which comments have been removed. `seen`: by field, whether it has been
 * given. */
static gboolean
parse_line (Plan *plan, gboolean *seen, char *line, GError **error)
{
  char *const equals = strchr (line, '=');
  if (!equals)
    {
      g_autofree char *shown = plan_text_quote (line);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is not of the form field=value",
                   shown);
      return FALSE;
    }
  *equals = '\0';
  const char *const name = g_strchomp (line), *const value = g_strchug (equals + 1);
  PlanField field;
  if (!plan_field_parse (name, &field, error))
    return FALSE;
  if (seen[field])
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: given twice", name);
      return FALSE;
    }
  seen[field] = TRUE;
  return parse_value (field, value, &plan->value[field], error);
}

gboolean
plan_parse (const char *text, const char *origin, Plan *out_plan, GError **error)
{
  Plan plan;
  gboolean seen[PLAN_N_FIELDS] = { FALSE };
  if (!plan_text_check (text, strlen (text), origin, error))
    return FALSE;
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  plan_init (&plan);
  for (guint i = 0; lines[i]; i++)
    {
      char *const comment = strchr (lines[i], '#');
      if (comment)
        *comment = '\0';
      if (*g_strstrip (lines[i]) && !parse_line (&plan, seen, lines[i], error))
        {
          g_prefix_error (error, "%s:%u: ", origin, i + 1);
          return FALSE;
        }
    }
  *out_plan = plan;
  return TRUE;
}

char *
plan_hash (const Plan *self)
{
  g_autofree char *text = plan_print (self);
  char *hash = g_compute_checksum_for_string (G_CHECKSUM_SHA256, text, -1);
  hash[16] = '\0';
  return hash;
}

/* The format in which weights are held, as a value of main_grads: fp32 or fp16 if the plan computes
 * in it, else bf16. `auto` formats mean this one. */
static gint64
state_of_weights (const Plan *self)
{
  switch (self->value[PLAN_COMPUTE])
    {
    case PLAN_COMPUTE_FP32:
      return PLAN_MAIN_GRADS_FP32;
    case PLAN_COMPUTE_FP16:
      return PLAN_MAIN_GRADS_FP16;
    default:
      return PLAN_MAIN_GRADS_BF16;
    }
}

static void
fill_in (Plan *self, const PlanModel *model)
{
  gint64 *const value = self->value;
  if (value[PLAN_MBS] == PLAN_UNSET)
    value[PLAN_MBS] = 1;
  if (value[PLAN_SEQ] == PLAN_UNSET)
    value[PLAN_SEQ] = model->max_seq;
  plan_stages_settle (self, model);
  if (value[PLAN_VPP] > 1 && value[PLAN_PP_GROUP] == value[PLAN_PP])
    value[PLAN_PP_GROUP] = PLAN_UNSET; /* a group of pp micro batches is the default */
  if (value[PLAN_SP] == PLAN_UNSET)
    value[PLAN_SP] = value[PLAN_TP] > 1 ? PLAN_SP_ON : PLAN_SP_OFF;
  if (value[PLAN_MAIN_GRADS] == PLAN_MAIN_GRADS_AUTO)
    value[PLAN_MAIN_GRADS] = state_of_weights (self);
  if (value[PLAN_GRAD_COMM] == PLAN_GRAD_COMM_AUTO)
    value[PLAN_GRAD_COMM] = value[PLAN_MAIN_GRADS];
  if (value[PLAN_NCCL_UB] == PLAN_NCCL_UB_ON && value[PLAN_DOUBLE_BUFFER] == PLAN_DOUBLE_BUFFER_OFF)
    value[PLAN_DOUBLE_BUFFER] = PLAN_DOUBLE_BUFFER_ON;
  if (value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_MEGATRON_FSDP
      && value[PLAN_PARAM_GATHER] == PLAN_PARAM_GATHER_MXFP8)
    value[PLAN_FINE_GRAINED] = PLAN_FINE_GRAINED_ON;
}

gboolean
plan_resolve (const Plan *self, const PlanModel *model, const PlanCluster *cluster, Plan *out_plan,
              GError **error)
{
  Plan plan = *self;
  if (plan.value[PLAN_GBS] == PLAN_UNSET)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "gbs is needed: --gbs N, in sequences per step over all devices");
      return FALSE;
    }
  fill_in (&plan, model);
  if (!plan_rules_check (&plan, model, cluster, error))
    return FALSE;
  *out_plan = plan;
  return TRUE;
}

gboolean
plan_resolve_block (const Plan *self, const PlanModel *model, const PlanCluster *cluster)
{
  Plan plan = *self;
  fill_in (&plan, model);
  return plan_rules_check_block (&plan, model, cluster);
}

gboolean
plan_resolve_in_block (const Plan *self, const PlanModel *model, const PlanCluster *cluster,
                       Plan *out_plan)
{
  *out_plan = *self;
  fill_in (out_plan, model);
  return plan_rules_check_in_block (out_plan, model, cluster);
}

gint64
plan_data_parallel (const Plan *self, const PlanCluster *cluster)
{
  const gint64 *const value = self->value;
  return plan_cluster_devices (cluster) / value[PLAN_TP] / value[PLAN_CP] / value[PLAN_PP];
}

gboolean
plan_shards_optimizer (const Plan *self)
{
  return self->value[PLAN_STRATEGY] >= PLAN_STRATEGY_OPTIM;
}

gint64
plan_attended_tokens (const Plan *self)
{
  const gint64 seq = self->value[PLAN_SEQ], document = self->value[PLAN_DOC_TOKENS];
  return document > 0 ? MIN (document, seq) : seq;
}

gboolean
plan_shards_grads (const Plan *self)
{
  return self->value[PLAN_STRATEGY] >= PLAN_STRATEGY_OPTIM_GRADS;
}

gboolean
plan_shards_weights (const Plan *self)
{
  return self->value[PLAN_STRATEGY] >= PLAN_STRATEGY_OPTIM_GRADS_PARAMS;
}

gint64
plan_micro_batches (const Plan *self, const PlanCluster *cluster)
{
  return self->value[PLAN_GBS] / self->value[PLAN_MBS] / plan_data_parallel (self, cluster);
}

static PlanDtype
state_dtype (const Plan *self, PlanField field)
{
  gint64 state = self->value[field];
  if (state == PLAN_MAIN_PARAMS_AUTO)
    state = state_of_weights (self);
  return state == PLAN_MAIN_PARAMS_FP32   ? PLAN_DTYPE_FP32
         : state == PLAN_MAIN_PARAMS_BF16 ? PLAN_DTYPE_BF16
                                          : PLAN_DTYPE_FP16;
}

PlanDtype
plan_field_dtype (const Plan *self, PlanField field)
{
  static const PlanDtype of_compute[] = {
    [PLAN_COMPUTE_FP32] = PLAN_DTYPE_FP32,
    [PLAN_COMPUTE_FP16] = PLAN_DTYPE_FP16,
    [PLAN_COMPUTE_BF16] = PLAN_DTYPE_BF16,
    [PLAN_COMPUTE_FP8_DELAYED] = PLAN_DTYPE_E4M3,
    [PLAN_COMPUTE_FP8_TENSORWISE] = PLAN_DTYPE_E4M3,
    [PLAN_COMPUTE_FP8_BLOCKWISE] = PLAN_DTYPE_FP8_1X128,
    [PLAN_COMPUTE_MXFP8] = PLAN_DTYPE_MXFP8,
    [PLAN_COMPUTE_NVFP4] = PLAN_DTYPE_NVFP4,
  };
  static const PlanDtype of_moment[] = {
    [PLAN_EXP_AVG_FP32] = PLAN_DTYPE_FP32,
    [PLAN_EXP_AVG_BF16] = PLAN_DTYPE_BF16,
    [PLAN_EXP_AVG_FP16] = PLAN_DTYPE_FP16,
    [PLAN_EXP_AVG_FP8] = PLAN_DTYPE_E4M3,
  };
  switch (field)
    {
    case PLAN_COMPUTE:
      return of_compute[self->value[field]];
    case PLAN_EXP_AVG:
    case PLAN_EXP_AVG_SQ:
      return of_moment[self->value[field]];
    case PLAN_MAIN_PARAMS:
    case PLAN_MAIN_GRADS:
    case PLAN_GRAD_COMM:
      return state_dtype (self, field);
    default:
      g_return_val_if_reached (PLAN_DTYPE_FP32);
    }
}

PlanDtype
plan_weights_dtype (const Plan *self)
{
  const gint64 state = state_of_weights (self);
  return state == PLAN_MAIN_GRADS_FP32   ? PLAN_DTYPE_FP32
         : state == PLAN_MAIN_GRADS_BF16 ? PLAN_DTYPE_BF16
                                         : PLAN_DTYPE_FP16;
}

PlanDtype
plan_gathered_dtype (const Plan *self)
{
  switch (self->value[PLAN_PARAM_GATHER])
    {
    case PLAN_PARAM_GATHER_FP8:
    case PLAN_PARAM_GATHER_MXFP8:
      return PLAN_DTYPE_E4M3; /* scales are not gathered with the weights */
    case PLAN_PARAM_GATHER_NVFP4:
      return PLAN_DTYPE_E2M1;
    default:
      return plan_weights_dtype (self);
    }
}

PlanDtype
plan_grad_dtype (const Plan *self)
{
  const gint64 compute = self->value[PLAN_COMPUTE];
  const gboolean hybrid
      = compute == PLAN_COMPUTE_FP8_DELAYED || compute == PLAN_COMPUTE_FP8_TENSORWISE;
  return hybrid ? PLAN_DTYPE_E5M2 : plan_field_dtype (self, PLAN_COMPUTE);
}

PlanDtype
plan_weight_copies_dtype (const Plan *self)
{
  const PlanDtype linear = plan_field_dtype (self, PLAN_COMPUTE);
  return linear == PLAN_DTYPE_FP8_1X128 ? PLAN_DTYPE_FP8_128X128 : linear;
}

gboolean
plan_drops_hidden (const Plan *self)
{
  return self->value[PLAN_HIDDEN_DROPOUT] > 0 && self->value[PLAN_TASK] == PLAN_TASK_TRAIN;
}

double
plan_hidden_dropout (const Plan *self)
{
  return plan_drops_hidden (self) ? (double)self->value[PLAN_HIDDEN_DROPOUT] / SHARE_ONE : 0;
}

double
plan_attention_dropout (const Plan *self)
{
  return self->value[PLAN_TASK] == PLAN_TASK_TRAIN
             ? (double)self->value[PLAN_ATTENTION_DROPOUT] / SHARE_ONE
             : 0;
}

gboolean
plan_scales_gradients (const Plan *self, gint64 ranks)
{
  return ranks > 1 && self->value[PLAN_PER_TOKEN_LOSS] == PLAN_PER_TOKEN_LOSS_OFF
         && plan_field_dtype (self, PLAN_GRAD_COMM) == PLAN_DTYPE_BF16;
}
