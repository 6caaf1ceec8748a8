/* SPDX-License-Identifier: Apache-2.0 */
/* Writes weights in the layout of transformers' save_pretrained: its file names, the index of
 * several files, and the metadata without which transformers refuses to read a file. */
#include "config.h"

#include "exec/walk/export.h"

#include "exec/number/number.h"
#include "exec/walk/weight-names.h"
#include "exec/walk/writer.h"
#include "planner/base/error.h"
#include "planner/model/safetensors.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

/* Elements of a tensor that are read at once, where the file has them in the same order. */
#define BLOCK (G_GUINT64_CONSTANT (1) << 20)

/* The smallest number that rounds to infinity in fp16. */
#define FP16_END 65520.0f

typedef struct
{
  const ExecWeights *weights;
  const PlanModel *model;
  const GArray *names; /* ExecWeightName */
  PlanDtype dtype;
  guint64 shard_bytes;
  char *folder;
  GPtrArray *written; /* paths of the files written, removed again if a later one fails */
  guint *files;       /* number of the file that each tensor goes into, from 0 */
  guint n_files;
  guint64 bytes;
} Export;

static const ExecWeightName *
name_at (const Export *self, guint at)
{
  return &g_array_index (self->names, ExecWeightName, at);
}

/* The number format of a tensor in the files. Biases of routers stay in fp32: rounded, they would
 * choose other experts. */
static PlanDtype
dtype_of (const Export *self, const ExecWeightName *name)
{
  return name->role == PLAN_TENSOR_ROUTER_BIAS ? PLAN_DTYPE_FP32 : self->dtype;
}

static guint64
bytes_of (const Export *self, guint at)
{
  const ExecWeightName *name = name_at (self, at);
  return plan_dtype_bytes (dtype_of (self, name), name->rows * name->cols);
}

/* Assigns tensors to files in their order, as many to a file as fit into shard_bytes. */
static void
divide (Export *self)
{
  guint64 used = 0;
  self->n_files = 1;
  for (guint i = 0; i < self->names->len; i++)
    {
      const guint64 bytes = bytes_of (self, i);
      if (used > 0 && used + bytes > self->shard_bytes)
        {
          self->n_files++;
          used = 0;
        }
      self->files[i] = self->n_files - 1;
      used += bytes;
      self->bytes += bytes;
    }
}

static char *
file_name (const Export *self, guint file)
{
  return self->n_files == 1
             ? g_strdup ("model.safetensors")
             : g_strdup_printf ("model-%05u-of-%05u.safetensors", file + 1, self->n_files);
}

/* --- one file ------------------------------------------------------------------------------ */

static gboolean
begin_file (Export *self, const char *name, ExecWriter *writer, GError **error)
{
  char *path = g_build_filename (self->folder, name, NULL);
  g_ptr_array_add (self->written, path);
  return exec_writer_open (writer, path, FALSE, error);
}

static gboolean
write_text (Export *self, const char *name, const char *text, GError **error)
{
  g_auto (ExecWriter) writer = { .fd = -1 };
  return begin_file (self, name, &writer, error)
         && exec_writer_put (&writer, text, strlen (text), error)
         && exec_writer_close (&writer, error);
}

/* The safetensors header of a file, padded to a multiple of 8 bytes so that the data behind it is
 * aligned. */
static GString *
header_of (const Export *self, guint begin, guint end)
{
  GString *text = g_string_new ("{\"__metadata__\":{\"format\":\"pt\"}");
  guint64 at = 0;
  for (guint i = begin; i < end; i++)
    {
      const ExecWeightName *name = name_at (self, i);
      guint64 dims[3];
      const guint n = exec_weight_shape (name, dims);
      g_string_append_printf (text, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", name->name,
                              plan_safetensors_dtype_name (dtype_of (self, name)));
      for (guint d = 0; d < n; d++)
        g_string_append_printf (text, "%s%" G_GUINT64_FORMAT, d ? "," : "", dims[d]);
      g_string_append_printf (text,
                              "],\"data_offsets\":[%" G_GUINT64_FORMAT ",%" G_GUINT64_FORMAT "]}",
                              at, at + bytes_of (self, i));
      at += bytes_of (self, i);
    }
  g_string_append_c (text, '}');
  while (text->len % 8 != 0)
    g_string_append_c (text, ' ');
  return text;
}

