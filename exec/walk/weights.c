/* SPDX-License-Identifier: Apache-2.0 */
/* Names and layouts of Hugging Face transformers: modeling_llama.py (also of mistral, qwen2 and
 * qwen3) and modeling_gpt2.py, whose Conv1D keeps matrices the other way round. */
#include "config.h"

#include "exec/walk/weights.h"

#include "exec/walk/tensor-file.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

#define MAX_PARTS 3

/* X (ROLE, parts, one below the other, of llama's kind; the part of gpt2's kind; whether that is
 * the other way round). %d is the layer. */
#define LLAMA "model.layers.%d."
#define NAME_LIST(X) \
  X (EMBEDDING, "model.embed_tokens.weight", "wte.weight", FALSE) \
  X (POSITIONS, "", "wpe.weight", FALSE) \
  X (ATTENTION_NORM, LLAMA "input_layernorm.weight", "h.%d.ln_1.weight", FALSE) \
  X (ATTENTION_NORM_BIAS, LLAMA "input_layernorm.bias", "h.%d.ln_1.bias", FALSE) \
  X (QKV, \
     LLAMA "self_attn.q_proj.weight " LLAMA "self_attn.k_proj.weight " LLAMA \
           "self_attn.v_proj.weight", \
     "h.%d.attn.c_attn.weight", TRUE) \
  X (QKV_BIAS, \
     LLAMA "self_attn.q_proj.bias " LLAMA "self_attn.k_proj.bias " LLAMA "self_attn.v_proj.bias", \
     "h.%d.attn.c_attn.bias", FALSE) \
  X (Q_NORM, LLAMA "self_attn.q_norm.weight", "", FALSE) \
  X (K_NORM, LLAMA "self_attn.k_norm.weight", "", FALSE) \
  X (PROJ, LLAMA "self_attn.o_proj.weight", "h.%d.attn.c_proj.weight", TRUE) \
  X (PROJ_BIAS, LLAMA "self_attn.o_proj.bias", "h.%d.attn.c_proj.bias", FALSE) \
  X (MLP_NORM, LLAMA "post_attention_layernorm.weight", "h.%d.ln_2.weight", FALSE) \
  X (MLP_NORM_BIAS, LLAMA "post_attention_layernorm.bias", "h.%d.ln_2.bias", FALSE) \
  X (GATE_UP, LLAMA "mlp.gate_proj.weight " LLAMA "mlp.up_proj.weight", "h.%d.mlp.c_fc.weight", \
     TRUE) \
  X (GATE_UP_BIAS, LLAMA "mlp.gate_proj.bias " LLAMA "mlp.up_proj.bias", "h.%d.mlp.c_fc.bias", \
     FALSE) \
  X (DOWN, LLAMA "mlp.down_proj.weight", "h.%d.mlp.c_proj.weight", TRUE) \
  X (DOWN_BIAS, LLAMA "mlp.down_proj.bias", "h.%d.mlp.c_proj.bias", FALSE) \
  X (FINAL_NORM, "model.norm.weight", "ln_f.weight", FALSE) \
  X (FINAL_NORM_BIAS, "model.norm.bias", "ln_f.bias", FALSE) \
  X (OUTPUT, "lm_head.weight", "lm_head.weight", FALSE)

static const struct
{
  PlanTensorRole role;
  const char *llama, *gpt2;
  gboolean turns;
} names[] = {
#define X(id, llama, gpt2, turns) { PLAN_TENSOR_##id, llama, gpt2, turns },
  NAME_LIST (X)
#undef X
};

/* Rows of a parameter that lie together in a file. */
typedef struct
{
  const ExecTensorFile *file;
  const PlanSafetensor *tensor;
  guint64 rows;
} Part;

typedef struct
{
  guint n;
  Part part[MAX_PARTS];
  guint64 cols;
  gboolean is_turned; /* [cols, rows] in the file */
} Parameter;

struct _ExecWeights
{
  char *folder;
  GPtrArray *files;
  GHashTable *where; /* tensor's name -> ExecTensorFile */
  GHashTable *read;  /* names of those that are a parameter's */
  gboolean is_gpt2;
  gint64 layers;
  Parameter *parameters; /* by role, then layer */
};

void
exec_weights_free (ExecWeights *self)
{
  if (!self)
    return;
  g_hash_table_unref (self->where);
  g_hash_table_unref (self->read);
  g_ptr_array_unref (self->files);
  g_free (self->parameters);
  g_free (self->folder);
  g_free (self);
}

