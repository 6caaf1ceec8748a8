/* SPDX-License-Identifier: Apache-2.0 */
/* Reads rope_scaling of config.json, or rope_parameters, its name since transformers 5.0, which
 * also has the base and the fraction of a head that is rotated. */
#include "config.h"

#include "planner/model/model-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <math.h>

/* In the order of PlanRopeScaling, then other names of the same scalings. */
static const struct
{
  const char *name;
  PlanRopeScaling scaling;
} kinds[] = {
  { "default", PLAN_ROPE_SCALING_NONE },    { "linear", PLAN_ROPE_SCALING_LINEAR },
  { "dynamic", PLAN_ROPE_SCALING_DYNAMIC }, { "llama3", PLAN_ROPE_SCALING_LLAMA3 },
  { "yarn", PLAN_ROPE_SCALING_YARN },       { "longrope", PLAN_ROPE_SCALING_LONGROPE },
  { "su", PLAN_ROPE_SCALING_LONGROPE }, /* Phi-3's first files */
};

static gboolean
read_kind (PlanModel *self, PlanModelJson *inner, GError **error)
{
  const char *names[G_N_ELEMENTS (kinds) + 1] = { NULL }, *name = NULL;
  if (!plan_model_json_word (inner, "type", &name, error)
      || !plan_model_json_word (inner, "rope_type", &name, error))
    return FALSE;
  if (!name && plan_model_json_find (inner, "factor"))
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "rope_type: missing beside factor");
      return FALSE;
    }
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    {
      names[i] = kinds[i].name;
      if (!name || g_str_equal (name, kinds[i].name))
        {
          self->rope.scaling = kinds[i].scaling;
          return TRUE;
        }
    }
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *all = g_strjoinv (", ", (char **)names);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "rope_type: %s is not modelled; known are %s", shown, all);
  return FALSE;
}

/* Reads yarn's mscale and mscale_all_dim, which must be given together: with only one of them
 * transformers ignores it for rotary positions, but not for the scale of latent attention's
 * scores. */
static gboolean
read_mscale (PlanModel *self, PlanModelJson *inner, GError **error)
{
  double mscale = 0, all = 0;
  if (!plan_model_json_real (inner, "mscale", &mscale, error)
      || !plan_model_json_real (inner, "mscale_all_dim", &all, error))
    return FALSE;
  if ((mscale > 0) != (all > 0))
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                           "mscale: without mscale_all_dim, or the other way round, is not "
                           "modelled");
      return FALSE;
    }
  if (mscale > 0)
    {
      self->rope.mscale = mscale;
      self->rope.mscale_all = all;
    }
  return TRUE;
}

static gboolean
check_attention_factor (const PlanModel *self, PlanModelJson *inner, GError **error)
{
  const double ours = plan_rope_magnitude (&self->rope);
  double theirs = ours;
  if (!plan_model_json_real (inner, "attention_factor", &theirs, error))
    return FALSE;
  if (fabs (theirs - ours) <= 1e-6 * ours)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "attention_factor: %.10g is not modelled: only what factor and mscale say, %.10g",
               theirs, ours);
  return FALSE;
}

static gboolean
read_factor (PlanModel *self, PlanModelJson *object, PlanModelJson *inner, GError **error)
{
  PlanRope *const rope = &self->rope;
  const gboolean is_said = plan_model_json_find (inner, "factor") != NULL;
  if (!plan_model_json_real (inner, "factor", &rope->factor, error)
      || !plan_model_json_int (object, "original_max_position_embeddings", 1, &rope->original,
                               error)
      || !plan_model_json_int (inner, "original_max_position_embeddings", 1, &rope->original,
                               error))
    return FALSE;
  if (rope->scaling == PLAN_ROPE_SCALING_LINEAR)
    rope->original = 0; /* says nothing */
  if (!is_said && rope->original > 0
      && (rope->scaling == PLAN_ROPE_SCALING_YARN || rope->scaling == PLAN_ROPE_SCALING_LONGROPE))
    rope->factor = MAX ((double)self->max_seq / (double)rope->original, 1);
  else if (!is_said && rope->scaling != PLAN_ROPE_SCALING_LONGROPE)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID, "factor: missing");
      return FALSE;
    }
  return TRUE;
}

