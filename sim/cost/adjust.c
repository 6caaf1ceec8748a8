/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cost/adjust.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

static const struct
{
  const char *name, *meaning;
  double least, most;
} effects[] = {
#define X(id, name, meaning, least, most) { name, meaning, least, most },
  SIM_EFFECT_LIST (X)
#undef X
};

static const char *const distances[] = {
#define X(id, name, meaning) name,
  SIM_DISTANCE_LIST (X)
#undef X
};

/* An entry of `effect_of`: 1 + the effect that multiplies a parameter. 0: no effect does. */
#define BY(effect) (SIM_EFFECT_##effect + 1)

static const guint8 effect_of[SIM_N_PARAMS] = {
  [SIM_PARAM_PRODUCT_FP32] = BY (PRODUCT_BF16),
  [SIM_PARAM_PRODUCT_BF16] = BY (PRODUCT_BF16),
  [SIM_PARAM_PRODUCT_FP8] = BY (PRODUCT_FP8),
  [SIM_PARAM_PRODUCT_MXFP8] = BY (PRODUCT_FP8),
  [SIM_PARAM_PRODUCT_NVFP4] = BY (PRODUCT_FP8),
  [SIM_PARAM_PRODUCT_SUSTAINED] = BY (SUSTAINED),
  [SIM_PARAM_PRODUCT_MEMORY] = BY (TRAFFIC),
  [SIM_PARAM_ATTENTION] = BY (ATTENTION),
  [SIM_PARAM_ATTENTION_BWD] = BY (ATTENTION),
  [SIM_PARAM_DELTA] = BY (ATTENTION),
  [SIM_PARAM_DELTA_BWD] = BY (ATTENTION),
  [SIM_PARAM_SSM] = BY (ATTENTION),
  [SIM_PARAM_TRAFFIC_COPY] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_TRANSPOSE] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_QUANTIZE] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_NORM] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_NORM_BWD] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_ACTIVATION] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_ROPE] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_EMBED] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_EMBED_BWD] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_LOSS] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_REDUCTION] = BY (TRAFFIC),
  [SIM_PARAM_TRAFFIC_OPTIMIZER] = BY (TRAFFIC),
  [SIM_PARAM_LAUNCH] = BY (LAUNCH),
  [SIM_PARAM_RING_SHARE] = BY (LINKS),
  [SIM_PARAM_TREE_SHARE] = BY (LINKS),
  [SIM_PARAM_NVLS_SHARE] = BY (LINKS),
  [SIM_PARAM_SYMMETRIC_SHARE] = BY (LINKS),
  [SIM_PARAM_ENGINE_SHARE] = BY (LINKS),
  [SIM_PARAM_NET_SHARE] = BY (NETWORK),
  [SIM_PARAM_TIMED_ATTENTION] = BY (ATTENTION),
  [SIM_PARAM_TIMED_TRAFFIC] = BY (TRAFFIC),
  [SIM_PARAM_RETAKE] = BY (RETAKE),
  [SIM_PARAM_TIMED_COLLECTIVE] = BY (LINKS),
  [SIM_PARAM_SHARED_PROCESSORS] = BY (SHARED),
};

/* Largest share of a data sheet's rate. */
#define MOST_OF_A_RATE 0.98

const char *
sim_effect_name (SimEffect effect)
{
  return effects[effect].name;
}

const char *
sim_effect_meaning (SimEffect effect)
{
  return effects[effect].meaning;
}

double
sim_effect_least (SimEffect effect)
{
  return effects[effect].least;
}

double
sim_effect_most (SimEffect effect)
{
  return effects[effect].most;
}

static void
clear_scope (SimScope *scope)
{
  g_free (scope->gpu);
  g_free (scope->stack);
  g_free (scope->site);
  g_free (scope->models);
}

static void
clear_factor (gpointer data)
{
  clear_scope (&((SimFactor *)data)->scope);
}

static void
clear_uncertainty (gpointer data)
{
  clear_scope (&((SimUncertainty *)data)->scope);
}

static void
clear_seen (gpointer data)
{
  SimSeen *seen = data;
  clear_scope (&seen->scope);
  g_free (seen->modes);
  g_free (seen->networks);
  g_free (seen->sources);
}

