/* ExecPool: the threads of a rank, which share the work inside of its kernels.
 *
 * A rank's thread opens a pool and closes it. In between, kernels cut their work into parts by
 * sizes alone, never by the number of threads, and any thread that is free takes the next part, so
 * results have the same bits on any number of threads. Without a pool, and inside of a part, parts
 * run one after another on the calling thread. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Opens the pool of the calling thread, which is one of its `threads`. Opening it again changes
 * nothing; it must be closed as often as it was opened. BACKEND where the system gives no more
 * threads. */
gboolean exec_pool_open (guint threads, GError **error);
void exec_pool_close (void);

/* How many threads the calling thread can share work with, itself included; 1 inside of a part. */
guint exec_pool_threads (void);

/* Runs one part of a job. `worker` is below exec_pool_threads and differs for parts that run at
 * the same time. */
typedef void (*ExecPoolPart) (gpointer data, guint64 part, guint worker);

/* Runs all parts on at most `workers` threads and returns when they are done. */
void exec_pool_run (guint64 parts, guint workers, ExecPoolPart run, gpointer data);

/* Memory of `bytes` bytes for each thread, one after another. It is not in the schedule's plan, so
 * it must be small, like a stack. NULL where there is one thread; valid until the next call. */
void *exec_pool_scratch (gsize bytes);

/* Guards what parts of all threads add to. */
void exec_pool_lock (void);
void exec_pool_unlock (void);

G_END_DECLS