/* Reads one factor for each pair. */
static gboolean
read_factors (PlanModelJson *inner, const char *key, PlanRopeFactors *out, GError **error)
{
  JsonNode *const node = plan_model_json_find (inner, key);
  JsonArray *const list = node && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
  if (!node)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: missing", key);
      return FALSE;
    }
  if (!list || json_array_get_length (list) > PLAN_ROPE_MAX_PAIRS)
    return plan_model_json_refuse (key, node, "is not a list of at most 128 numbers", error);
  for (out->n = 0; out->n < json_array_get_length (list); out->n++)
    {
      JsonNode *const item = json_array_get_element (list, out->n);
      const double value = JSON_NODE_HOLDS_VALUE (item) ? json_node_get_double (item) : 0;
      if (!(value >= 1e-6 && value <= 1e6))
        return plan_model_json_refuse (key, item, "is not a number from 1e-06 to 1000000", error);
      out->at[out->n] = value;
    }
  return TRUE;
}

static gboolean
read_scaling (PlanModel *self, PlanModelJson *object, PlanModelJson *inner, GError **error)
{
  PlanRope *const rope = &self->rope;
  gboolean truncates = TRUE;
  if (!read_kind (self, inner, error))
    return FALSE;
  if (rope->scaling == PLAN_ROPE_SCALING_NONE)
    return TRUE;
  const gboolean is_llama = rope->scaling == PLAN_ROPE_SCALING_LLAMA3;
  const gboolean is_yarn = rope->scaling == PLAN_ROPE_SCALING_YARN;
  if (!read_factor (self, object, inner, error)
      || ((is_llama || is_yarn)
          && (!plan_model_json_real (inner, is_llama ? "low_freq_factor" : "beta_slow", &rope->slow,
                                     error)
              || !plan_model_json_real (inner, is_llama ? "high_freq_factor" : "beta_fast",
                                        &rope->fast, error)))
      || (is_yarn && !read_mscale (self, inner, error))
      || !plan_model_json_flag (inner, "truncate", &truncates, error))
    return FALSE;
  rope->is_fractional = is_yarn && !truncates;
  if (rope->scaling == PLAN_ROPE_SCALING_LONGROPE
      && (!read_factors (inner, "short_factor", &rope->shorter, error)
          || !read_factors (inner, "long_factor", &rope->longer, error)))
    return FALSE;
  return check_attention_factor (self, inner, error);
}

static gboolean
read_inner (PlanModel *self, PlanModelJson *object, JsonObject *found, GError **error)
{
  g_auto (PlanModelJson) inner = plan_model_json_begin (found);
  return read_scaling (self, object, &inner, error)
         && plan_model_json_real (&inner, "rope_theta", &self->rope.theta, error)
         && plan_model_json_real (&inner, "partial_rotary_factor", &self->rope_fraction, error)
         && plan_model_json_check_rest (&inner, error);
}

/* Reads the rotary positions of full-attention layers, and the base of windowed ones, which are not
 * scaled. */
static gboolean
read_two (PlanModel *self, PlanModelJson *object, JsonObject *found, GError **error)
{
  g_auto (PlanModelJson) both = plan_model_json_begin (found);
  JsonObject *full, *sliding;
  const char *type = "default";
  if (!plan_model_json_object (&both, "full_attention", &full, error)
      || !plan_model_json_object (&both, "sliding_attention", &sliding, error)
      || !plan_model_json_check_rest (&both, error)
      || (full && !read_inner (self, object, full, error)))
    return FALSE;
  if (!sliding)
    return TRUE;
  g_auto (PlanModelJson) inner = plan_model_json_begin (sliding);
  if (!plan_model_json_word (&inner, "rope_type", &type, error)
      || !plan_model_json_real (&inner, "rope_theta", &self->rope_local, error)
      || !plan_model_json_check_rest (&inner, error))
    return FALSE;
  if (g_str_equal (type, "default"))
    return TRUE;
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                       "sliding_attention: only rope_type default is modelled");
  return FALSE;
}

