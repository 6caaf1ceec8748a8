/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/weights.h"

#include "exec/walk/checkpoint-private.h"
#include "exec/walk/tensor-file.h"
#include "exec/walk/weight-names.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

/* A tensor of a file that holds some rows of a parameter. */
typedef struct
{
  const ExecTensorFile *file;
  const PlanSafetensor *tensor;
  guint64 rows;
  guint64 alternating; /* rows of a head, whose halves alternate in the file; 0: they do not */
} Part;

typedef struct
{
  GArray *parts; /* Part; NULL: the parameter does not exist */
  guint64 cols;
  gboolean is_transposed; /* transposed, [cols, rows], in the file */
  gboolean alternates;    /* in the file rows of the first half and of the second alternate */
  guint64 each;           /* rows of a matrix of several, one behind the other; else 0 */
  guint64 *heads;         /* place in the file of each of our heads; NULL: they lie as ours do */
} Parameter;

struct _ExecWeights
{
  ExecCheckpoint *checkpoint; /* where the weights come from instead of files, or NULL */
  const PlanModel *model;
  char *folder;
  GPtrArray *files;
  GHashTable *where; /* tensor's name -> ExecTensorFile: the file it is in */
  GHashTable *read;  /* names of the tensors that belong to parameters */
  ExecNaming naming;
  guint64 *heads;        /* as in Parameter */
  Parameter *parameters; /* indexed by role, then layer */
  gint64 n_parameters;
};

void
exec_weights_free (ExecWeights *self)
{
  if (!self)
    return;
  exec_checkpoint_free (self->checkpoint);
  g_clear_pointer (&self->where, g_hash_table_unref);
  g_clear_pointer (&self->read, g_hash_table_unref);
  g_clear_pointer (&self->files, g_ptr_array_unref);
  for (gint64 i = 0; i < self->n_parameters; i++)
    g_clear_pointer (&self->parameters[i].parts, g_array_unref);
  g_free (self->parameters);
  g_free (self->heads);
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

static gboolean
has_name (const char *name, gpointer data)
{
  const ExecWeights *self = data;
  return g_hash_table_contains (self->where, name);
}

/* Finds a tensor by name. Files may have names with or without the prefix of the inner model. */
static const ExecTensorFile *
find (const ExecWeights *self, const char *name, const PlanSafetensor **out_tensor)
{
  const char *prefix = exec_naming_prefix (self->naming);
  const char *inner = g_str_has_prefix (name, prefix) ? name + strlen (prefix) : name;
  const char *found = g_hash_table_contains (self->where, name) ? name : inner;
  const ExecTensorFile *file = g_hash_table_lookup (self->where, found);
  if (file)
    *out_tensor = plan_safetensors_find (file->header, found);
  return file;
}

static char *
shape_text (const guint64 *dims, guint n)
{
  GString *text = g_string_new ("[");
  for (guint i = 0; i < n; i++)
    g_string_append_printf (text, "%s%" G_GUINT64_FORMAT, i ? ", " : "", dims[i]);
  g_string_append_c (text, ']');
  return g_string_free (text, FALSE);
}

static gboolean
check_tensor (const ExecTensorFile *file, const PlanSafetensor *tensor,
              const ExecWeightName *wanted, GError **error)
{
  guint64 dims[3];
  const guint n = exec_weight_shape (wanted, dims);
  if (!exec_tensor_file_is_readable (tensor->dtype))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "%s: tensor %s is in a number format that is not read: F32, BF16 and F16 are",
                   file->path, tensor->name);
      return FALSE;
    }
  if (tensor->n_dims == n && memcmp (tensor->dims, dims, n * sizeof *dims) == 0)
    return TRUE;
  g_autofree char *shape = shape_text (tensor->dims, tensor->n_dims);
  g_autofree char *right = shape_text (dims, n);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: tensor %s has the shape %s; of this model it has %s", file->path, tensor->name,
               shape, right);
  return FALSE;
}

/* Adds the tensor `wanted` to the parameter it belongs to. */
static gboolean
add_part (ExecWeights *self, const ExecWeightName *wanted, GError **error)
{
  Parameter *parameter = &self->parameters[wanted->role * self->model->layers + wanted->layer];
  const PlanSafetensor *tensor;
  const ExecTensorFile *file = find (self, wanted->name, &tensor);
  if (!file)
    {
      const PlanTensor whole = plan_model_tensor (self->model, wanted->role, self->model->vocab);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: no tensor %s, which the model's %s needs", self->folder, wanted->name,
                   whole.name);
      return FALSE;
    }
  g_hash_table_add (self->read, tensor->name);
  const guint64 each = wanted->rows / wanted->stacked;
  const Part part = { file, tensor, wanted->rows, wanted->is_flat ? each : 0 };
  if (!parameter->parts)
    parameter->parts = g_array_new (FALSE, FALSE, sizeof part);
  g_array_append_val (parameter->parts, part);
  parameter->cols = wanted->cols;
  parameter->is_transposed = wanted->is_transposed;
  parameter->alternates = wanted->alternates && !wanted->is_flat;
  parameter->each = wanted->stacked > 1 && !wanted->is_flat ? each : 0;
  parameter->heads = wanted->is_interleaved ? self->heads : NULL;
  return check_tensor (file, tensor, wanted, error);
}