static void
clear_memory (gpointer data)
{
  clear_scope (&((SimMemoryError *)data)->scope);
}

static GArray *
array_new (guint size, GDestroyNotify clear)
{
  GArray *array = g_array_new (FALSE, FALSE, size);
  g_array_set_clear_func (array, clear);
  return array;
}

SimAdjustments *
sim_adjustments_new (const char *id)
{
  SimAdjustments *self = g_new0 (SimAdjustments, 1);
  self->id = g_strdup (id);
  self->factors = array_new (sizeof (SimFactor), clear_factor);
  self->uncertainties = array_new (sizeof (SimUncertainty), clear_uncertainty);
  self->seen = array_new (sizeof (SimSeen), clear_seen);
  self->memory = array_new (sizeof (SimMemoryError), clear_memory);
  return self;
}

void
sim_adjustments_free (SimAdjustments *self)
{
  if (!self)
    return;
  g_free (self->id);
  g_array_unref (self->factors);
  g_array_unref (self->uncertainties);
  g_array_unref (self->seen);
  g_array_unref (self->memory);
  g_free (self);
}

static SimScope
copy_scope (SimScope scope)
{
  return (SimScope){ g_strdup (scope.gpu), g_strdup (scope.stack), g_strdup (scope.site),
                     g_strdup (scope.models) };
}

void
sim_adjustments_add_factor (SimAdjustments *self, SimFactor factor)
{
  factor.scope = copy_scope (factor.scope);
  g_array_append_val (self->factors, factor);
}

void
sim_adjustments_add_uncertainty (SimAdjustments *self, SimUncertainty uncertainty)
{
  uncertainty.scope = copy_scope (uncertainty.scope);
  g_array_append_val (self->uncertainties, uncertainty);
}

void
sim_adjustments_add_seen (SimAdjustments *self, SimSeen seen)
{
  seen.scope = copy_scope (seen.scope);
  seen.modes = g_strdup (seen.modes);
  seen.networks = g_strdup (seen.networks);
  seen.sources = g_strdup (seen.sources);
  g_array_append_val (self->seen, seen);
}

void
sim_adjustments_add_memory (SimAdjustments *self, SimMemoryError error)
{
  error.scope = copy_scope (error.scope);
  g_array_append_val (self->memory, error);
}

void
sim_adjustments_add_uncertainties (SimAdjustments *self, const SimAdjustments *other)
{
  for (guint i = 0; i < other->seen->len; i++)
    sim_adjustments_add_seen (self, g_array_index (other->seen, SimSeen, i));
  for (guint i = 0; i < other->memory->len; i++)
    sim_adjustments_add_memory (self, g_array_index (other->memory, SimMemoryError, i));
  memcpy (self->distances, other->distances, sizeof self->distances);
}

static void
print_scope (GString *text, const SimScope *scope)
{
  if (scope->gpu)
    g_string_append_printf (text, " gpu=%s", scope->gpu);
  if (scope->stack)
    g_string_append_printf (text, " stack=%s", scope->stack);
  if (scope->site)
    g_string_append_printf (text, " site=%s", scope->site);
  if (scope->models)
    g_string_append_printf (text, " models=%s", scope->models);
}

static void
print_uncertainties (const SimAdjustments *self, GString *text)
{
  char number[2][G_ASCII_DTOSTR_BUF_SIZE];
  for (guint i = 0; i < self->seen->len; i++)
    {
      const SimSeen *s = &g_array_index (self->seen, SimSeen, i);
      g_string_append (text, "seen");
      print_scope (text, &s->scope);
      g_string_append_printf (text, " runs=%u devices=%" G_GINT64_FORMAT, s->runs, s->devices);
      if (s->modes)
        g_string_append_printf (text, " modes=%s", s->modes);
      if (s->networks)
        g_string_append_printf (text, " networks=%s", s->networks);
      if (s->sources)
        g_string_append_printf (text, " sources=%s", s->sources);
      g_string_append_c (text, '\n');
    }
  for (SimDistance d = 0; d < SIM_N_DISTANCES; d++)
    if (self->distances[d].pct > 0 || self->distances[d].runs > 0)
      g_string_append_printf (text, "distance kind=%s pct=%s runs=%u\n", distances[d],
                              g_ascii_dtostr (number[0], sizeof number[0], self->distances[d].pct),
                              self->distances[d].runs);
  for (guint i = 0; i < self->memory->len; i++)
    {
      const SimMemoryError *m = &g_array_index (self->memory, SimMemoryError, i);
      g_string_append (text, "memory");
      print_scope (text, &m->scope);
      g_string_append_printf (text, " whole=%s passing=%s runs=%u\n",
                              g_ascii_dtostr (number[0], sizeof number[0], m->whole),
                              g_ascii_dtostr (number[1], sizeof number[1], m->passing), m->runs);
    }
}