static gboolean
put_values (const Export *self, ExecWriter *writer, const ExecWeightName *name, const float *values,
            guint64 n, guint8 *narrow, GError **error)
{
  const PlanDtype dtype = dtype_of (self, name);
  for (guint64 i = 0; dtype == PLAN_DTYPE_FP16 && i < n; i++)
    if (isfinite (values[i]) && fabsf (values[i]) >= FP16_END)
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "%s has the number %g, and the largest of fp16 is 65504: take bf16 or fp32",
                     name->name, (double)values[i]);
        return FALSE;
      }
  exec_number_narrow (narrow, dtype, values, n);
  return exec_writer_put (writer, narrow, plan_dtype_bytes (dtype, n), error);
}

/* Writes the heads of a tensor of queries, keys and values in the order in which the file has
 * them. */
static gboolean
put_interleaved (const Export *self, ExecWriter *writer, const ExecWeightName *name, GError **error)
{
  const guint64 size = (guint64)self->model->head_dim * name->cols;
  g_autofree float *values = g_new (float, size);
  g_autofree guint8 *narrow = g_malloc (plan_dtype_bytes (self->dtype, size));
  for (guint64 place = 0; place < name->rows / (guint64)self->model->head_dim; place++)
    if (!exec_weights_read (self->weights, name->role, name->layer,
                            exec_weight_head (self->model, place) * size, size, values, error)
        || !put_values (self, writer, name, values, size, narrow, error))
      return FALSE;
  return TRUE;
}

/* Writes a matrix in the order of its rows in the file, or transposed: one column after the other.
 */
static gboolean
put_matrix (const Export *self, ExecWriter *writer, const ExecWeightName *name, const float *values,
            GError **error)
{
  const guint64 rows = name->rows / name->stacked, cols = name->cols;
  const guint64 outer = name->is_transposed ? cols : rows,
                inner = name->is_transposed ? rows : cols;
  g_autofree float *line = g_new (float, inner);
  g_autofree guint8 *narrow = g_malloc (plan_dtype_bytes (self->dtype, inner));
  for (guint64 o = 0; o < outer; o++)
    {
      for (guint64 i = 0; i < inner; i++)
        line[i] = values[exec_weight_row (name, name->is_transposed ? i : o) * cols
                         + (name->is_transposed ? o : i)];
      if (!put_values (self, writer, name, line, inner, narrow, error))
        return FALSE;
    }
  return TRUE;
}

/* Writes matrices whose elements the file has in another order, one after the other. */
static gboolean
put_matrices (const Export *self, ExecWriter *writer, const ExecWeightName *name, GError **error)
{
  const guint64 size = name->rows / name->stacked * name->cols;
  g_autofree float *values = g_new (float, size);
  for (guint64 i = 0; i < name->stacked; i++)
    if (!exec_weights_read (self->weights, name->role, name->layer,
                            name->first_row * name->cols + i * size, size, values, error)
        || !put_matrix (self, writer, name, values, error))
      return FALSE;
  return TRUE;
}

static gboolean
put_tensor (const Export *self, ExecWriter *writer, const ExecWeightName *name, GError **error)
{
  const guint64 all = name->rows * name->cols, block = MIN (all, BLOCK);
  if (name->is_transposed || name->alternates)
    return put_matrices (self, writer, name, error);
  if (name->is_interleaved)
    return put_interleaved (self, writer, name, error);
  g_autofree float *values = g_new (float, block);
  g_autofree guint8 *narrow = g_malloc (block * sizeof (float));
  for (guint64 at = 0, n; at < all; at += n)
    {
      n = MIN (block, all - at);
      if (!exec_weights_read (self->weights, name->role, name->layer,
                              name->first_row * name->cols + at, n, values, error)
          || !put_values (self, writer, name, values, n, narrow, error))
        return FALSE;
    }
  return TRUE;
}

