/* A file system layer between SQLite and the real one, which kills the process or fails at a
 * chosen call. It never waits for the disk: that is needed to survive a loss of power, not of a
 * process. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define VFS_KILL (-1)      /* the process dies before the call */
#define VFS_KILL_TORN (-2) /* the process dies in the middle of the call, when it writes */

/* Installs the layer for every store that is opened from now on. */
void vfs_install (void);

/* The `call`th call from now that changes a file ends in this way: with an SQLite code, or one of
 * VFS_KILL and VFS_KILL_TORN. */
void vfs_fail_at (guint call, int how);

/* Every call that takes a lock fails with this code; SQLITE_OK: none does. */
void vfs_fail_locks (int code);

/* Whether the call that was to fail has come. */
gboolean vfs_has_failed (void);

G_END_DECLS
