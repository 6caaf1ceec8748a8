/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which command of a script is Megatron-LM's, how many devices its launcher takes, and reads
 * its flags. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/megatron/megatron-settings.h"
#include "planner/megatron/megatron-shell.h"

#include <string.h>

#define MAX_DEVICES 10000000
#define MAX_HINTS 20   /* unknown flags that are compared with all known ones for a hint */
#define ENOUGH_FLAGS 3 /* flags that another command must have to be mentioned */

typedef struct
{
  const char *origin;
  GPtrArray *notes;
  PlanMegatronSettings *settings;
  const GPtrArray *words;
  guint n_hints;
} Parser;

static const PlanMegatronWord *
word_at (const GPtrArray *words, guint i)
{
  return g_ptr_array_index (words, i);
}

static gboolean
is_flag (const char *text)
{
  return text[0] == '-' && text[1] == '-' && g_ascii_isalnum (text[2]);
}

static char *
flag_of (const char *text)
{
  return g_strndup (text + 2, strcspn (text + 2, "="));
}

static PlanMegatronFlagInfo
find (const char *text)
{
  if (!is_flag (text))
    return (PlanMegatronFlagInfo){ .class = PLAN_MEGATRON_CLASS_UNKNOWN };
  g_autofree char *name = flag_of (text);
  return plan_megatron_flag_find (name);
}

static guint
count_flags (const GPtrArray *command)
{
  guint n = 0;
  for (guint i = 0; i < command->len; i++)
    n += find (word_at (command, i)->text).class == PLAN_MEGATRON_CLASS_USED;
  return n;
}

static gboolean
is_bare (const GPtrArray *command)
{
  return is_flag (word_at (command, 0)->text);
}

/* Joins commands that consist of flags alone into one: a pasted command line without
 * continuations. */
static GPtrArray *
join_bare (const GPtrArray *commands)
{
  GPtrArray *joined = g_ptr_array_new ();
  for (guint i = 0; i < commands->len; i++)
    {
      const GPtrArray *const command = g_ptr_array_index (commands, i);
      for (guint j = 0; is_bare (command) && j < command->len; j++)
        g_ptr_array_add (joined, g_ptr_array_index (command, j));
    }
  return joined;
}

/* Whether a command only prints its words, which may be those of a command that runs. */
static gboolean
only_shows (const GPtrArray *command)
{
  return g_str_equal (word_at (command, 0)->text, "echo");
}

static gboolean
is_better (const GPtrArray *command, guint n, const GPtrArray *best, guint most)
{
  if (n > 0 && best && only_shows (command) != only_shows (best))
    return only_shows (best);
  return n > most && (!best || !is_bare (command) || is_bare (best));
}

/* Chooses the command with the most flags, and notes which others have some. */
static GPtrArray *
choose (const GPtrArray *commands, GPtrArray *notes)
{
  const GPtrArray *best = NULL;
  guint most = 0;
  for (guint i = 0; i < commands->len; i++)
    {
      const GPtrArray *const command = g_ptr_array_index (commands, i);
      const guint n = count_flags (command);
      if (is_better (command, n, best, most))
        {
          best = command;
          most = n;
        }
    }
  if (!best || is_bare (best))
    return best ? join_bare (commands) : NULL;
  for (guint i = 0; i < commands->len; i++)
    {
      const GPtrArray *const command = g_ptr_array_index (commands, i);
      const PlanMegatronWord *const first = word_at (command, 0);
      if (command != best && is_bare (command)
          && find (first->text).class != PLAN_MEGATRON_CLASS_UNKNOWN)
        plan_megatron_notes_add (notes, PLAN_MEGATRON_WARNING, first->line, first->text,
                                 "belongs to no command: the line before does not end in a "
                                 "backslash, or is a comment");
      else if (command != best && !only_shows (command) && count_flags (command) >= ENOUGH_FLAGS)
        plan_megatron_notes_add (notes, PLAN_MEGATRON_NOTE, first->line, NULL,
                                 "another command with Megatron-LM's flags, which is not read");
    }
  GPtrArray *words = g_ptr_array_new ();
  for (guint i = 0; i < best->len; i++)
    g_ptr_array_add (words, g_ptr_array_index (best, i));
  return words;
}

