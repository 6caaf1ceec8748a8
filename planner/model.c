/* SPDX-License-Identifier: Apache-2.0 */
/* Canonical text: family, the eight dimensions in the order of the table below, then name,
 * norm_eps, rope_theta and tied where they differ from their defaults. A reader may leave out
 * kv_heads
 * (= heads), head_dim (= hidden / heads) and family; any order is read. */
#include "config.h"

#include "planner/model.h"

#include "planner/error.h"
#include "planner/text.h"
#include "planner/units.h"

#include <string.h>

#define DEFAULT_NAME "custom"
#define DEFAULT_NORM_EPS 1e-5
#define DEFAULT_ROPE_THETA 10000.0

/* Parameters, so that bytes of any state of the model fit 64 bits. */
#define MAX_PARAMETERS (G_GUINT64_CONSTANT (1) << 50)

static const char presets_text[] =
#include "planner/data/models.ini.inc"
    ;

static const struct
{
  const char *key;
  gsize offset;
  gint64 max;
} dimensions[] = {
  { "layers", G_STRUCT_OFFSET (PlanModel, layers), 65536 },
  { "hidden", G_STRUCT_OFFSET (PlanModel, hidden), G_MAXINT32 },
  { "ffn", G_STRUCT_OFFSET (PlanModel, ffn), G_MAXINT32 },
  { "heads", G_STRUCT_OFFSET (PlanModel, heads), G_MAXINT32 },
  { "kv_heads", G_STRUCT_OFFSET (PlanModel, kv_heads), G_MAXINT32 },
  { "head_dim", G_STRUCT_OFFSET (PlanModel, head_dim), G_MAXINT32 },
  { "vocab", G_STRUCT_OFFSET (PlanModel, vocab), G_MAXINT32 },
  { "max_seq", G_STRUCT_OFFSET (PlanModel, max_seq), G_MAXINT32 },
};

/* Every key of the text form, for hints. */
static const char *const keys[]
    = { "family", "layers",  "hidden", "ffn",      "heads",      "kv_heads", "head_dim",
        "vocab",  "max_seq", "name",   "norm_eps", "rope_theta", "tied",     NULL };

static gint64
dimension_of (const PlanModel *self, guint i)
{
  return G_STRUCT_MEMBER (gint64, self, dimensions[i].offset);
}

void
plan_model_free (PlanModel *self)
{
  if (!self)
    return;
  g_free (self->name);
  g_free (self->family);
  g_free (self);
}

static gboolean G_GNUC_PRINTF (2, 3) invalid (GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *message = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID, message);
  return FALSE;
}

static gboolean
check_words (const PlanModel *self, GError **error)
{
  if (!self->family || !g_str_equal (self->family, "llama"))
    {
      g_autofree char *shown = plan_text_quote (self->family ? self->family : "");
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "family: %s is not modelled yet, only llama is", shown);
      return FALSE;
    }
  if (!self->name || !plan_text_is_name (self->name))
    return invalid (error, "name: only letters, digits and . _ + - may be used");
  if (!(self->norm_eps >= 1e-12 && self->norm_eps <= 1))
    return invalid (error, "norm_eps: must be from 1e-12 to 1");
  if (!(self->rope_theta >= 1 && self->rope_theta <= 1e15))
    return invalid (error, "rope_theta: must be from 1 to 1e15");
  return TRUE;
}

static gboolean
check_shapes (const PlanModel *self, GError **error)
{
  if (self->heads % self->kv_heads != 0)
    return invalid (error,
                    "kv_heads: %" G_GINT64_FORMAT " does not divide heads=%" G_GINT64_FORMAT
                    ", so query heads cannot share them evenly",
                    self->kv_heads, self->heads);
  if (self->head_dim % 2 != 0)
    return invalid (error, "head_dim: %" G_GINT64_FORMAT " is odd, but rotary positions turn pairs",
                    self->head_dim);
  if (self->heads * self->head_dim > G_MAXINT32)
    return invalid (error,
                    "heads: %" G_GINT64_FORMAT " of head_dim=%" G_GINT64_FORMAT
                    " are wider than 2^31 - 1",
                    self->heads, self->head_dim);
  return TRUE;
}

