/* A file system between SQLite and the real one that dies or fails at a chosen call, and never
 * waits for the disk: to lose a process, unlike to lose power, it need not. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define VFS_KILL (-1)      /* the process is gone before the call */
#define VFS_KILL_TORN (-2) /* … in the middle of it, when it writes */

/* From now on, for every store that is opened. */
void vfs_install (void);

/* The `call`th call from now that changes a file ends so: an SQLite code, or VFS_KILL…. */
void vfs_fail_at (guint call, int how);

/* Every call fails that takes a lock; SQLITE_OK: none. */
void vfs_fail_locks (int code);

/* Whether the call to fail has come. */
gboolean vfs_has_failed (void);

G_END_DECLS
