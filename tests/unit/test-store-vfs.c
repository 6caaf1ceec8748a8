/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/test-store-vfs.h"

#include <signal.h>
#include <sqlite3.h>
#include <unistd.h>

static sqlite3_vfs vfs;
static sqlite3_vfs *real_vfs;
static guint calls_left;
static int how_it_ends, lock_code;

typedef struct
{
  sqlite3_file base;
  sqlite3_file *real; /* the real file, directly behind this struct */
} File;

static sqlite3_file *
real_of (sqlite3_file *file)
{
  return ((File *)(gpointer)file)->real;
}

/* What the call has to return; SQLITE_OK: it continues normally. */
static int
next_call (void)
{
  if (calls_left == 0 || --calls_left > 0)
    return SQLITE_OK;
  if (how_it_ends == VFS_KILL)
    kill (getpid (), SIGKILL);
  return how_it_ends;
}

static int
file_close (sqlite3_file *file)
{
  return real_of (file)->pMethods->xClose (real_of (file));
}

static int
file_read (sqlite3_file *file, void *bytes, int n, sqlite3_int64 at)
{
  return real_of (file)->pMethods->xRead (real_of (file), bytes, n, at);
}

static int
file_write (sqlite3_file *file, const void *bytes, int n, sqlite3_int64 at)
{
  const int code = next_call ();

  if (code != SQLITE_OK) /* half of the data is written, whatever happens to it then */
    real_of (file)->pMethods->xWrite (real_of (file), bytes, n / 2, at);
  if (code == VFS_KILL_TORN)
    kill (getpid (), SIGKILL);
  return code != SQLITE_OK ? code : real_of (file)->pMethods->xWrite (real_of (file), bytes, n, at);
}

static int
file_truncate (sqlite3_file *file, sqlite3_int64 size)
{
  const int code = next_call ();

  if (code == VFS_KILL_TORN)
    kill (getpid (), SIGKILL);
  return code != SQLITE_OK ? code : real_of (file)->pMethods->xTruncate (real_of (file), size);
}

static int
file_sync (sqlite3_file *file, int flags)
{
  const int code = next_call ();

  if (code == VFS_KILL_TORN)
    kill (getpid (), SIGKILL);
  return code;
}

static int
file_size (sqlite3_file *file, sqlite3_int64 *out_size)
{
  return real_of (file)->pMethods->xFileSize (real_of (file), out_size);
}

static int
file_lock (sqlite3_file *file, int level)
{
  return lock_code != SQLITE_OK ? lock_code
                                : real_of (file)->pMethods->xLock (real_of (file), level);
}

static int
file_unlock (sqlite3_file *file, int level)
{
  return real_of (file)->pMethods->xUnlock (real_of (file), level);
}

static int
file_check_reserved_lock (sqlite3_file *file, int *out_is_reserved)
{
  return real_of (file)->pMethods->xCheckReservedLock (real_of (file), out_is_reserved);
}

static int
file_control (sqlite3_file *file, int op, void *argument)
{
  return real_of (file)->pMethods->xFileControl (real_of (file), op, argument);
}

static int
file_sector_size (sqlite3_file *file)
{
  return real_of (file)->pMethods->xSectorSize (real_of (file));
}

static int
file_device_characteristics (sqlite3_file *file)
{
  return real_of (file)->pMethods->xDeviceCharacteristics (real_of (file));
}

static int
vfs_open (sqlite3_vfs *self, sqlite3_filename name, sqlite3_file *file, int flags, int *out_flags)
{
  static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_reserved_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector_size,
    .xDeviceCharacteristics = file_device_characteristics,
  };
  File *wrapped = (File *)(gpointer)file;
  const gboolean changes = (flags & SQLITE_OPEN_MAIN_JOURNAL) != 0;
  int code = changes ? next_call () : SQLITE_OK;

  wrapped->base.pMethods = NULL;
  wrapped->real = (sqlite3_file *)(gpointer)(wrapped + 1);
  if (code == VFS_KILL_TORN)
    kill (getpid (), SIGKILL);
  if (code != SQLITE_OK)
    return code == SQLITE_FULL ? SQLITE_CANTOPEN : code; /* as a full disk answers */
  code = real_vfs->xOpen (real_vfs, name, wrapped->real, flags, out_flags);
  if (wrapped->real->pMethods)
    wrapped->base.pMethods = &methods;
  return code;
}

static int
vfs_delete (sqlite3_vfs *self, const char *name, int syncs)
{
  const int code = next_call ();

  if (code == VFS_KILL_TORN)
    {
      real_vfs->xDelete (real_vfs, name, 0);
      kill (getpid (), SIGKILL);
    }
  if (code != SQLITE_OK)
    return code == SQLITE_FULL ? SQLITE_IOERR_DELETE : code;
  return real_vfs->xDelete (real_vfs, name, 0);
}

/* Does not sleep, so that waiting for a lock that never comes ends at once. */
static int
vfs_sleep (sqlite3_vfs *self, int us)
{
  return lock_code != SQLITE_OK ? us : real_vfs->xSleep (real_vfs, us);
}

void
vfs_install (void)
{
  real_vfs = sqlite3_vfs_find ("unix");
  vfs = *real_vfs;
  vfs.zName = "faulty";
  vfs.szOsFile = (int)sizeof (File) + real_vfs->szOsFile;
  vfs.xOpen = vfs_open;
  vfs.xDelete = vfs_delete;
  vfs.xSleep = vfs_sleep;
  sqlite3_vfs_register (&vfs, 1);
}

void
vfs_fail_at (guint call, int how)
{
  calls_left = call;
  how_it_ends = how;
}

void
vfs_fail_locks (int code)
{
  lock_code = code;
}

gboolean
vfs_has_failed (void)
{
  return calls_left == 0;
}
