/* ExecWriter: a new file, written from beginning to end and synced. Errors name the file. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  char *path;
  int fd; /* -1: closed */
  guint64 size;
  GChecksum *checksum; /* SHA-256 of the bytes written; NULL: not asked for */
} ExecWriter;

/* Creates a file; fails if it exists. */
gboolean exec_writer_open (ExecWriter *self, const char *path, gboolean has_checksum,
                           GError **error);
gboolean exec_writer_put (ExecWriter *self, const void *data, guint64 bytes, GError **error);

/* Syncs the file to disk and closes it. */
gboolean exec_writer_close (ExecWriter *self, GError **error);

/* Frees; a file that was not closed is left on disk as it is. */
void exec_writer_clear (ExecWriter *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecWriter, exec_writer_clear)

/* Sets an error from `errno` and the path; always FALSE. */
gboolean exec_writer_fail (const char *path, GError **error);

/* Syncs a folder, so that the names in it are on disk, too. */
gboolean exec_writer_sync_folder (const char *path, GError **error);

G_END_DECLS