static gboolean
add_parameters (ExecWeights *self, GError **error)
{
  const guint64 heads = (guint64)(self->model->heads + 2 * self->model->kv_heads);
  self->naming = exec_naming_find (has_name, self);
  self->heads = g_new (guint64, heads);
  for (guint64 place = 0; place < heads; place++)
    self->heads[exec_weight_head (self->model, place)] = place;
  g_autoptr (GArray) names = exec_weight_names (self->model, self->naming, error);
  for (guint i = 0; names && i < names->len; i++)
    if (!add_part (self, &g_array_index (names, ExecWeightName, i), error))
      return FALSE;
  return names != NULL;
}

/* Whether a tensor that no parameter uses is known to be redundant: causal masks, rotary
 * frequencies, the copy of a tied embedding. */
static gboolean
is_known_to_be_spare (const PlanModel *model, const char *name)
{
  static const char *const buffers[] = { ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq",
                                         ".attention.bias", ".attention.masked_bias" };
  for (guint i = 0; i < G_N_ELEMENTS (buffers); i++)
    if (g_str_has_suffix (name, buffers[i]))
      return TRUE;
  return model->tied_embeddings && g_str_equal (name, "lm_head.weight");
}

/* Refuses files with tensors that no parameter uses: such weights were trained for another
 * model. */
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
              "%s: the model has nothing for the tensor %s: these weights are of another model",
              file->path, name);
          return FALSE;
        }
    }
  return TRUE;
}

static ExecWeights *
open_files (const char *folder, const PlanModel *model, GError **error)
{
  g_autoptr (ExecWeights) self = g_new0 (ExecWeights, 1);
  self->model = model;
  self->folder = g_strdup (folder);
  self->files = g_ptr_array_new_with_free_func ((GDestroyNotify)exec_tensor_file_free);
  self->where = g_hash_table_new (g_str_hash, g_str_equal);
  self->read = g_hash_table_new (g_str_hash, g_str_equal);
  self->n_parameters = PLAN_N_TENSORS * model->layers;
  self->parameters = g_new0 (Parameter, self->n_parameters);
  return add_files (self, error) && add_parameters (self, error) && check_rest (self, model, error)
             ? g_steal_pointer (&self)
             : NULL;
}

/* Checks that a checkpoint's model has the same layers, heads and tensor shapes. Anything else,
 * such as activations, may differ. */
static gboolean
check_checkpoint (const ExecCheckpoint *checkpoint, const PlanModel *model, GError **error)
{
  g_autofree char *wanted = plan_model_print (model);
  g_autoptr (PlanModel) stored = exec_checkpoint_model (checkpoint, error);
  if (!stored)
    return FALSE;
  gboolean is_alike = stored->layers == model->layers && stored->heads == model->heads
                      && stored->kv_heads == model->kv_heads;
  for (PlanTensorRole role = 0; role < PLAN_N_TENSORS; role++)
    {
      const PlanTensor a = plan_model_tensor (stored, role, stored->vocab);
      const PlanTensor b = plan_model_tensor (model, role, model->vocab);
      is_alike = is_alike && a.count == b.count && a.rows == b.rows && a.cols == b.cols;
    }
  if (is_alike)
    return TRUE;
  g_autofree char *found = plan_model_print (stored);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "the checkpoint has the weights of another model, %s, than this one, %s", found,
               wanted);
  return FALSE;
}

ExecWeights *
exec_weights_of_checkpoint (ExecCheckpoint *checkpoint, const PlanModel *model, GError **error)
{
  g_autoptr (ExecWeights) self = g_new0 (ExecWeights, 1);
  self->model = model;
  self->checkpoint = checkpoint;
  return check_checkpoint (checkpoint, model, error) ? g_steal_pointer (&self) : NULL;
}

