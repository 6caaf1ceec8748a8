/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/checkpoint-private.h"
#include "exec/walk/tensor-file.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <glib/gstdio.h>
#include <string.h>

/* A piece (ExecPiece) as it was found in a file of the checkpoint. */
typedef struct
{
  const ExecTensorFile *file;
  const PlanSafetensor *tensor;
  /* See ExecPiece; in a contiguous piece `run` and `stride` are `count`. */
  guint64 first, count, run, stride;
} Found;

struct _ExecCheckpoint
{
  char *folder;
  GPtrArray *files;
  GHashTable *pieces; /* STATE/PARAMETER/LAYER -> GArray of Found: the pieces of that state */
  gint64 step, tokens;
  char *model;
  GHashTable *settings;
  char **names; /* of the checkpoints kept in the same folder, this one last */
};

void
exec_checkpoint_free (ExecCheckpoint *self)
{
  if (!self)
    return;
  g_hash_table_unref (self->pieces);
  g_ptr_array_unref (self->files);
  g_hash_table_unref (self->settings);
  g_strfreev (self->names);
  g_free (self->model);
  g_free (self->folder);
  g_free (self);
}

gint64
exec_checkpoint_step (const ExecCheckpoint *self)
{
  return self->step;
}

gint64
exec_checkpoint_tokens (const ExecCheckpoint *self)
{
  return self->tokens;
}

PlanModel *
exec_checkpoint_model (const ExecCheckpoint *self, GError **error)
{
  PlanModel *model = plan_model_new (self->model, error);
  if (!model)
    g_prefix_error (error, "%s/" EXEC_CHECKPOINT_MANIFEST ": ", self->folder);
  return model;
}

const char *
exec_checkpoint_setting (const ExecCheckpoint *self, const char *name)
{
  return g_hash_table_lookup (self->settings, name);
}

GPtrArray *
exec_checkpoint_names (const ExecCheckpoint *self, const char *folder)
{
  GPtrArray *names = g_ptr_array_new_with_free_func (g_free);
  GStatBuf here, there;
  const gboolean is_same = self && g_stat (self->folder, &here) == 0 && g_stat (folder, &there) == 0
                           && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
  for (guint i = 0; is_same && self->names && self->names[i]; i++)
    if (exec_checkpoint_is_name (self->names[i]))
      g_ptr_array_add (names, g_strdup (self->names[i]));
  return names;
}

G_GNUC_PRINTF (4, 5)
static gboolean
corrupt (GError **error, const ExecCheckpoint *self, const char *file, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *why = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT, "%s/%s: %s", self->folder, file, why);
  return FALSE;
}

/* Parses where a piece begins in its parameter: FIRST for a contiguous piece, whose tensor is a
 * vector, or FIRST:STRIDE for runs that lie apart, whose tensor is a matrix with one run in each
 * row. */
static gboolean
read_place (const char *text, const PlanSafetensor *tensor, Found *out)
{
  g_auto (GStrv) word = g_strsplit (text, ":", 2);
  const gboolean is_apart = word[0] && word[1];
  gint64 first, stride = 0;
  if (!word[0] || !plan_units_parse_int (word[0], "first", 0, G_MAXINT64, &first, NULL)
      || (is_apart && !plan_units_parse_int (word[1], "stride", 1, G_MAXINT64, &stride, NULL))
      || tensor->n_dims != (is_apart ? 2 : 1))
    return FALSE;
  out->first = (guint64)first;
  out->run = tensor->dims[is_apart ? 1 : 0];
  out->count = out->run * (is_apart ? tensor->dims[0] : 1);
  out->stride = is_apart ? (guint64)stride : out->run;
  return out->run > 0 && out->run <= out->stride;
}

/* Each tensor of a file is a piece: the last part of its name says where in the parameter it
 * begins. */