char *
sim_adjustments_print (const SimAdjustments *self)
{
  GString *text = g_string_new (NULL);
  char number[2][G_ASCII_DTOSTR_BUF_SIZE];
  g_string_append_printf (text, "parameters %s\n", self->id);
  for (guint i = 0; i < self->factors->len; i++)
    {
      const SimFactor *f = &g_array_index (self->factors, SimFactor, i);
      g_string_append_printf (text, "factor effect=%s", effects[f->effect].name);
      print_scope (text, &f->scope);
      g_string_append_printf (text, " value=%s error=%s\n",
                              g_ascii_dtostr (number[0], sizeof number[0], f->factor),
                              g_ascii_dtostr (number[1], sizeof number[1], f->error));
    }
  for (guint i = 0; i < self->uncertainties->len; i++)
    {
      const SimUncertainty *u = &g_array_index (self->uncertainties, SimUncertainty, i);
      g_string_append (text, "uncertainty");
      print_scope (text, &u->scope);
      g_string_append_printf (text, " pct=%s runs=%u",
                              g_ascii_dtostr (number[0], sizeof number[0], u->pct), u->runs);
      if (u->sources > 0)
        g_string_append_printf (text, " sources=%u", u->sources);
      g_string_append_c (text, '\n');
    }
  print_uncertainties (self, text);
  return g_string_free (text, FALSE);
}

/* A line while it is read. */
typedef struct
{
  const char *name;
  guint number;
  GHashTable *values; /* key to value; both are words of the line */
  GError **error;
} Line;

static gboolean
refuse (const Line *line, const char *what, const char *word)
{
  g_autofree char *quoted = plan_text_quote (word);
  g_set_error (line->error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u: %s %s", line->name,
               line->number, what, quoted);
  return FALSE;
}

static gboolean
take_number (const Line *line, const char *key, double least, double most, double *out)
{
  const char *word = g_hash_table_lookup (line->values, key);
  char *end;
  if (!word)
    return refuse (line, "no", key);
  *out = g_ascii_strtod (word, &end);
  g_hash_table_remove (line->values, key);
  if (end == word || *end || !(*out >= least && *out <= most))
    {
      g_set_error (line->error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s:%u: %s=%s is no number from %g to %g", line->name, line->number, key, word,
                   least, most);
      return FALSE;
    }
  return TRUE;
}

/* The scope of a line; its strings belong to the line. */
static SimScope
take_scope (const Line *line)
{
  const SimScope scope
      = { g_hash_table_lookup (line->values, "gpu"), g_hash_table_lookup (line->values, "stack"),
          g_hash_table_lookup (line->values, "site"), NULL };
  g_hash_table_remove (line->values, "gpu");
  g_hash_table_remove (line->values, "stack");
  g_hash_table_remove (line->values, "site");
  return scope;
}

/* Finds the value of a key among `names`, which end with NULL. */
static gboolean
take_name (const Line *line, const char *key, const char *const *names, guint *out)
{
  const char *word = g_hash_table_lookup (line->values, key);
  for (*out = 0; word && names[*out]; (*out)++)
    if (g_str_equal (names[*out], word))
      {
        g_hash_table_remove (line->values, key);
        return TRUE;
      }
  if (!word)
    return refuse (line, "no", key);
  g_autofree char *hint = plan_text_suggest (word, names);
  g_autofree char *quoted = plan_text_quote (word);
  g_set_error (line->error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u: no %s is called %s: %s",
               line->name, line->number, key, quoted, hint);
  return FALSE;
}

