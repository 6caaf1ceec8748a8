/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/megatron/megatron-settings.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <string.h>

#define MAX_INT G_GINT64_CONSTANT (1000000000000000)

static void
free_note (gpointer data)
{
  PlanMegatronNote *note = data;
  g_free (note->flag);
  g_free (note->text);
  g_free (note);
}

GPtrArray *
plan_megatron_notes_new (void)
{
  return g_ptr_array_new_with_free_func (free_note);
}

void
plan_megatron_notes_add (GPtrArray *notes, PlanMegatronSeverity severity, guint line,
                         const char *flag, const char *format, ...)
{
  PlanMegatronNote *note = g_new0 (PlanMegatronNote, 1);
  va_list args;
  va_start (args, format);
  note->text = g_strdup_vprintf (format, args);
  va_end (args);
  note->flag = g_strdup (flag);
  note->line = line;
  note->severity = severity;
  g_ptr_array_add (notes, note);
}

void
plan_megatron_settings_clear (PlanMegatronSettings *self)
{
  for (guint i = 0; i < PLAN_MEGATRON_N_FLAGS; i++)
    g_clear_pointer (&self->of[i].value, g_free);
  g_clear_pointer (&self->environment, g_hash_table_unref);
}

static gboolean
check_choice (const char *word, const char *choices, const char *what, GError **error)
{
  g_auto (GStrv) names = g_strsplit (choices, "|", -1);
  if (g_strv_contains ((const char *const *)names, word))
    return TRUE;
  g_autofree char *shown = plan_text_quote (word);
  g_autofree char *hint = plan_text_suggest (word, (const char *const *)names);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s is not one of %s: %s", what, shown,
               choices, hint);
  return FALSE;
}

static gboolean
check_value (PlanMegatronFlag flag, const char *value, const char *what, GError **error)
{
  const char *const choices = plan_megatron_flag_choices (flag);
  gint64 number;
  double real;
  switch (plan_megatron_flag_type (flag))
    {
    case PLAN_MEGATRON_TYPE_INT:
      return plan_units_parse_int (value, what, 0, MAX_INT, &number, error);
    case PLAN_MEGATRON_TYPE_REAL:
      return plan_units_parse_real (value, what, 0, 1e15, &real, error);
    case PLAN_MEGATRON_TYPE_WORD:
      return check_choice (value, choices, what, error);
    case PLAN_MEGATRON_TYPE_LIST:
      {
        g_auto (GStrv) words = g_strsplit (value, " ", -1);
        for (char **w = words; *w && *choices; w++)
          if (!check_choice (*w, choices, what, error))
            return FALSE;
        return TRUE;
      }
    case PLAN_MEGATRON_TYPE_ON:
    case PLAN_MEGATRON_TYPE_OFF:
      return check_choice (value, "on|off", what, error);
    case PLAN_MEGATRON_TYPE_TEXT:
      return TRUE;
    }
  g_return_val_if_reached (FALSE);
}

gboolean
plan_megatron_settings_set (PlanMegatronSettings *self, PlanMegatronFlag flag, const char *value,
                            const char *what, guint line, GError **error)
{
  if (!check_value (flag, value, what, error))
    return FALSE;
  g_free (self->of[flag].value);
  self->of[flag].value = g_strdup (value);
  self->of[flag].line = line;
  return TRUE;
}

gboolean
plan_megatron_is_given (const PlanMegatronSettings *self, PlanMegatronFlag flag)
{
  return self->of[flag].value != NULL;
}

const char *
plan_megatron_value (const PlanMegatronSettings *self, PlanMegatronFlag flag)
{
  const PlanMegatronSetting *const setting = &self->of[flag];
  const char *const initial
      = setting->initial ? setting->initial : plan_megatron_flag_initial (flag);
  return setting->value ? setting->value : *initial ? initial : NULL;
}

gboolean
plan_megatron_is (const PlanMegatronSettings *self, PlanMegatronFlag flag, const char *value)
{
  return g_strcmp0 (plan_megatron_value (self, flag), value) == 0;
}

gboolean
plan_megatron_is_on (const PlanMegatronSettings *self, PlanMegatronFlag flag)
{
  return plan_megatron_is (self, flag, "on");
}

gint64
plan_megatron_int (const PlanMegatronSettings *self, PlanMegatronFlag flag)
{
  const char *const value = plan_megatron_value (self, flag);
  return value ? g_ascii_strtoll (value, NULL, 10) : 0;
}

gboolean
plan_megatron_list_has (const PlanMegatronSettings *self, PlanMegatronFlag flag, const char *word)
{
  const char *const value = plan_megatron_value (self, flag);
  g_auto (GStrv) words = g_strsplit (value ? value : "", " ", -1);
  return g_strv_contains ((const char *const *)words, word);
}