static gboolean
add_pieces (ExecCheckpoint *self, const ExecTensorFile *file, GError **error)
{
  for (guint i = 0; i < file->header->tensors->len; i++)
    {
      const PlanSafetensor *tensor = &g_array_index (file->header->tensors, PlanSafetensor, i);
      const char *slash = strrchr (tensor->name, '/');
      Found piece = { .file = file, .tensor = tensor };
      if (!slash || !read_place (slash + 1, tensor, &piece)
          || !exec_tensor_file_is_readable (tensor->dtype))
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT, "%s: %s is no piece of a checkpoint",
                       file->path, tensor->name);
          return FALSE;
        }
      char *key = g_strndup (tensor->name, (gsize)(slash - tensor->name));
      GArray *found = g_hash_table_lookup (self->pieces, key);
      if (found)
        g_free (key);
      else
        g_hash_table_insert (self->pieces, key, found = g_array_new (FALSE, FALSE, sizeof (Found)));
      g_array_append_val (found, piece);
    }
  return TRUE;
}

/* Adds a file after checking it against `recorded`, the manifest's entry: the file's size and the
 * SHA-256 of its bytes. */
static gboolean
add_file (ExecCheckpoint *self, const char *inner, const char *name, const char *recorded,
          GError **error)
{
  g_autofree char *path = g_build_filename (self->folder, inner, name, NULL);
  g_autoptr (GError) why = NULL;
  g_autoptr (GMappedFile) file = g_mapped_file_new (path, FALSE, &why);
  if (!file)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s", why->message);
      return FALSE;
    }
  g_autofree char *digest = g_compute_checksum_for_data (
      G_CHECKSUM_SHA256, (const guchar *)g_mapped_file_get_contents (file),
      g_mapped_file_get_length (file));
  g_autofree char *found
      = g_strdup_printf ("%" G_GSIZE_FORMAT " %s", g_mapped_file_get_length (file), digest);
  if (!g_str_equal (found, recorded))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
                   "%s: is not what the manifest says was written: it has changed or is damaged",
                   path);
      return FALSE;
    }
  ExecTensorFile *tensors = exec_tensor_file_open (path, error);
  if (!tensors)
    return FALSE;
  g_ptr_array_add (self->files, tensors);
  return add_pieces (self, tensors, error);
}

static gboolean
add_files (ExecCheckpoint *self, GKeyFile *manifest, const char *inner, GError **error)
{
  g_auto (GStrv) names = g_key_file_get_keys (manifest, EXEC_CHECKPOINT_FILES, NULL, NULL);
  if (!names || !*names)
    return corrupt (error, self, EXEC_CHECKPOINT_MANIFEST, "names no files");
  for (char **name = names; *name; name++)
    {
      g_autofree char *recorded
          = g_key_file_get_string (manifest, EXEC_CHECKPOINT_FILES, *name, NULL);
      if (strchr (*name, G_DIR_SEPARATOR) || !recorded)
        return corrupt (error, self, EXEC_CHECKPOINT_MANIFEST, "%s is no file's name", *name);
      if (!add_file (self, inner, *name, recorded, error))
        return FALSE;
    }
  return TRUE;
}

/* Reads the manifest but for its files. *out_inner: the folder, in the one that is opened, in which
 * these are. */
static gboolean
read_head (ExecCheckpoint *self, GKeyFile *manifest, const PlanModel *model, char **out_inner,
           GError **error)
{
  const char *const group = EXEC_CHECKPOINT_GROUP, *const file = EXEC_CHECKPOINT_MANIFEST;
  g_autofree char *inner = g_key_file_get_string (manifest, group, "folder", NULL);
  g_autofree char *wanted = model ? plan_model_print (model) : NULL;
  const gint version = g_key_file_get_integer (manifest, group, "version", NULL);
  if (version == 0)
    return corrupt (error, self, file, "has no version: it is empty, cut off or another file");
  if (version != EXEC_CHECKPOINT_VERSION)
    return corrupt (error, self, file, "version %d is not one that this program reads", version);
  self->step = g_key_file_get_int64 (manifest, group, "step", NULL);
  self->tokens = g_key_file_get_int64 (manifest, group, "tokens", NULL);
  self->model = g_key_file_get_string (manifest, group, "model", NULL);
  self->names = g_key_file_get_string_list (manifest, group, "kept", NULL, NULL);
  if (self->step < 1 || self->tokens < 1 || !self->model || !inner
      || (!g_str_equal (inner, ".") && !exec_checkpoint_is_name (inner)))
    return corrupt (error, self, file, "step, tokens, model or folder is missing or wrong");
  if (wanted && !g_str_equal (self->model, wanted))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: the checkpoint is of another model, %s, than this run's, %s", self->folder,
                   self->model, wanted);
      return FALSE;
    }
  g_auto (GStrv) names = g_key_file_get_keys (manifest, EXEC_CHECKPOINT_RUN, NULL, NULL);
  for (guint i = 0; names && names[i]; i++)
    g_hash_table_insert (self->settings, g_strdup (names[i]),
                         g_key_file_get_string (manifest, EXEC_CHECKPOINT_RUN, names[i], NULL));
  *out_inner = g_steal_pointer (&inner);
  return TRUE;
}