static guint64
layer_parameters (const PlanModel *self)
{
  guint64 sum = 0;
  for (guint role = PLAN_TENSOR_ATTENTION_NORM; role <= PLAN_TENSOR_DOWN; role++)
    {
      const PlanTensor tensor = plan_model_tensor (self, role, self->vocab);
      sum += tensor.rows * tensor.cols;
    }
  return sum;
}

/* No tensor overflows after check_shapes: rows < 2^33 and cols < 2^31. */
static gboolean
check_size (const PlanModel *self, GError **error)
{
  gboolean fits = TRUE;
  for (guint role = 0; role < PLAN_N_TENSORS; role++)
    {
      const PlanTensor tensor = plan_model_tensor (self, role, self->vocab);
      fits = fits && tensor.rows * tensor.cols <= MAX_PARAMETERS;
    }
  fits = fits && layer_parameters (self) <= MAX_PARAMETERS / (guint64)self->layers
         && plan_model_parameters (self) <= MAX_PARAMETERS;
  return fits || invalid (error, "model: more than 2^50 parameters");
}

gboolean
plan_model_check (const PlanModel *self, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (dimensions); i++)
    {
      const gint64 value = dimension_of (self, i);
      if (value < 1 || value > dimensions[i].max)
        return invalid (error,
                        "%s: %" G_GINT64_FORMAT
                        " is out of range: it must be from 1 to %" G_GINT64_FORMAT,
                        dimensions[i].key, value, dimensions[i].max);
    }
  return check_words (self, error) && check_shapes (self, error) && check_size (self, error);
}

/* Index in `keys`; -1 with an error for any other word. */
static int
find_key (const char *key, GError **error)
{
  for (int i = 0; keys[i]; i++)
    if (g_str_equal (key, keys[i]))
      return i;
  g_autofree char *shown = plan_text_quote (key);
  g_autofree char *hint = plan_text_suggest (key, keys);
  invalid (error, "%s is not a dimension of a model: %s", shown, hint);
  return -1;
}

/* Sets one key; `seen` has a bit per key of `keys`. */
static gboolean
set_key (PlanModel *self, guint *seen, const char *key, const char *value, GError **error)
{
  const int at = find_key (key, error);
  if (at < 0)
    return FALSE;
  if (*seen & (1u << at))
    return invalid (error, "%s: given twice", key);
  *seen |= 1u << at;

  for (guint i = 0; i < G_N_ELEMENTS (dimensions); i++)
    if (g_str_equal (key, dimensions[i].key))
      return plan_units_parse_int (value, key, 1, dimensions[i].max,
                                   &G_STRUCT_MEMBER (gint64, self, dimensions[i].offset), error);
  if (g_str_equal (key, "norm_eps"))
    return plan_units_parse_real (value, key, 1e-12, 1, &self->norm_eps, error);
  if (g_str_equal (key, "rope_theta"))
    return plan_units_parse_real (value, key, 1, 1e15, &self->rope_theta, error);
  if (g_str_equal (key, "tied"))
    {
      self->tied_embeddings = g_str_equal (value, "on");
      if (self->tied_embeddings || g_str_equal (value, "off"))
        return TRUE;
      g_autofree char *shown = plan_text_quote (value);
      return invalid (error, "tied: %s must be on or off", shown);
    }
  char **const word = g_str_equal (key, "name") ? &self->name : &self->family;
  g_free (*word);
  *word = g_strdup (value);
  return TRUE;
}

static PlanModel *
new_default (const char *name)
{
  PlanModel *self = g_new0 (PlanModel, 1);
  self->name = g_strdup (name);
  self->family = g_strdup ("llama");
  self->norm_eps = DEFAULT_NORM_EPS;
  self->rope_theta = DEFAULT_ROPE_THETA;
  return self;
}