/* The index of Megatron-LM's first own argument: behind the script, or else the first flag that it
 * knows. */
static guint
first_argument (const GPtrArray *words)
{
  for (guint i = 0; i < words->len; i++)
    if (g_str_has_suffix (word_at (words, i)->text, ".py"))
      return i + 1;
  for (guint i = 0; i < words->len; i++)
    if (find (word_at (words, i)->text).class != PLAN_MEGATRON_CLASS_UNKNOWN)
      return i;
  return words->len;
}

/* The number that a launcher is given for an option, "--nnodes 2" or "--nnodes=2"; -1 where the
 * option is not given, 0 where its value is not known. */
static gint64
launcher_number (const GPtrArray *words, guint end, const char *const *names)
{
  gint64 number = -1;
  for (guint i = 0; i < end; i++)
    for (const char *const *name = names; *name; name++)
      {
        const char *const text = word_at (words, i)->text, *value = NULL;
        if (strcmp (text, *name) == 0)
          value = i + 1 < end ? word_at (words, i + 1)->text : "";
        else if (g_str_has_prefix (text, *name) && text[strlen (*name)] == '=')
          value = text + strlen (*name) + 1;
        if (value && !plan_units_parse_int (value, "", 1, MAX_DEVICES, &number, NULL))
          number = 0;
      }
  return number;
}

static gint64
environment_number (const PlanMegatronSettings *settings, const char *name)
{
  const char *const value = g_hash_table_lookup (settings->environment, name);
  gint64 number;
  return value && plan_units_parse_int (value, "", 1, MAX_DEVICES, &number, NULL) ? number : -1;
}

static gboolean
has_launcher (const GPtrArray *words, guint end, const char *const *names)
{
  for (guint i = 0; i < end; i++)
    {
      g_autofree char *base = g_path_get_basename (word_at (words, i)->text);
      if (g_strv_contains (names, base))
        return TRUE;
    }
  return FALSE;
}

/* Reads nodes and devices per node from the launcher of a command; FALSE if there is none. */
static gboolean
read_launcher (PlanMegatronSettings *settings, const GPtrArray *words, guint end)
{
  static const char *const torch[]
      = { "torchrun", "torch.distributed.run", "torch.distributed.launch", NULL };
  static const char *const batch[] = { "srun", "mpirun", "mpiexec", "sbatch", NULL };
  static const char *const nodes_names[] = { "--nnodes", "--nodes", "-N", NULL };
  static const char *const each_names[] = { "--nproc_per_node",
                                            "--nproc-per-node",
                                            "--ntasks-per-node",
                                            "--gpus-per-node",
                                            "--npernode",
                                            "--ntasks_per_node",
                                            NULL };
  static const char *const all_names[] = { "--ntasks", "-n", "-np", NULL };
  const gboolean is_torch = has_launcher (words, end, torch);
  if (!is_torch && !has_launcher (words, end, batch))
    return FALSE;
  gint64 nodes = launcher_number (words, end, nodes_names);
  gint64 each = launcher_number (words, end, each_names);
  const gint64 all = is_torch ? -1 : launcher_number (words, end, all_names);
  if (nodes < 0)
    nodes = is_torch ? 1 : environment_number (settings, "SLURM_NNODES");
  if (each < 0 && !is_torch)
    each = environment_number (settings, "SLURM_NTASKS_PER_NODE");
  if (each < 0)
    each = is_torch ? 1 : environment_number (settings, "SLURM_GPUS_ON_NODE");
  settings->nodes = MAX (nodes, 0);
  settings->devices = all > 0 ? all : nodes > 0 && each > 0 ? nodes * each : 0;
  return TRUE;
}

static gboolean fail (const Parser *parser, guint line, GError **error, const char *format, ...)
    G_GNUC_PRINTF (4, 5);

static gboolean
fail (const Parser *parser, guint line, GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *message = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u: %s", parser->origin, line, message);
  return FALSE;
}