static gboolean
read_any (PlanModel *self, PlanModelJson *object, JsonObject *found, GError **error)
{
  return self->rope_local > 0 && json_object_has_member (found, "full_attention")
             ? read_two (self, object, found, error)
             : read_inner (self, object, found, error);
}

gboolean
plan_model_read_rope (PlanModel *self, PlanModelJson *object, const char *theta,
                      const char *fraction, GError **error)
{
  JsonObject *older, *newer;
  plan_model_json_find (object, "original_max_position_embeddings"); /* only scaling uses it */
  if (!plan_model_json_object (object, "rope_scaling", &older, error)
      || !plan_model_json_object (object, "rope_parameters", &newer, error))
    return FALSE;
  if (older && newer)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "rope_scaling and rope_parameters say the same: keep one");
      return FALSE;
    }
  if ((older || newer) && !read_any (self, object, older ? older : newer, error))
    {
      g_prefix_error (error, "%s: ", older ? "rope_scaling" : "rope_parameters");
      return FALSE;
    }
  return plan_model_json_real (object, theta, &self->rope.theta, error)
         && (!fraction || plan_model_json_real (object, fraction, &self->rope_fraction, error));
}

static void
put_factors (GPtrArray *members, const char *key, const PlanRopeFactors *factors)
{
  g_autoptr (GString) text = g_string_new ("[");
  for (guint i = 0; i < factors->n; i++)
    {
      g_autofree char *factor = plan_units_format_real (factors->at[i]);
      g_string_append_printf (text, "%s%s", i ? ", " : "", factor);
    }
  g_string_append_c (text, ']');
  plan_model_put_text (members, key, text->str);
}

/* Writes these three members alone, since some versions of transformers refuse any other. */
static void
put_longrope (GPtrArray *members, GPtrArray *inner, const PlanRope *rope)
{
  plan_model_put_int (members, "original_max_position_embeddings", rope->original);
  plan_model_put_word (inner, "type", kinds[rope->scaling].name);
  put_factors (inner, "short_factor", &rope->shorter);
  put_factors (inner, "long_factor", &rope->longer);
}

static void
put_scaling (GPtrArray *inner, const PlanRope *rope)
{
  const gboolean is_llama = rope->scaling == PLAN_ROPE_SCALING_LLAMA3;
  const gboolean is_yarn = rope->scaling == PLAN_ROPE_SCALING_YARN;
  plan_model_put_word (inner, "rope_type", kinds[rope->scaling].name);
  plan_model_put_real (inner, "factor", rope->factor);
  if (rope->original > 0
      && rope->scaling != PLAN_ROPE_SCALING_DYNAMIC) /* dynamic scaling does not read it */
    plan_model_put_int (inner, "original_max_position_embeddings", rope->original);
  if (is_llama || is_yarn)
    {
      plan_model_put_real (inner, is_llama ? "low_freq_factor" : "beta_slow", rope->slow);
      plan_model_put_real (inner, is_llama ? "high_freq_factor" : "beta_fast", rope->fast);
    }
  if (rope->is_fractional)
    plan_model_put_text (inner, "truncate", "false");
  if (is_yarn && rope->mscale_all > 0)
    {
      plan_model_put_real (inner, "mscale", rope->mscale);
      plan_model_put_real (inner, "mscale_all_dim", rope->mscale_all);
    }
}

void
plan_model_put_rope (GPtrArray *members, const PlanModel *self, const char *theta)
{
  const PlanRope *const rope = &self->rope;
  plan_model_put_real (members, theta, rope->theta);
  if (rope->scaling == PLAN_ROPE_SCALING_NONE)
    return;
  g_autoptr (GPtrArray) inner = g_ptr_array_new_with_free_func (g_free);
  if (rope->scaling == PLAN_ROPE_SCALING_LONGROPE)
    put_longrope (members, inner, rope);
  else
    put_scaling (inner, rope);
  g_ptr_array_add (inner, NULL);
  g_autofree char *list = g_strjoinv (", ", (char **)inner->pdata);
  g_autofree char *object = g_strdup_printf ("{ %s }", list);
  plan_model_put_text (members, "rope_scaling", object);
}