static void
free_found (gpointer data)
{
  g_array_unref (data);
}

ExecCheckpoint *
exec_checkpoint_open (const char *folder, const PlanModel *model, GError **error)
{
  g_autoptr (ExecCheckpoint) self = g_new0 (ExecCheckpoint, 1);
  g_autoptr (GKeyFile) manifest = g_key_file_new ();
  g_autofree char *path = g_build_filename (folder, EXEC_CHECKPOINT_MANIFEST, NULL);
  g_autofree char *text = NULL, *inner = NULL;
  g_autoptr (GError) why = NULL;
  gsize length;
  self->folder = g_strdup (folder);
  self->files = g_ptr_array_new_with_free_func ((GDestroyNotify)exec_tensor_file_free);
  self->pieces = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, free_found);
  self->settings = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  if (!plan_text_read_file (path, &text, &length, error))
    {
      g_prefix_error (error, "no checkpoint: ");
      return NULL;
    }
  if (!g_key_file_load_from_data (manifest, text, length, G_KEY_FILE_NONE, &why))
    {
      corrupt (error, self, EXEC_CHECKPOINT_MANIFEST, "%s", why->message);
      return NULL;
    }
  if (!read_head (self, manifest, model, &inner, error)
      || !add_files (self, manifest, inner, error))
    return NULL;
  return g_steal_pointer (&self);
}

/* Finds the piece that holds an element of the parameter, the element's index in the piece, and how
 * many elements are contiguous from there on. NULL when no piece holds it. */
static const Found *
find_piece (const GArray *found, guint64 element, guint64 *out_inside, guint64 *out_count)
{
  for (guint i = 0; found && i < found->len; i++)
    {
      const Found *piece = &g_array_index (found, Found, i);
      const guint64 behind = element - piece->first, row = behind / piece->stride,
                    col = behind % piece->stride;
      if (element < piece->first || col >= piece->run || row >= piece->count / piece->run)
        continue;
      *out_inside = row * piece->run + col;
      *out_count = piece->run - col;
      return piece;
    }
  return NULL;
}

gboolean
exec_checkpoint_read (const ExecCheckpoint *self, ExecState state, PlanTensorRole role,
                      gint64 layer, guint64 first, guint64 count, float *out, GError **error)
{
  g_autofree char *key = exec_checkpoint_name (state, role, layer);
  const GArray *found = g_hash_table_lookup (self->pieces, key);
  const guint64 end = first + count;
  const Found *piece;
  guint64 inside, n;
  while (first < end && (piece = find_piece (found, first, &inside, &n)))
    {
      n = MIN (end - first, n);
      exec_tensor_file_read (piece->file, piece->tensor, inside, 1, n, out);
      first += n;
      out += n;
    }
  if (first == end)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
               "%s: the checkpoint lacks element %" G_GUINT64_FORMAT " of %s%s", self->folder,
               first, key,
               found                            ? ""
               : state == EXEC_STATE_EXP_AVG_SQ ? ": another optimizer wrote it"
               : state >= EXEC_STATE_SCALES     ? ": it was written with another compute"
                                                : "");
  return FALSE;
}