/* The number of values behind a flag: words up to the end or the next flag. */
static guint
count_values (const GPtrArray *words, guint i)
{
  guint n = 0;
  while (i + n < words->len && !is_flag (word_at (words, i + n)->text))
    n++;
  return n;
}

/* The number of values behind an unknown flag. A word that could not be expanded may hold flags and
 * is not taken for a value. */
static guint
count_known_values (const GPtrArray *words, guint i)
{
  const guint n = count_values (words, i);
  guint known = 0;
  while (known < n && !word_at (words, i + known)->missing)
    known++;
  return known;
}

/* Checks that a value with an effect is known. */
static gboolean
check_known (const Parser *parser, const PlanMegatronWord *word, const char *name, GError **error)
{
  if (word->missing)
    {
      g_autofree char *shown = plan_text_quote (word->missing);
      return fail (parser, word->line, error,
                   "%s: %s cannot be known from this text: write the value, or set the variable "
                   "above",
                   name, shown);
    }
  if (word->condition)
    plan_megatron_notes_add (parser->notes, PLAN_MEGATRON_WARNING, word->line, name,
                             "%s is set under a condition: read as %s", word->condition,
                             word->text);
  return TRUE;
}

/* Reads a flag with an id; `i` is moved behind its values. */
static gboolean
read_used (Parser *parser, PlanMegatronFlag flag, const PlanMegatronWord *word, guint *i,
           GError **error)
{
  const PlanMegatronType type = plan_megatron_flag_type (flag);
  const gboolean is_switch = type == PLAN_MEGATRON_TYPE_ON || type == PLAN_MEGATRON_TYPE_OFF;
  const char *const equals = strchr (word->text, '=');
  g_autofree char *name = g_strndup (word->text, strcspn (word->text, "="));
  g_autoptr (GString) value = g_string_new (equals ? equals + 1 : NULL);
  const guint follow = count_values (parser->words, *i);
  if (!check_known (parser, word, name, error))
    return FALSE;
  if (is_switch && equals)
    return fail (parser, word->line, error, "%s: is a switch and takes no value", name);
  if (!is_switch && !equals)
    {
      if (follow == 0)
        return fail (parser, word->line, error, "%s: needs a value behind it", name);
      for (guint j = 0; j < (type == PLAN_MEGATRON_TYPE_LIST ? follow : 1); j++)
        {
          const PlanMegatronWord *const next = word_at (parser->words, (*i)++);
          if (!check_known (parser, next, name, error))
            return FALSE;
          g_string_append_printf (value, "%s%s", j > 0 ? " " : "", next->text);
        }
    }
  const char *const text = is_switch ? type == PLAN_MEGATRON_TYPE_ON ? "on" : "off" : value->str;
  if (plan_megatron_settings_set (parser->settings, flag, text, name, word->line, error))
    return TRUE;
  g_prefix_error (error, "%s:%u: ", parser->origin, word->line);
  return FALSE;
}

static void
note_unknown (Parser *parser, const PlanMegatronWord *word)
{
  g_autofree char *flag = flag_of (word->text);
  g_autofree char *name = g_strconcat ("--", flag, NULL);
  g_autofree char *hint
      = parser->n_hints++ < MAX_HINTS ? plan_megatron_flag_suggest (flag) : g_strdup ("");
  plan_megatron_notes_add (parser->notes, PLAN_MEGATRON_NOTE, word->line, name,
                           "is not a flag known here and is ignored, though it could matter%s%s",
                           *hint ? ": " : "", hint);
}

