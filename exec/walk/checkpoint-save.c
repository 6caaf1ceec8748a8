/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/checkpoint-private.h"
#include "exec/walk/writer.h"

#include "planner/base/error.h"
#include "planner/model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PREFIX "step-"
#define DIGEST_BYTES 32

/* What each rank tells rank 0 about its file, sent as these bytes. */
typedef struct
{
  guint64 size;
  guint8 digest[DIGEST_BYTES];
} Written;

char *
exec_checkpoint_name (ExecState state, PlanTensorRole role, gint64 layer)
{
  static const char *const states[] = { "main", "exp_avg", "exp_avg_sq", "scales", "history" };
  static const char *const parameters[] = {
#define X(id, number, name, ...) [PLAN_TENSOR_##id] = name,
    PLAN_TENSOR_LIST (X)
#undef X
  };
  return g_strdup_printf ("%s/%s/%" G_GINT64_FORMAT, states[state], parameters[role], layer);
}

static char *
rank_name (guint rank)
{
  return g_strdup_printf ("rank-%u.safetensors", rank);
}

/* --- files -------------------------------------------------------------------------------- */

/* Bytes of a piece that are fetched from the device at once. */
#define BLOCK_BYTES (G_GUINT64_CONSTANT (4) << 20)

/* The safetensors header of a rank's file, padded to a multiple of 8 bytes so that the data behind
 * it is aligned. */
static GString *
header_of (const ExecPiece *pieces, guint n)
{
  GString *text = g_string_new ("{");
  guint64 at = 0;
  for (guint i = 0; i < n; i++)
    {
      const ExecPiece *p = &pieces[i];
      const guint64 end = at + plan_dtype_bytes (p->dtype, p->count);
      g_autofree char *name = exec_checkpoint_name (p->state, p->role, p->layer);
      g_string_append_printf (text, "%s\"%s/%" G_GUINT64_FORMAT, i ? "," : "", name, p->first);
      if (p->run > 0)
        g_string_append_printf (text, ":%" G_GUINT64_FORMAT, p->stride);
      g_string_append_printf (text, "\":{\"dtype\":\"%s\",\"shape\":[",
                              plan_safetensors_dtype_name (p->dtype));
      if (p->run > 0)
        g_string_append_printf (text, "%" G_GUINT64_FORMAT ",", p->count / p->run);
      g_string_append_printf (text,
                              "%" G_GUINT64_FORMAT "],\"data_offsets\":[%" G_GUINT64_FORMAT
                              ",%" G_GUINT64_FORMAT "]}",
                              p->run > 0 ? p->run : p->count, at, end);
      at = end;
    }
  g_string_append_c (text, '}');
  while (text->len % 8 != 0)
    g_string_append_c (text, ' ');
  return text;
}