/* What was left open follows from what was given. */
static gboolean
complete (PlanModel *self, GError **error)
{
  if (self->kv_heads == 0)
    self->kv_heads = self->heads;
  for (guint i = 0; i < G_N_ELEMENTS (dimensions); i++)
    if (dimension_of (self, i) == 0
        && dimensions[i].offset != G_STRUCT_OFFSET (PlanModel, head_dim))
      return invalid (error, "%s: missing", dimensions[i].key);
  if (self->head_dim == 0)
    {
      if (self->hidden % self->heads != 0)
        return invalid (error,
                        "head_dim: missing, and heads=%" G_GINT64_FORMAT
                        " does not divide hidden=%" G_GINT64_FORMAT,
                        self->heads, self->hidden);
      self->head_dim = self->hidden / self->heads;
    }
  return plan_model_check (self, error);
}

static PlanModel *
parse_dimensions (const char *spec, GError **error)
{
  g_autoptr (PlanModel) self = new_default (DEFAULT_NAME);
  g_auto (GStrv) pairs = g_strsplit (spec, ",", -1);
  guint seen = 0;
  for (guint i = 0; pairs[i]; i++)
    {
      char *const value = strchr (pairs[i], '=');
      if (!value)
        {
          g_autofree char *shown = plan_text_quote (pairs[i]);
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "model: %s is not of the form dimension=value", shown);
          return NULL;
        }
      *value = '\0';
      if (!set_key (self, &seen, pairs[i], value + 1, error))
        {
          g_prefix_error (error, "model: ");
          return NULL;
        }
    }
  if (!complete (self, error))
    {
      g_prefix_error (error, "model: ");
      return NULL;
    }
  return g_steal_pointer (&self);
}

const char *const *
plan_model_presets (void)
{
  static gsize ready = 0;
  static char **names;
  if (g_once_init_enter (&ready))
    {
      g_autoptr (GKeyFile) file = plan_text_built_in (presets_text);
      names = g_key_file_get_groups (file, NULL);
      g_once_init_leave (&ready, 1);
    }
  return (const char *const *)names;
}

static gboolean
read_preset (PlanModel *self, GKeyFile *file, const char *name, GError **error)
{
  g_auto (GStrv) found = g_key_file_get_keys (file, name, NULL, error);
  guint seen = 0;
  gint64 published = 0;
  for (guint i = 0; found && found[i]; i++)
    {
      g_autofree char *value = g_key_file_get_value (file, name, found[i], NULL);
      if (g_str_equal (found[i], "parameters")
              ? !plan_units_parse_int (value, found[i], 1, G_MAXINT64, &published, error)
              : !set_key (self, &seen, found[i], value, error))
        return FALSE;
    }
  if (!found || !complete (self, error))
    return FALSE;
  if (plan_model_parameters (self) != (guint64)published)
    return invalid (error,
                    "parameters: %" G_GINT64_FORMAT
                    " published, but the dimensions have %" G_GUINT64_FORMAT,
                    published, plan_model_parameters (self));
  return TRUE;
}

PlanModel *
plan_model_new_preset (const char *name, GError **error)
{
  if (!g_strv_contains (plan_model_presets (), name))
    {
      g_autofree char *shown = plan_text_quote (name);
      g_autofree char *hint = plan_text_suggest (name, plan_model_presets ());
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "model: %s is neither a shipped model nor a file nor a list such as "
                   "layers=4,hidden=64,...: %s",
                   shown, hint);
      return NULL;
    }
  g_autoptr (PlanModel) self = new_default (name);
  g_autoptr (GKeyFile) file = plan_text_built_in (presets_text);
  if (!read_preset (self, file, name, error))
    {
      g_prefix_error (error, "models.ini: [%s] ", name);
      return NULL;
    }
  return g_steal_pointer (&self);
}

PlanModel *
plan_model_new (const char *spec, GError **error)
{
  const gboolean is_shipped = g_strv_contains (plan_model_presets (), spec);
  if (!is_shipped && strchr (spec, '=') && !strchr (spec, '/'))
    return parse_dimensions (spec, error);
  if (!is_shipped
      && (strchr (spec, '/') || g_str_has_suffix (spec, ".json")
          || g_file_test (spec, G_FILE_TEST_EXISTS)))
    return plan_model_new_from_config (spec, error);
  return plan_model_new_preset (spec, error);
}