/* Reads a flag without an id; `i` is moved behind its values. */
static gboolean
read_other (Parser *parser, PlanMegatronFlagInfo info, const PlanMegatronWord *word, guint *i,
            GError **error)
{
  const gboolean has_value = strchr (word->text, '=') != NULL;
  const guint follow = has_value ? 0 : count_values (parser->words, *i);
  g_autofree char *name = g_strndup (word->text, strcspn (word->text, "="));
  if (info.class == PLAN_MEGATRON_CLASS_UNKNOWN)
    {
      note_unknown (parser, word);
      *i += has_value ? 0 : count_known_values (parser->words, *i);
      return TRUE;
    }
  if (info.arity == PLAN_MEGATRON_ARITY_ONE && follow == 0 && !has_value)
    return fail (parser, word->line, error, "%s: needs a value behind it", name);
  *i += info.arity == PLAN_MEGATRON_ARITY_NONE   ? 0
        : info.arity == PLAN_MEGATRON_ARITY_MANY ? follow
                                                 : MIN (follow, 1);
  if (info.class != PLAN_MEGATRON_CLASS_IGNORED)
    plan_megatron_notes_add (parser->notes,
                             info.class == PLAN_MEGATRON_CLASS_REFUSED ? PLAN_MEGATRON_ERROR
                                                                       : PLAN_MEGATRON_NOTE,
                             word->line, name, "%s", info.reason);
  return TRUE;
}

static gboolean
read_arguments (Parser *parser, guint first, GError **error)
{
  for (guint i = first; i < parser->words->len;)
    {
      const PlanMegatronWord *const word = word_at (parser->words, i++);
      const PlanMegatronFlagInfo info = find (word->text);
      g_autofree char *shown = plan_text_quote (word->missing ? word->missing : word->text);
      if (word->missing && !is_flag (word->text))
        plan_megatron_notes_add (parser->notes, PLAN_MEGATRON_WARNING, word->line, NULL,
                                 "%s cannot be known from this text: flags in it are not seen",
                                 shown);
      else if (!is_flag (word->text) && *word->text)
        plan_megatron_notes_add (parser->notes, PLAN_MEGATRON_WARNING, word->line, NULL,
                                 "%s belongs to no flag: Megatron-LM stops at it", shown);
      else if (is_flag (word->text)
               && !(info.class == PLAN_MEGATRON_CLASS_USED
                        ? read_used (parser, info.flag, word, &i, error)
                        : read_other (parser, info, word, &i, error)))
        return FALSE;
    }
  return TRUE;
}

static gboolean
read_script (const char *text, const char *origin, GPtrArray *notes, PlanMegatronSettings *settings,
             GError **error)
{
  g_auto (PlanMegatronScript) script = { 0 };
  if (!plan_megatron_script_read (text, origin, &script, error))
    return FALSE;
  g_autoptr (GPtrArray) words = choose (script.commands, notes);
  Parser parser = { .origin = origin, .notes = notes, .settings = settings, .words = words };
  if (!words)
    return fail (&parser, 1, error,
                 "neither a command with Megatron-LM's flags (--num-layers ...) nor the argument "
                 "list of its log is here");
  const guint first = first_argument (words);
  settings->environment = g_hash_table_ref (script.environment);
  for (guint i = 0; i < first; i++) /* env NAME=value command */
    {
      g_auto (GStrv) pair = g_strsplit (word_at (words, i)->text, "=", 2);
      if (pair[0] && pair[1] && g_ascii_isupper (pair[0][0]))
        g_hash_table_insert (settings->environment, g_strdup (pair[0]), g_strdup (pair[1]));
    }
  if (!read_launcher (settings, words, first))
    for (guint i = 0; i < script.commands->len; i++)
      {
        const GPtrArray *const command = g_ptr_array_index (script.commands, i);
        if (read_launcher (settings, command, command->len))
          break;
      }
  if (settings->devices == 0 && environment_number (settings, "WORLD_SIZE") > 0)
    settings->devices = environment_number (settings, "WORLD_SIZE");
  return read_arguments (&parser, first, error);
}

gboolean
plan_megatron_settings_read (const char *text, const char *origin, GPtrArray *notes,
                             PlanMegatronSettings *out_settings, GError **error)
{
  g_auto (PlanMegatronSettings) settings = { 0 };
  if (!plan_text_check (text, strlen (text), origin, error)
      || !(plan_megatron_is_log (text)
               ? plan_megatron_log_read (text, origin, notes, &settings, error)
               : read_script (text, origin, notes, &settings, error)))
    return FALSE;
  *out_settings = settings;
  settings = (PlanMegatronSettings){ 0 };
  return TRUE;
}