/* Writes the data of a piece. Without `fetch` the host can read the data where it lies. */
static gboolean
put_data (ExecWriter *writer, const ExecPiece *piece, ExecFetch fetch, gpointer user_data,
          GError **error)
{
  const guint64 bytes = plan_dtype_bytes (piece->dtype, piece->count);
  if (!fetch || piece->is_on_host)
    return exec_writer_put (writer, piece->data, bytes, error);
  g_autofree guint8 *block = g_malloc (MIN (bytes, BLOCK_BYTES));
  for (guint64 at = 0, n; at < bytes; at += n)
    {
      n = MIN (BLOCK_BYTES, bytes - at);
      if (!fetch (user_data, block, (const guint8 *)piece->data + at, n, error)
          || !exec_writer_put (writer, block, n, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
write_rank (const char *path, const ExecPiece *pieces, guint n, ExecFetch fetch, gpointer user_data,
            Written *out_written, GError **error)
{
  g_auto (ExecWriter) writer = { .fd = -1 };
  g_autoptr (GString) header = header_of (pieces, n);
  const guint64 length = GUINT64_TO_LE ((guint64)header->len);
  gsize digest_bytes = DIGEST_BYTES;
  gboolean ok = exec_writer_open (&writer, path, TRUE, error)
                && exec_writer_put (&writer, &length, sizeof length, error)
                && exec_writer_put (&writer, header->str, header->len, error);
  for (guint i = 0; ok && i < n; i++)
    ok = put_data (&writer, &pieces[i], fetch, user_data, error);
  if (!ok || !exec_writer_close (&writer, error))
    {
      g_unlink (path); /* half a file is of no use, and would keep a full disk full */
      return FALSE;
    }
  out_written->size = GUINT64_TO_LE (writer.size);
  g_checksum_get_digest (writer.checksum, out_written->digest, &digest_bytes);
  return TRUE;
}

/* --- the folder --------------------------------------------------------------------------- */

gboolean
exec_checkpoint_is_name (const char *name)
{
  const char *at = name;
  if (!g_str_has_prefix (at, PREFIX) || !g_ascii_isdigit (at[strlen (PREFIX)]))
    return FALSE;
  for (at += strlen (PREFIX); g_ascii_isdigit (*at); at++)
    ;
  if (*at++ != '.' || !g_ascii_isdigit (*at))
    return FALSE;
  while (g_ascii_isdigit (*at))
    at++;
  return *at == '\0';
}

/* Reads the manifest of an open folder. It does not follow symbolic links. NULL where there is no
 * manifest, or none of a checkpoint. The caller frees. */
static GKeyFile *
read_manifest (int folder)
{
  g_autoptr (GKeyFile) file = g_key_file_new ();
  g_autoptr (GMappedFile) mapped = NULL;
  const int fd = openat (folder, EXEC_CHECKPOINT_MANIFEST, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0)
    {
      mapped = g_mapped_file_new_from_fd (fd, FALSE, NULL);
      close (fd);
    }
  const gboolean ok
      = mapped
        && g_key_file_load_from_data (file, g_mapped_file_get_contents (mapped),
                                      g_mapped_file_get_length (mapped), G_KEY_FILE_NONE, NULL)
        && g_key_file_has_group (file, EXEC_CHECKPOINT_GROUP);
  return ok ? g_steal_pointer (&file) : NULL;
}

/* Removes a checkpoint: the files that its manifest lists, the manifest, and the folder if it is
 * empty then. */
static void
remove_checkpoint (int folder, const char *name)
{
  const int inner = openat (folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  g_autoptr (GKeyFile) manifest = inner >= 0 ? read_manifest (inner) : NULL;
  g_auto (GStrv) files
      = manifest ? g_key_file_get_keys (manifest, EXEC_CHECKPOINT_FILES, NULL, NULL) : NULL;
  for (guint i = 0; files && files[i]; i++)
    if (!strchr (files[i], G_DIR_SEPARATOR))
      unlinkat (inner, files[i], 0);
  if (manifest)
    unlinkat (inner, EXEC_CHECKPOINT_MANIFEST, 0);
  if (inner >= 0)
    close (inner);
  if (manifest)
    unlinkat (folder, name, AT_REMOVEDIR);
}

/* Removes the oldest checkpoints of the run, beyond the `keep` newest. */
static void
remove_oldest (const ExecCheckpointHead *head)
{
  const int folder = open (head->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (; folder >= 0 && head->names->len > head->keep; g_ptr_array_remove_index (head->names, 0))
    remove_checkpoint (folder, head->names->pdata[0]);
  if (folder >= 0)
    close (folder);
}

gboolean
exec_checkpoint_prepare (const char *folder, GError **error)
{
  g_autofree char *path = g_build_filename (folder, EXEC_CHECKPOINT_MANIFEST, NULL);
  if (g_mkdir_with_parents (folder, 0777) != 0 || g_access (folder, W_OK | X_OK) != 0)
    return exec_writer_fail (folder, error);
  const int fd = open (folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  g_autoptr (GKeyFile) manifest = fd >= 0 ? read_manifest (fd) : NULL;
  if (fd >= 0)
    close (fd);
  if (manifest || !g_file_test (path, G_FILE_TEST_EXISTS))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: is there already, and not that of a checkpoint: give another folder", path);
  return FALSE;
}

int
exec_checkpoint_lock (const char *folder, GError **error)
{
  g_autofree char *path = g_build_filename (folder, EXEC_CHECKPOINT_LOCK, NULL);
  const int fd = open (path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0)
    {
      exec_writer_fail (path, error);
      return -1;
    }
  if (flock (fd, LOCK_EX | LOCK_NB) == 0)
    return fd;
  if (errno == EWOULDBLOCK)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: another run saves its checkpoints here: give another folder", folder);
  else
    exec_writer_fail (path, error);
  close (fd);
  return -1;
}

/* Makes a new folder for the ranks' files. Its number is the first that no other checkpoint of this
 * step has. */
static gboolean
make_data_folder (const ExecCheckpointHead *head, guint64 *out_number, GError **error)
{
  if (g_mkdir_with_parents (head->folder, 0777) != 0)
    return exec_writer_fail (head->folder, error);
  for (guint64 number = 0;; number++)
    {
      g_autofree char *name = g_strdup_printf (
          "%s/" PREFIX "%" G_GINT64_FORMAT ".%" G_GUINT64_FORMAT, head->folder, head->step, number);
      if (g_mkdir (name, 0777) == 0)
        {
          *out_number = number;
          return TRUE;
        }
      if (errno != EEXIST)
        return exec_writer_fail (name, error);
    }
}

static char *
manifest_text (const ExecCheckpointHead *head, const char *name, const char *const *kept,
               const Written *written, guint ranks)
{
  g_autoptr (GKeyFile) file = g_key_file_new ();
  g_autofree char *model = plan_model_print (head->model);
  g_key_file_set_integer (file, EXEC_CHECKPOINT_GROUP, "version", EXEC_CHECKPOINT_VERSION);
  g_key_file_set_int64 (file, EXEC_CHECKPOINT_GROUP, "step", head->step);
  g_key_file_set_int64 (file, EXEC_CHECKPOINT_GROUP, "tokens", head->tokens);
  g_key_file_set_string (file, EXEC_CHECKPOINT_GROUP, "model", model);
  g_key_file_set_string (file, EXEC_CHECKPOINT_GROUP, "folder", name);
  if (kept)
    g_key_file_set_string_list (file, EXEC_CHECKPOINT_GROUP, "kept", kept,
                                g_strv_length ((char **)kept));
  for (guint i = 0; head->settings && head->settings[i]; i++)
    {
      g_auto (GStrv) pair = g_strsplit (head->settings[i], "=", 2);
      g_key_file_set_string (file, EXEC_CHECKPOINT_RUN, pair[0], pair[1]);
    }
  for (guint rank = 0; rank < ranks; rank++)
    {
      g_autofree char *file_name = rank_name (rank);
      GString *value = g_string_new (NULL);
      g_string_printf (value, "%" G_GUINT64_FORMAT " ", GUINT64_FROM_LE (written[rank].size));
      for (guint i = 0; i < DIGEST_BYTES; i++)
        g_string_append_printf (value, "%02x", written[rank].digest[i]);
      g_key_file_set_string (file, EXEC_CHECKPOINT_FILES, file_name, value->str);
      g_string_free (value, TRUE);
    }
  return g_key_file_to_data (file, NULL, NULL);
}

static gboolean
write_manifest (const char *folder, const char *text, GError **error)
{
  g_autofree char *path = g_build_filename (folder, EXEC_CHECKPOINT_MANIFEST, NULL);
  g_autofree char *part = g_strconcat (path, ".part", NULL);
  g_auto (ExecWriter) writer = { .fd = -1 };
  g_unlink (part); /* a symbolic link of this name must not be written through */
  if (!exec_writer_open (&writer, part, FALSE, error)
      || !exec_writer_put (&writer, text, strlen (text), error)
      || !exec_writer_close (&writer, error))
    return FALSE;
  if (g_rename (part, path) != 0)
    return exec_writer_fail (path, error);
  return exec_writer_sync_folder (folder, error);
}

/* Publishes the checkpoint, on rank 0 once all files are complete: it writes the manifest in the
 * checkpoint's own folder first, then the one in the folder above, which names the newest. */
static gboolean
publish (const ExecCheckpointHead *head, const char *name, const Written *written, guint ranks,
         GError **error)
{
  g_autofree char *folder = g_build_filename (head->folder, name, NULL);
  g_autofree char *own = manifest_text (head, ".", NULL, written, ranks);
  if (!write_manifest (folder, own, error) || !exec_writer_sync_folder (head->folder, error))
    return FALSE;
  const guint past = head->names->len + 1 > head->keep ? head->names->len + 1 - head->keep : 0;
  g_autoptr (GPtrArray) kept = g_ptr_array_new ();
  for (guint i = past; i < head->names->len; i++)
    g_ptr_array_add (kept, head->names->pdata[i]);
  g_ptr_array_add (kept, (gpointer)name);
  g_ptr_array_add (kept, NULL);
  g_autofree char *text
      = manifest_text (head, name, (const char *const *)kept->pdata, written, ranks);
  if (!write_manifest (head->folder, text, error))
    return FALSE;
  g_ptr_array_add (head->names, g_strdup (name));
  remove_oldest (head);
  return TRUE;
}

/* --- saving ------------------------------------------------------------------------------- */

struct _ExecSaving
{
  ExecCheckpointHead head;
  char *name, *path; /* of the checkpoint's folder; of this rank's file */
  ExecPiece *pieces; /* pointing into `copy` where a thread writes them */
  guint n;
  guint8 *copy;
  GThread *thread; /* the thread that writes; NULL: there is none */
  gint is_written; /* atomic */
  Written own;
  GError *error; /* that the thread ran into */
};

static gpointer
write_behind (gpointer saving)
{
  ExecSaving *self = saving;
  write_rank (self->path, self->pieces, self->n, NULL, NULL, &self->own, &self->error);
  g_atomic_int_set (&self->is_written, TRUE);
  return NULL;
}

/* Allocates the copy of the state that a thread writes from, since training changes the original
 * meanwhile. FALSE where there is no memory for it. */
static gboolean
make_room (ExecSaving *self, const ExecPiece *pieces)
{
  guint64 bytes = 0;
  for (guint i = 0; i < self->n; i++)
    bytes += plan_dtype_bytes (pieces[i].dtype, pieces[i].count);
  self->copy = g_try_malloc (MAX (bytes, 1));
  return self->copy != NULL;
}

static gboolean
copy_pieces (ExecSaving *self, const ExecPiece *pieces, ExecFetch fetch, gpointer user_data,
             GError **error)
{
  guint64 at = 0;
  self->pieces = g_memdup2 (pieces, self->n * sizeof *pieces);
  for (guint i = 0; i < self->n; i++)
    {
      ExecPiece *piece = &self->pieces[i];
      const guint64 size = plan_dtype_bytes (piece->dtype, piece->count);
      if (!fetch || piece->is_on_host)
        memcpy (self->copy + at, piece->data, size);
      else if (!fetch (user_data, self->copy + at, piece->data, size, error))
        return FALSE;
      piece->data = self->copy + at;
      at += size;
    }
  return TRUE;
}

static gboolean
begin_writing (ExecSaving *self, const ExecPiece *pieces, ExecFetch fetch, gpointer user_data,
               gboolean behind, GError **error)
{
  if (!behind || !make_room (self, pieces))
    return self->is_written
           = write_rank (self->path, pieces, self->n, fetch, user_data, &self->own, error);
  if (!copy_pieces (self, pieces, fetch, user_data, error))
    return FALSE;
  self->thread = g_thread_new ("checkpoint", write_behind, self);
  return TRUE;
}

ExecSaving *
exec_checkpoint_begin (const ExecCheckpointHead *head, const ExecPiece *pieces, guint n,
                       ExecFetch fetch, gpointer user_data, gboolean behind, ExecComm *comm,
                       GError **error)
{
  g_autofree guint64 *numbers = g_new0 (guint64, comm->ranks);
  guint64 number = 0;
  if (comm->rank == 0 && !make_data_folder (head, &number, error))
    return NULL;
  if (!comm->ops->all_gather (comm, numbers, &number, sizeof number, PLAN_DTYPE_U8, NULL, error))
    return NULL;
  ExecSaving *self = g_new0 (ExecSaving, 1);
  g_autofree char *file_name = rank_name (comm->rank);
  self->head = *head;
  self->n = n;
  self->name
      = g_strdup_printf (PREFIX "%" G_GINT64_FORMAT ".%" G_GUINT64_FORMAT, head->step, numbers[0]);
  self->path = g_build_filename (head->folder, self->name, file_name, NULL);
  if (begin_writing (self, pieces, fetch, user_data, behind, error))
    return self;
  exec_saving_free (self);
  return NULL;
}

gboolean
exec_saving_is_written (ExecSaving *self)
{
  return g_atomic_int_get (&self->is_written);
}

static gboolean
finish (ExecSaving *self, ExecComm *comm, GError **error)
{
  g_autofree Written *all = g_new0 (Written, comm->ranks);
  if (self->thread)
    g_thread_join (g_steal_pointer (&self->thread));
  if (self->error)
    {
      g_propagate_error (error, g_steal_pointer (&self->error));
      return FALSE;
    }
  return comm->ops->all_gather (comm, all, &self->own, sizeof self->own, PLAN_DTYPE_U8, NULL, error)
         && (comm->rank > 0 || publish (&self->head, self->name, all, comm->ranks, error))
         && comm->ops->barrier (comm, error);
}

gboolean
exec_saving_finish (ExecSaving *self, ExecComm *comm, GError **error)
{
  const gboolean ok = finish (self, comm, error);
  exec_saving_free (self);
  return ok;
}

void
exec_saving_free (ExecSaving *self)
{
  if (!self)
    return;
  if (self->thread)
    g_thread_join (self->thread);
  g_clear_error (&self->error);
  g_free (self->copy);
  g_free (self->pieces);
  g_free (self->name);
  g_free (self->path);
  g_free (self);
}