static gboolean
add_file (ExecWeights *self, const char *name, GError **error)
{
  g_autofree char *path = g_build_filename (self->folder, name, NULL);
  ExecTensorFile *file = exec_tensor_file_open (path, error);
  if (!file)
    return FALSE;
  g_ptr_array_add (self->files, file);
  for (guint i = 0; i < file->header->tensors->len; i++)
    {
      const PlanSafetensor *tensor = &g_array_index (file->header->tensors, PlanSafetensor, i);
      if (g_hash_table_insert (self->where, tensor->name, file))
        continue;
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s is in two files of this folder",
                   path, tensor->name);
      return FALSE;
    }
  return TRUE;
}

static gint
compare_names (gconstpointer a, gconstpointer b)
{
  return strcmp (*(char *const *)a, *(char *const *)b);
}

static gboolean
add_files (ExecWeights *self, GError **error)
{
  g_autoptr (GError) why = NULL;
  g_autoptr (GPtrArray) found = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GDir) dir = g_dir_open (self->folder, 0, &why);
  const char *name;
  if (!dir)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s", why->message);
      return FALSE;
    }
  while ((name = g_dir_read_name (dir)))
    if (g_str_has_suffix (name, ".safetensors"))
      g_ptr_array_add (found, g_strdup (name));
  g_ptr_array_sort (found, compare_names);
  for (guint i = 0; i < found->len; i++)
    if (!add_file (self, found->pdata[i], error))
      return FALSE;
  if (found->len > 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: no .safetensors file is here",
               self->folder);
  return FALSE;
}

/* Tensors are named with and without the model's own prefix. */
static const ExecTensorFile *
find (const ExecWeights *self, const char *name, const PlanSafetensor **out_tensor)
{
  static const char *const prefixes[] = { "", "transformer." };
  for (guint i = 0; i < G_N_ELEMENTS (prefixes); i++)
    {
      g_autofree char *full = g_strconcat (prefixes[i], name, NULL);
      const ExecTensorFile *file = g_hash_table_lookup (self->where, full);
      if (!file)
        continue;
      *out_tensor = plan_safetensors_find (file->header, full);
      return file;
    }
  return NULL;
}

static char *
shape_text (const PlanSafetensor *tensor)
{
  GString *text = g_string_new ("[");
  for (guint i = 0; i < tensor->n_dims; i++)
    g_string_append_printf (text, "%s%" G_GUINT64_FORMAT, i ? ", " : "", tensor->dims[i]);
  g_string_append_c (text, ']');
  return g_string_free (text, FALSE);
}

/* Adds a part to a parameter; the last one has what rows are left. */
static gboolean
add_part (const ExecWeights *self, Parameter *parameter, const char *name, const PlanTensor *wanted,
          GError **error)
{
  Part *part = &parameter->part[parameter->n++];
  part->file = find (self, name, &part->tensor);
  if (!part->file)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: no tensor %s, which the model's %s needs", self->folder, name,
                   wanted->name);
      return FALSE;
    }
  const PlanSafetensor *tensor = part->tensor;
  g_hash_table_add (self->read, tensor->name);
  const gboolean is_vector = wanted->cols == 1 && tensor->n_dims == 1;
  const gboolean turned = parameter->is_turned;
  part->rows = tensor->n_dims > 0 ? tensor->dims[turned && !is_vector] : 0;
  if (!exec_tensor_file_is_readable (tensor->dtype))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "%s: tensor %s is in a number format that is not read: F32, BF16 and F16 are",
                   part->file->path, name);
      return FALSE;
    }
  if (is_vector || (tensor->n_dims == 2 && tensor->dims[!turned] == wanted->cols))
    return TRUE;
  g_autofree char *shape = shape_text (tensor);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: tensor %s has the shape %s; the model's %s has %" G_GUINT64_FORMAT " columns",
               part->file->path, name, shape, wanted->name, wanted->cols);
  return FALSE;
}

static gboolean
add_parameter (ExecWeights *self, const PlanModel *model, guint at, gint64 layer, GError **error)
{
  const PlanTensor wanted = plan_model_tensor (model, names[at].role, model->vocab);
  Parameter *parameter = &self->parameters[names[at].role * self->layers + layer];
  g_auto (GStrv) parts
      = g_strsplit (self->is_gpt2 ? names[at].gpt2 : names[at].llama, " ", MAX_PARTS);
  g_autofree char *number = g_strdup_printf ("%" G_GINT64_FORMAT, layer);
  guint64 rows = 0;
  parameter->cols = wanted.cols;
  parameter->is_turned = self->is_gpt2 && names[at].turns;
  for (guint i = 0; parts[i]; i++)
    {
      g_auto (GStrv) pieces = g_strsplit (parts[i], "%d", 2);
      g_autofree char *name = g_strjoinv (number, pieces);
      if (!add_part (self, parameter, name, &wanted, error))
        return FALSE;
      rows += parameter->part[i].rows;
    }
  if (rows == wanted.rows)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: the model's %s has %" G_GUINT64_FORMAT
               " rows, and %s of this folder %" G_GUINT64_FORMAT,
               self->folder, wanted.name, wanted.rows, parts[0] ? parts[0] : "nothing", rows);
  return FALSE;
}