/* Writes the file that tensor `begin` is in; `out_end` is the first tensor of the next file. */
static gboolean
write_file (Export *self, guint begin, guint *out_end, GError **error)
{
  g_auto (ExecWriter) writer = { .fd = -1 };
  g_autofree char *name = file_name (self, self->files[begin]);
  guint end = begin;
  while (end < self->names->len && self->files[end] == self->files[begin])
    end++;
  g_autoptr (GString) header = header_of (self, begin, end);
  const guint64 length = GUINT64_TO_LE ((guint64)header->len);
  gboolean ok = begin_file (self, name, &writer, error)
                && exec_writer_put (&writer, &length, sizeof length, error)
                && exec_writer_put (&writer, header->str, header->len, error);
  for (guint i = begin; ok && i < end; i++)
    ok = put_tensor (self, &writer, name_at (self, i), error);
  *out_end = end;
  return ok && exec_writer_close (&writer, error);
}

/* --- all files ----------------------------------------------------------------------------- */

/* Writes the index that says which file each tensor is in. */
static gboolean
write_index (Export *self, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL);
  g_string_printf (
      text, "{\n  \"metadata\": { \"total_size\": %" G_GUINT64_FORMAT " },\n  \"weight_map\": {",
      self->bytes);
  for (guint i = 0; i < self->names->len; i++)
    {
      g_autofree char *file = file_name (self, self->files[i]);
      g_string_append_printf (text, "%s\n    \"%s\": \"%s\"", i ? "," : "", name_at (self, i)->name,
                              file);
    }
  g_string_append (text, "\n  }\n}\n");
  return write_text (self, "model.safetensors.index.json", text->str, error);
}

static gboolean
write_files (Export *self, const char *config, GError **error)
{
  for (guint at = 0; at < self->names->len;)
    if (!write_file (self, at, &at, error))
      return FALSE;
  return (self->n_files == 1 || write_index (self, error))
         && write_text (self, "config.json", config, error)
         && exec_writer_sync_folder (self->folder, error);
}

gboolean
exec_export_check (const char *folder, GError **error)
{
  g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
  if (dir ? !g_dir_read_name (dir) : !g_file_test (folder, G_FILE_TEST_EXISTS))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: is there already, and is not an empty folder: give another one", folder);
  return FALSE;
}

/* Writes all files to a temporary folder beside the target and renames it once it is complete. */
static gboolean
write_folder (Export *self, const char *config, const char *folder, GError **error)
{
  g_autofree char *parent = g_path_get_dirname (folder);
  self->folder = g_strconcat (folder, ".part-XXXXXX", NULL);
  if (!g_mkdtemp_full (self->folder, 0777))
    return exec_writer_fail (folder, error);
  gboolean ok = write_files (self, config, error);
  if (ok && g_rename (self->folder, folder) != 0)
    ok = exec_writer_fail (folder, error);
  for (guint i = 0; !ok && i < self->written->len; i++)
    g_unlink (self->written->pdata[i]);
  if (!ok)
    g_rmdir (self->folder);
  return ok && exec_writer_sync_folder (parent, error);
}

gboolean
exec_export_hf (const ExecWeights *weights, const PlanModel *model, PlanDtype dtype,
                guint64 shard_bytes, const char *folder, ExecExported *out_exported, GError **error)
{
  PlanArchitecture architecture;
  g_autofree char *config = plan_model_print_config (model, dtype, &architecture, error);
  g_autoptr (GArray) names
      = config ? exec_weight_names (model, exec_naming_of (architecture, model), error) : NULL;
  if (!names || !exec_export_check (folder, error))
    return FALSE;
  Export self = { .weights = weights,
                  .model = model,
                  .names = names,
                  .dtype = dtype,
                  .shard_bytes = shard_bytes,
                  .written = g_ptr_array_new_with_free_func (g_free),
                  .files = g_new0 (guint, names->len) };
  divide (&self);
  const gboolean ok = write_folder (&self, config, folder, error);
  *out_exported = (ExecExported){ architecture, names->len, self.n_files, self.bytes };
  g_ptr_array_unref (self.written);
  g_free (self.files);
  g_free (self.folder);
  return ok;
}
