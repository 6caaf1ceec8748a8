/* ExecPool: the threads of a rank, which share the work inside of its kernels.
 *
 * A rank's thread opens its pool and closes it; until then what it runs is cut into parts by sizes
 * alone, never by the number of threads, and each part is done by whichever thread is free. So
 * results are the same bits on any number of threads. Without a pool, and inside of a part, parts
 * are done one after the other. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* The pool of the calling thread, which is one of its `threads`; opened again it stays as it is,
 * until it was closed as often. BACKEND where the system gives no more threads. */
gboolean exec_pool_open (guint threads, GError **error);
void exec_pool_close (void);

/* Of the calling thread, where a part may be given away; else 1. */
guint exec_pool_threads (void);

/* One part of a work; `worker` is below exec_pool_threads, and no two run at once. */
typedef void (*ExecPoolPart) (gpointer data, guint64 part, guint worker);

/* All parts, by at most so many threads; returns when they are done. */
void exec_pool_run (guint64 parts, guint workers, ExecPoolPart run, gpointer data);

/* Room for each thread, `bytes` of it one behind the other, beside what the schedule knows of:
 * little, as stacks are. NULL where there is one thread; valid until the next call. */
void *exec_pool_rooms (gsize bytes);

/* For what all parts add to, in any order. */
void exec_pool_lock (void);
void exec_pool_unlock (void);

G_END_DECLS
