/* SPDX-License-Identifier: Apache-2.0 */
/* The argument list consists of lines "  name ..... value" between two titles. Launchers put a rank
 * before each line, terminals colour them, and other lines may be mixed in. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/base/lines.h"
#include "planner/base/text.h"
#include "planner/megatron/megatron-settings.h"

#include <string.h>

#define TITLE "---- arguments ----"
#define END "---- end of arguments ----"
#define PADDED "> padded vocab ("

gboolean
plan_megatron_is_log (const char *text)
{
  return strstr (text, TITLE) != NULL;
}

/* Splits "prefix  name .... value"; FALSE for any other line. */
static gboolean
split_line (char *line, char **out_key, char **out_value)
{
  for (char *dots = strstr (line, " ."); dots; dots = strstr (dots + 1, " ."))
    {
      const gsize n = strspn (dots + 1, ".");
      char *start = dots;
      while (start > line && (g_ascii_isalnum (start[-1]) || start[-1] == '_'))
        start--;
      const gboolean begins = start == line || strchr (" \t:]>|", start[-1]);
      if (start == dots || !begins || (dots[1 + n] != ' ' && dots[1 + n] != '\0'))
        continue;
      *dots = '\0';
      *out_key = start;
      *out_value = g_strstrip (dots + 1 + n);
      return TRUE;
    }
  return FALSE;
}

/* Splits a line with a name of 48 letters or more, which has no dots behind it. */
static gboolean
split_long_line (char *line, char **out_key, char **out_value)
{
  for (guint i = 0; i < PLAN_MEGATRON_N_FLAGS; i++)
    {
      const char *const key = plan_megatron_flag_key ((PlanMegatronFlag)i);
      char *const at = strlen (key) >= 48 ? strstr (line, key) : NULL;
      if (at && g_str_has_prefix (at + strlen (key), "  "))
        {
          at[strlen (key)] = '\0';
          *out_key = at;
          *out_value = g_strstrip (at + strlen (key) + 1);
          return TRUE;
        }
    }
  return FALSE;
}

/* Translates a value as Python writes it; NULL for None. */
static char *
convert (PlanMegatronFlag flag, const char *value)
{
  static const char *const same[][2]
      = { { "True", "on" },          { "False", "off" },           { "torch.float32", "fp32" },
          { "torch.float", "fp32" }, { "torch.bfloat16", "bf16" }, { "torch.float16", "fp16" },
          { "torch.half", "fp16" },  { "torch.uint8", "fp8" } };
  const PlanMegatronType type = plan_megatron_flag_type (flag);
  if (strcmp (value, "None") == 0)
    return strstr (plan_megatron_flag_choices (flag), "auto") ? g_strdup ("auto") : NULL;
  for (guint i = 0; i < G_N_ELEMENTS (same); i++)
    if (strcmp (value, same[i][0]) == 0)
      return g_strdup (same[i][1]);
  if (type != PLAN_MEGATRON_TYPE_LIST)
    return g_strdup (value);
  g_autoptr (GString) words = g_string_new (NULL);
  for (const char *c = value; *c; c++)
    if (*c == '<' && strchr (c, '.') && strchr (c, '>')) /* <CudaGraphModule.attn: 2> */
      {
        const char *const name = strchr (c, '.') + 1;
        g_string_append_len (words, name, (gssize)strcspn (name, ":>"));
        c = strchr (c, '>');
      }
    else if (!strchr ("[]'\",", *c))
      g_string_append_c (words, *c);
  return words->len > 0 ? g_strdup (words->str) : NULL;
}

/* Notes a flag that is not modelled, where its value is not the default. */
static void
note_line (GPtrArray *notes, PlanMegatronFlagInfo info, const char *key, const char *value,
           guint line)
{
  const char *initial = info.initial                             ? info.initial
                        : info.arity == PLAN_MEGATRON_ARITY_NONE ? "False"
                                                                 : "None";
  static const char *const derived[] /* Flags that Megatron-LM derives itself before it prints. */
      = { "encoder_num_layers",
          "encoder_seq_length",
          "eval_global_batch_size",
          "eval_micro_batch_size",
          "expert_tensor_parallel_size",
          "high_priority_stream_groups",
          NULL };
  const gboolean is_list = value[0] == '[';
  g_autofree char *bare = g_strdup (value);
  if (is_list)
    g_strstrip (g_strdelimit (bare, "[]'\"", ' '));
  const char *const member = strrchr (bare, '.'); /* AttnBackend.auto */
  if (info.class != PLAN_MEGATRON_CLASS_NOTED || strcmp (bare, initial) == 0
      || (member && strcmp (member + 1, initial) == 0) || g_strv_contains (derived, key)
      || strcmp (value, "None") == 0 || !*bare)
    return;
  g_autofree char *shown = plan_text_quote (value);
  plan_megatron_notes_add (notes, PLAN_MEGATRON_NOTE, line, key, "%s: %s", shown, info.reason);
}

static gboolean
read_argument (PlanMegatronSettings *settings, GPtrArray *notes, const char *origin,
               const char *key, const char *value, guint line, GError **error)
{
  const PlanMegatronFlagInfo info = plan_megatron_key_find (key);
  if (info.class != PLAN_MEGATRON_CLASS_USED)
    {
      note_line (notes, info, key, value, line);
      return TRUE;
    }
  g_autofree char *converted = convert (info.flag, value);
  if (converted && !plan_megatron_settings_set (settings, info.flag, converted, key, line, error))
    {
      g_prefix_error (error, "%s:%u: ", origin, line);
      return FALSE;
    }
  return TRUE;
}

gboolean
plan_megatron_log_read (const char *text, const char *origin, GPtrArray *notes,
                        PlanMegatronSettings *settings, GError **error)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  gboolean is_inside = FALSE, is_over = FALSE;
  guint n = 0, first = 0;
  for (guint i = 0; lines[i]; i++)
    {
      char *key, *value;
      plan_lines_strip_colours (lines[i]);
      char *const padded = strstr (lines[i], PADDED);
      char *const size = padded ? strstr (padded, "(new size: ") : NULL;
      if (size)
        settings->padded_vocab = CLAMP (g_ascii_strtoll (size + 11, NULL, 10), 0, G_MAXINT32);
      if (!is_over && strstr (lines[i], TITLE))
        {
          is_inside = TRUE;
          first = first ? first : i + 1;
        }
      else if (is_inside && strstr (lines[i], END))
        {
          is_inside = FALSE;
          is_over = TRUE;
        }
      else if (is_inside
               && (split_line (lines[i], &key, &value) || split_long_line (lines[i], &key, &value)))
        {
          n++;
          if (!read_argument (settings, notes, origin, key, value, i + 1, error))
            return FALSE;
        }
    }
  settings->is_log = TRUE;
  if (n == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s:%u: the argument list has no line of the form 'num_layers ..... 32'", origin,
                   first);
      return FALSE;
    }
  if (!is_over)
    plan_megatron_notes_add (notes, PLAN_MEGATRON_WARNING, first, NULL,
                             "the argument list has no end: what follows may be missing");
  settings->devices = plan_megatron_int (settings, PLAN_MEGATRON_WORLD_SIZE);
  return TRUE;
}