ExecWeights *
exec_weights_open (const char *folder, const PlanModel *model, GError **error)
{
  g_autofree char *manifest = g_build_filename (folder, EXEC_CHECKPOINT_MANIFEST, NULL);
  if (!g_file_test (manifest, G_FILE_TEST_EXISTS))
    return open_files (folder, model, error);
  ExecCheckpoint *checkpoint = exec_checkpoint_open (folder, NULL, error);
  ExecWeights *self = checkpoint ? exec_weights_of_checkpoint (checkpoint, model, error) : NULL;
  if (checkpoint && !self)
    g_prefix_error (error, "%s: ", folder);
  return self;
}

/* Reads elements from `first` on, at most to the end of the head, which has another place in the
 * file; returns how many. */
static guint64
read_head (const Parameter *parameter, guint64 dim, guint64 first, guint64 count, float *out)
{
  const guint64 size = dim * parameter->cols, at = first % size;
  const Part *part = &g_array_index (parameter->parts, Part, 0);
  count = MIN (count, size - at);
  exec_tensor_file_read (part->file, part->tensor, parameter->heads[first / size] * size + at, 1,
                         count, out);
  return count;
}

/* The place in the file of row `row` of `each` whose halves alternate there. */
static guint64
place_of (guint64 row, guint64 each)
{
  return row < each / 2 ? 2 * row : 2 * (row - each / 2) + 1;
}

/* Reads elements from `first` on, at most to the end of the row, of one of several matrices;
 * returns how many. */
static guint64
read_stacked (const Parameter *parameter, guint64 first, guint64 count, float *out)
{
  const Part *part = &g_array_index (parameter->parts, Part, 0);
  const guint64 cols = parameter->cols, each = parameter->each;
  const guint64 row = first / cols % each, col = first % cols;
  const guint64 place = parameter->alternates ? place_of (row, each) : row;
  const guint64 matrix = first / cols / each * each * cols;
  count = MIN (count, cols - col);
  if (parameter->is_transposed)
    exec_tensor_file_read (part->file, part->tensor, matrix + col * each + place, each, count, out);
  else
    exec_tensor_file_read (part->file, part->tensor, matrix + place * cols + col, 1, count, out);
  return count;
}

/* Reads elements from `first` on, at most to the end of the part, and of the row where the file has
 * it transposed; returns how many. */
static guint64
read_run (const ExecWeights *self, const Parameter *parameter, guint64 first, guint64 count,
          float *out)
{
  guint64 row = first / parameter->cols;
  const guint64 col = first % parameter->cols;
  if (parameter->heads)
    return read_head (parameter, (guint64)self->model->head_dim, first, count, out);
  if (parameter->each > 0)
    return read_stacked (parameter, first, count, out);
  for (guint i = 0; parameter->parts && i < parameter->parts->len; i++)
    {
      const Part *part = &g_array_index (parameter->parts, Part, i);
      if (row >= part->rows)
        {
          row -= part->rows;
          continue;
        }
      if (parameter->is_transposed)
        {
          count = MIN (count, parameter->cols - col);
          exec_tensor_file_read (part->file, part->tensor, col * part->rows + row, part->rows,
                                 count, out);
          return count;
        }
      const guint64 head = part->alternating > 0 ? row - row % part->alternating : 0;
      const guint64 run = part->alternating > 0 ? 1 : part->rows - row;
      if (part->alternating > 0)
        row = head + place_of (row - head, part->alternating);
      count = MIN (count, run * parameter->cols - col);
      exec_tensor_file_read (part->file, part->tensor, row * parameter->cols + col, 1, count, out);
      return count;
    }
  memset (out, 0, count * sizeof *out); /* these rows pad the vocabulary */
  return count;
}

/* Reads from a checkpoint. Rows that pad the vocabulary are zero, whatever values the run had
 * there. */
static gboolean
read_checkpoint (const ExecWeights *self, PlanTensorRole role, gint64 layer, guint64 first,
                 guint64 count, float *out, GError **error)
{
  const PlanTensor tensor = plan_model_tensor (self->model, role, self->model->vocab);
  const guint64 all = plan_model_numel (&tensor), n = first < all ? MIN (count, all - first) : 0;
  memset (out + n, 0, (count - n) * sizeof *out);
  return n == 0
         || exec_checkpoint_read (self->checkpoint, EXEC_STATE_MAIN, role, layer, first, n, out,
                                  error);
}

gboolean
exec_weights_read (const ExecWeights *self, PlanTensorRole role, gint64 layer, guint64 first,
                   guint64 count, float *out, GError **error)
{
  if (self->checkpoint)
    return read_checkpoint (self, role, layer, first, count, out, error);
  const Parameter *parameter = &self->parameters[role * self->model->layers + layer];
  for (guint64 done = 0; done < count;)
    done += read_run (self, parameter, first + done, count - done, out + done);
  return TRUE;
}
