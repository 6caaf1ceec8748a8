/* ExecWriter: a file that is new, written once from its beginning, and synced before anyone is told
 * of it. Errors name it. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  char *path;
  int fd; /* -1: closed */
  guint64 size;
  GChecksum *checksum; /* SHA-256 of what was put; NULL: nobody asks */
} ExecWriter;

/* Begins a file that must not be there. */
gboolean exec_writer_open (ExecWriter *self, const char *path, gboolean has_checksum,
                           GError **error);
gboolean exec_writer_put (ExecWriter *self, const void *data, guint64 bytes, GError **error);

/* Syncs and closes. */
gboolean exec_writer_close (ExecWriter *self, GError **error);

/* Whatever was not closed stays as it is. */
void exec_writer_clear (ExecWriter *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecWriter, exec_writer_clear)

/* What the system just said of a path; FALSE. */
gboolean exec_writer_fail (const char *path, GError **error);

/* Names in a folder are on the disk, too. */
gboolean exec_writer_sync_folder (const char *path, GError **error);

G_END_DECLS