static void
append_real (GString *text, const char *key, double value, double initial)
{
  if (value == initial)
    return;
  g_autofree char *digits = plan_units_format_real (value);
  g_string_append_printf (text, ",%s=%s", key, digits);
}

char *
plan_model_print (const PlanModel *self)
{
  GString *text = g_string_new ("family=");
  g_string_append (text, self->family);
  for (guint i = 0; i < G_N_ELEMENTS (dimensions); i++)
    g_string_append_printf (text, ",%s=%" G_GINT64_FORMAT, dimensions[i].key,
                            dimension_of (self, i));
  if (!g_str_equal (self->name, DEFAULT_NAME))
    g_string_append_printf (text, ",name=%s", self->name);
  append_real (text, "norm_eps", self->norm_eps, DEFAULT_NORM_EPS);
  append_real (text, "rope_theta", self->rope_theta, DEFAULT_ROPE_THETA);
  if (self->tied_embeddings)
    g_string_append (text, ",tied=on");
  return g_string_free (text, FALSE);
}

static PlanTensor
make_tensor (PlanTensorRole role, const char *name, gint64 rows, gint64 cols)
{
  return (PlanTensor){ .role = role, .name = name, .rows = (guint64)rows, .cols = (guint64)cols };
}

PlanTensor
plan_model_tensor (const PlanModel *self, PlanTensorRole role, gint64 vocab)
{
  const gint64 query = self->heads * self->head_dim, key = self->kv_heads * self->head_dim;
  switch (role)
    {
    case PLAN_TENSOR_EMBEDDING:
      return make_tensor (role, "embedding", vocab, self->hidden);
    case PLAN_TENSOR_ATTENTION_NORM:
      return make_tensor (role, "attention_norm", self->hidden, 1);
    case PLAN_TENSOR_QKV:
      return make_tensor (role, "qkv", query + 2 * key, self->hidden);
    case PLAN_TENSOR_PROJ:
      return make_tensor (role, "proj", self->hidden, query);
    case PLAN_TENSOR_MLP_NORM:
      return make_tensor (role, "mlp_norm", self->hidden, 1);
    case PLAN_TENSOR_GATE_UP:
      return make_tensor (role, "gate_up", 2 * self->ffn, self->hidden);
    case PLAN_TENSOR_DOWN:
      return make_tensor (role, "down", self->hidden, self->ffn);
    case PLAN_TENSOR_FINAL_NORM:
      return make_tensor (role, "final_norm", self->hidden, 1);
    case PLAN_TENSOR_OUTPUT:
      return make_tensor (role, "output", self->tied_embeddings ? 0 : vocab, self->hidden);
    case PLAN_N_TENSORS:
      break;
    }
  g_return_val_if_reached ((PlanTensor){ 0 });
}

guint64
plan_model_parameters (const PlanModel *self)
{
  guint64 sum = layer_parameters (self) * (guint64)self->layers;
  for (guint role = 0; role < PLAN_N_TENSORS; role++)
    if (role < PLAN_TENSOR_ATTENTION_NORM || role > PLAN_TENSOR_DOWN)
      {
        const PlanTensor tensor = plan_model_tensor (self, role, self->vocab);
        sum += tensor.rows * tensor.cols;
      }
  return sum;
}

double
plan_model_flops_per_token (const PlanModel *self, gint64 seq, gint64 vocab)
{
  const double hidden = (double)self->hidden, layers = (double)self->layers;
  const double query = (double)(self->heads * self->head_dim);
  const double key = (double)(self->kv_heads * self->head_dim);
  const double mlp = hidden * (double)self->ffn * 3;
  const double projections = hidden * (query + 2 * key) + query * hidden;
  const double attention = query * (double)seq; /* two products over half of seq x seq */
  return 6 * (layers * (mlp + projections + attention) + hidden * (double)vocab);
}
