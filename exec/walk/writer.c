/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/writer.h"

#include "planner/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

gboolean
exec_writer_fail (const char *path, GError **error)
{
  const int code = errno;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", path, g_strerror (code));
  return FALSE;
}

gboolean
exec_writer_sync_folder (const char *path, GError **error)
{
  const int fd = open (path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const gboolean ok = (fd >= 0 && fsync (fd) == 0) || exec_writer_fail (path, error);
  if (fd >= 0)
    close (fd);
  return ok;
}

gboolean
exec_writer_open (ExecWriter *self, const char *path, gboolean has_checksum, GError **error)
{
  *self = (ExecWriter){ .path = g_strdup (path),
                        .fd = open (path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666),
                        .checksum = has_checksum ? g_checksum_new (G_CHECKSUM_SHA256) : NULL };
  return self->fd >= 0 || exec_writer_fail (path, error);
}

gboolean
exec_writer_put (ExecWriter *self, const void *data, guint64 bytes, GError **error)
{
  const guint8 *at = data;
  if (self->checksum)
    g_checksum_update (self->checksum, at, (gssize)bytes);
  self->size += bytes;
  while (bytes > 0)
    {
      const ssize_t n = write (self->fd, at, bytes);
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        return exec_writer_fail (self->path, error);
      at += n;
      bytes -= (guint64)n;
    }
  return TRUE;
}

gboolean
exec_writer_close (ExecWriter *self, GError **error)
{
  const int fd = self->fd;
  gboolean ok = fsync (fd) == 0 || exec_writer_fail (self->path, error);
  self->fd = -1;
  if (close (fd) != 0 && ok)
    ok = exec_writer_fail (self->path, error);
  return ok;
}

void
exec_writer_clear (ExecWriter *self)
{
  if (self->path && self->fd >= 0)
    close (self->fd);
  g_clear_pointer (&self->checksum, g_checksum_free);
  g_clear_pointer (&self->path, g_free);
}