static gboolean
add_parameters (ExecWeights *self, const PlanModel *model, GError **error)
{
  for (guint at = 0; at < G_N_ELEMENTS (names); at++)
    {
      const gboolean is_in_layers = strstr (names[at].llama, "%d") != NULL;
      if (plan_model_tensor (model, names[at].role, model->vocab).rows == 0)
        continue;
      for (gint64 layer = 0; layer < (is_in_layers ? model->layers : 1); layer++)
        if (!add_parameter (self, model, at, layer, error))
          return FALSE;
    }
  return TRUE;
}

/* Tensors that say nothing a model here has not, by the end of their names: gpt2's triangular mask,
 * frequencies of rotary positions, and a tied output layer's copy of the embedding. */
static gboolean
is_known_to_be_spare (const PlanModel *model, const char *name)
{
  static const char *const buffers[]
      = { ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq" };
  for (guint i = 0; i < G_N_ELEMENTS (buffers); i++)
    if (g_str_has_suffix (name, buffers[i]))
      return TRUE;
  return model->tied_embeddings && g_str_equal (name, "lm_head.weight");
}

/* What nothing reads says that the model is another one than its weights were trained for. */
static gboolean
check_rest (const ExecWeights *self, const PlanModel *model, GError **error)
{
  for (guint f = 0; f < self->files->len; f++)
    {
      const ExecTensorFile *file = self->files->pdata[f];
      for (guint i = 0; i < file->header->tensors->len; i++)
        {
          const char *name = g_array_index (file->header->tensors, PlanSafetensor, i).name;
          if (g_hash_table_contains (self->read, name) || is_known_to_be_spare (model, name))
            continue;
          g_set_error (
              error, PLAN_ERROR, PLAN_ERROR_INVALID,
              "%s: the model has nothing for the tensor %s: it is another model than these "
              "weights are of",
              file->path, name);
          return FALSE;
        }
    }
  return TRUE;
}

ExecWeights *
exec_weights_open (const char *folder, const PlanModel *model, GError **error)
{
  g_autoptr (ExecWeights) self = g_new0 (ExecWeights, 1);
  const PlanSafetensor *tensor;
  self->folder = g_strdup (folder);
  self->files = g_ptr_array_new_with_free_func ((GDestroyNotify)exec_tensor_file_free);
  self->where = g_hash_table_new (g_str_hash, g_str_equal);
  self->read = g_hash_table_new (g_str_hash, g_str_equal);
  self->layers = model->layers;
  self->parameters = g_new0 (Parameter, PLAN_N_TENSORS * model->layers);
  if (!add_files (self, error))
    return NULL;
  self->is_gpt2 = find (self, "wte.weight", &tensor) != NULL;
  return add_parameters (self, model, error) && check_rest (self, model, error)
             ? g_steal_pointer (&self)
             : NULL;
}

/* As much of a run of elements as one part and one row hold; returns how many. */
static guint64
read_run (const Parameter *parameter, guint64 first, guint64 count, float *out)
{
  guint64 row = first / parameter->cols;
  const guint64 col = first % parameter->cols;
  for (guint i = 0; i < parameter->n; i++)
    {
      const Part *part = &parameter->part[i];
      if (row >= part->rows)
        {
          row -= part->rows;
          continue;
        }
      if (parameter->is_turned)
        {
          count = MIN (count, parameter->cols - col);
          exec_tensor_file_read (part->file, part->tensor, col * part->rows + row, part->rows,
                                 count, out);
          return count;
        }
      count = MIN (count, (part->rows - row) * parameter->cols - col);
      exec_tensor_file_read (part->file, part->tensor, row * parameter->cols + col, 1, count, out);
      return count;
    }
  memset (out, 0, count * sizeof *out); /* rows that pad a vocabulary */
  return count;
}

void
exec_weights_read (const ExecWeights *self, PlanTensorRole role, gint64 layer, guint64 first,
                   guint64 count, float *out)
{
  const Parameter *parameter = &self->parameters[role * self->layers + layer];
  for (guint64 done = 0; done < count;)
    done += read_run (parameter, first + done, count - done, out + done);
}