static gboolean
take_effect (const Line *line, SimEffect *out)
{
  const char *names[SIM_N_EFFECTS + 1] = { NULL };
  guint place;
  for (guint e = 0; e < SIM_N_EFFECTS; e++)
    names[e] = effects[e].name;
  if (!take_name (line, "effect", names, &place))
    return FALSE;
  *out = (SimEffect)place;
  return TRUE;
}

static gboolean
take_count (const Line *line, const char *key, gint64 *out)
{
  double number;
  if (!take_number (line, key, 0, 1e9, &number))
    return FALSE;
  *out = (gint64)number;
  return TRUE;
}

static gboolean
take_factor (SimAdjustments *self, const Line *line)
{
  SimFactor factor = { .scope = take_scope (line) };
  if (!take_effect (line, &factor.effect)
      || !take_number (line, "value", effects[factor.effect].least, effects[factor.effect].most,
                       &factor.factor)
      || !take_number (line, "error", 0, 100, &factor.error))
    return FALSE;
  sim_adjustments_add_factor (self, factor);
  return TRUE;
}

static gboolean
take_uncertainty (SimAdjustments *self, const Line *line)
{
  static const char *const kinds[] = { "dense", "experts", NULL };
  SimUncertainty uncertainty = { .scope = take_scope (line) };
  gint64 runs, sources = 0;
  guint kind;
  if (g_hash_table_contains (line->values, "models"))
    {
      if (!take_name (line, "models", kinds, &kind))
        return FALSE;
      uncertainty.scope.models = (char *)kinds[kind];
    }
  if (!take_number (line, "pct", 0, 1000, &uncertainty.pct) || !take_count (line, "runs", &runs)
      || (g_hash_table_contains (line->values, "sources")
          && !take_count (line, "sources", &sources)))
    return FALSE;
  uncertainty.runs = (guint)runs;
  uncertainty.sources = (guint)sources;
  sim_adjustments_add_uncertainty (self, uncertainty);
  return TRUE;
}

/* The value of a key, which belongs to the line. */
static char *
take_words (const Line *line, const char *key)
{
  char *words = g_hash_table_lookup (line->values, key);
  g_hash_table_remove (line->values, key);
  return words;
}

static gboolean
take_seen (SimAdjustments *self, const Line *line)
{
  SimSeen seen = { .scope = take_scope (line),
                   .modes = take_words (line, "modes"),
                   .networks = take_words (line, "networks"),
                   .sources = take_words (line, "sources") };
  gint64 runs;
  if (!take_count (line, "runs", &runs) || !take_count (line, "devices", &seen.devices))
    return FALSE;
  seen.runs = (guint)runs;
  sim_adjustments_add_seen (self, seen);
  return TRUE;
}

static gboolean
take_distance (SimAdjustments *self, const Line *line)
{
  const char *names[SIM_N_DISTANCES + 1] = { NULL };
  SimErrorRange error_range = { 0 };
  guint place;
  gint64 runs;
  for (guint d = 0; d < SIM_N_DISTANCES; d++)
    names[d] = distances[d];
  if (!take_name (line, "kind", names, &place)
      || !take_number (line, "pct", 0, 1000, &error_range.pct) || !take_count (line, "runs", &runs))
    return FALSE;
  error_range.runs = (guint)runs;
  self->distances[place] = error_range;
  return TRUE;
}

static gboolean
take_memory (SimAdjustments *self, const Line *line)
{
  SimMemoryError memory = { .scope = take_scope (line) };
  gint64 runs;
  if (!take_number (line, "whole", 0, 10, &memory.whole)
      || !take_number (line, "passing", 0, 10, &memory.passing)
      || !take_count (line, "runs", &runs))
    return FALSE;
  memory.runs = (guint)runs;
  sim_adjustments_add_memory (self, memory);
  return TRUE;
}

static const struct
{
  const char *word;
  gboolean (*take) (SimAdjustments *self, const Line *line);
} kinds[] = { { "factor", take_factor },
              { "uncertainty", take_uncertainty },
              { "seen", take_seen },
              { "distance", take_distance },
              { "memory", take_memory } };

/* Enters the words behind a line's first one in `values` as keys and values. The table owns
 * neither. */
static gboolean
split (const Line *line, char **words)
{
  for (char **word = words; *word; word++)
    {
      char *equals = strchr (*word, '=');
      if (!equals || equals == *word)
        return refuse (line, "not KEY=VALUE:", *word);
      *equals = '\0';
      if (!g_hash_table_insert (line->values, *word, equals + 1))
        return refuse (line, "given twice:", *word);
    }
  return TRUE;
}

static gboolean
read_line (SimAdjustments *self, const char *text, Line *line)
{
  g_autofree char *copy = g_strstrip (g_strdup (text));
  if (!*copy || *copy == '#')
    return TRUE;
  g_auto (GStrv) words = g_strsplit_set (copy, " \t", -1);
  g_autoptr (GHashTable) values = g_hash_table_new (g_str_hash, g_str_equal);
  line->values = values;
  if (!self->id)
    {
      if (!g_str_equal (words[0], "parameters") || g_strv_length (words) != 2)
        return refuse (line, "a set begins with \"parameters ID\", not", copy);
      if (!plan_text_is_name (words[1]))
        return refuse (line, "an id is letters, digits and . _ + -, not", words[1]);
      self->id = g_strdup (words[1]);
      return TRUE;
    }
  guint kind = 0;
  while (kind < G_N_ELEMENTS (kinds) && !g_str_equal (words[0], kinds[kind].word))
    kind++;
  if (kind == G_N_ELEMENTS (kinds))
    return refuse (line, "neither factor, uncertainty, seen, distance nor memory:", words[0]);
  if (!split (line, words + 1) || !kinds[kind].take (self, line))
    return FALSE;
  GHashTableIter iter;
  gpointer key;
  g_hash_table_iter_init (&iter, values);
  return !g_hash_table_iter_next (&iter, &key, NULL) || refuse (line, "unknown key", key);
}

SimAdjustments *
sim_adjustments_parse (const char *text, const char *name, GError **error)
{
  g_autoptr (SimAdjustments) self = sim_adjustments_new (NULL);
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  Line line = { .name = name, .error = error };
  for (char **at = lines; *at; at++)
    {
      line.number++;
      if (!read_line (self, *at, &line))
        return NULL;
    }
  if (!self->id)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: no \"parameters ID\" in it", name);
      return NULL;
    }
  return g_steal_pointer (&self);
}

/* Whether what an effect multiplies is a share of a data sheet's rate, which has to stay below 1.
 * The parameters left out here may exceed 1. */
static gboolean
is_share (SimParam param, SimEffect effect)
{
  return effect != SIM_EFFECT_LAUNCH && effect != SIM_EFFECT_RETAKE && effect != SIM_EFFECT_SHARED
         && param != SIM_PARAM_TIMED_ATTENTION && param != SIM_PARAM_TIMED_TRAFFIC
         && param != SIM_PARAM_TIMED_COLLECTIVE;
}

void
sim_effect_apply (SimEffect effect, double factor, SimParams *params)
{
  for (SimParam p = 0; p < SIM_N_PARAMS; p++)
    if (effect_of[p] == effect + 1)
      params->value[p] = is_share (p, effect) ? MIN (params->value[p] * factor,
                                                     MAX (params->value[p], MOST_OF_A_RATE))
                                              : params->value[p] * factor;
}

gboolean
sim_scope_holds (const SimScope *scope, const char *gpu, const char *stack, const char *site)
{
  return (!scope->gpu || g_strcmp0 (scope->gpu, gpu) == 0)
         && (!scope->stack || g_strcmp0 (scope->stack, stack) == 0)
         && (!scope->site || g_strcmp0 (scope->site, site) == 0);
}

void
sim_adjustments_apply (const SimAdjustments *self, const char *gpu, const char *stack,
                       const char *site, SimParams *params)
{
  double total[SIM_N_EFFECTS];
  for (guint e = 0; e < SIM_N_EFFECTS; e++)
    total[e] = 1;
  for (guint i = 0; i < self->factors->len; i++)
    {
      const SimFactor *f = &g_array_index (self->factors, SimFactor, i);
      if (sim_scope_holds (&f->scope, gpu, stack, site))
        {
          total[f->effect] *= f->factor;
          params->is_fitted = TRUE;
        }
    }
  for (SimEffect e = 0; e < SIM_N_EFFECTS; e++)
    sim_effect_apply (e, total[e], params);
  params->id = self->id;
}
