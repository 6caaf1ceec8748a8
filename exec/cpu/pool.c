/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cpu/pool.h"

#include "planner/base/error.h"

/* How often a thread checks for what it waits for before it sleeps: for some ten microseconds, less
 * than most ops take, which keeps threads awake from one op of a step to the next. */
#define LOOKS 2000

typedef struct
{
  GThread **others; /* [threads - 1] */
  guint threads, opened;
  gboolean is_running; /* a job runs; jobs that its parts start stay on their own thread */

  GMutex mutex;     /* guards the members down to is_over */
  GCond begun;      /* signals a new job */
  GCond ended;      /* signals that the last thread has left the job */
  gint jobs;        /* number of jobs so far; also read without the mutex */
  gint working;     /* other threads that work on the job; atomic, without the mutex */
  gint is_awaited;  /* the pool's owner sleeps until `working` is 0; atomic, without the mutex */
  guint asleep;     /* threads that sleep, waiting for a job */
  guint joined;     /* threads that have joined this job */
  guint most;       /* most threads that may join; 0: no parts are left */
  gboolean is_over; /* the pool is closing */

  ExecPoolPart run;
  gpointer data;
  guint64 parts;
  gint next; /* the next part that nobody has taken */

  void *scratch;       /* see exec_pool_scratch */
  gsize scratch_bytes; /* of each thread */
} ExecPool;

static _Thread_local ExecPool *own = NULL;

static GMutex sums_mutex; /* of exec_pool_lock; held for some instructions only */

static inline void
rest (void)
{
#if defined __x86_64__ || defined __i386__
  __builtin_ia32_pause ();
#endif
}

/* Locks the mutex. It is held for some instructions only, so spinning is faster than sleeping. */
static void
lock (ExecPool *self)
{
  for (guint look = 0; look < LOOKS; look++)
    {
      if (g_mutex_trylock (&self->mutex))
        return;
      rest ();
    }
  g_mutex_lock (&self->mutex);
}

static void
take_parts (ExecPool *self, guint worker)
{
  for (;;)
    {
      const guint64 part = (guint64)(guint)g_atomic_int_add (&self->next, 1);

      if (part >= self->parts)
        return;
      self->run (self->data, part, worker);
    }
}

/* Waits for a job after the last one seen, and joins it if it takes more threads: out_worker is
 * this thread's number in it, or 0 if it has not joined. FALSE when the pool is closing. */
static gboolean
join (ExecPool *self, gint *io_seen, guint *out_worker)
{
  for (guint look = 0; look < LOOKS && g_atomic_int_get (&self->jobs) == *io_seen; look++)
    rest ();
  lock (self);
  while (self->jobs == *io_seen && !self->is_over)
    {
      self->asleep++;
      g_cond_wait (&self->begun, &self->mutex);
      self->asleep--;
    }
  *io_seen = self->jobs;
  *out_worker = 0;
  if (self->joined < self->most)
    {
      *out_worker = ++self->joined;
      g_atomic_int_inc (&self->working);
    }
  const gboolean goes_on = !self->is_over;
  g_mutex_unlock (&self->mutex);
  return goes_on;
}

/* Leaves the job. A system call takes as long as an op, so there is one only where the owner
 * sleeps; for the same reason `begin` makes one only for threads that sleep. */
static void
leave (ExecPool *self)
{
  if (!g_atomic_int_dec_and_test (&self->working) || !g_atomic_int_get (&self->is_awaited))
    return;
  lock (self);
  g_cond_signal (&self->ended);
  g_mutex_unlock (&self->mutex);
}

static gpointer
run_worker (gpointer data)
{
  ExecPool *self = data;
  gint seen = 0;
  guint worker;

  while (join (self, &seen, &worker))
    if (worker > 0)
      {
        take_parts (self, worker);
        leave (self);
      }
  return NULL;
}

static void
pool_free (ExecPool *self)
{
  g_mutex_lock (&self->mutex);
  self->is_over = TRUE;
  self->most = 0;
  g_atomic_int_inc (&self->jobs);
  g_cond_broadcast (&self->begun);
  g_mutex_unlock (&self->mutex);
  for (guint i = 0; i + 1 < self->threads && self->others[i] != NULL; i++)
    g_thread_join (self->others[i]);
  g_mutex_clear (&self->mutex);
  g_cond_clear (&self->begun);
  g_cond_clear (&self->ended);
  g_free (self->others);
  g_free (self->scratch);
  g_free (self);
}

gboolean
exec_pool_open (guint threads, GError **error)
{
  if (own != NULL)
    {
      own->opened++;
      return TRUE;
    }
  ExecPool *self = g_new0 (ExecPool, 1);
  g_mutex_init (&self->mutex);
  g_cond_init (&self->begun);
  g_cond_init (&self->ended);
  self->threads = MAX (threads, 1);
  self->opened = 1;
  self->others = g_new0 (GThread *, self->threads);
  for (guint i = 0; i + 1 < self->threads; i++)
    {
      g_autoptr (GError) why = NULL;

      if ((self->others[i] = g_thread_try_new ("worker", run_worker, self, &why)) != NULL)
        continue;
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND,
                   "thread %u of a rank's %u cannot be started (%s): give fewer with --threads",
                   i + 2, self->threads, why->message);
      pool_free (self);
      return FALSE;
    }
  own = self;
  return TRUE;
}

void
exec_pool_close (void)
{
  if (own != NULL && --own->opened == 0)
    g_clear_pointer (&own, pool_free);
}

guint
exec_pool_threads (void)
{
  return own != NULL && !own->is_running ? own->threads : 1;
}

static void
run_alone (guint64 parts, ExecPoolPart run, gpointer data)
{
  for (guint64 part = 0; part < parts; part++)
    run (data, part, 0);
}

static void
begin (ExecPool *self, guint64 parts, guint workers, ExecPoolPart run, gpointer data)
{
  lock (self);
  self->run = run;
  self->data = data;
  self->parts = parts;
  self->joined = 0;
  self->most = workers - 1;
  g_atomic_int_set (&self->next, 0);
  g_atomic_int_inc (&self->jobs);
  const guint asleep = self->asleep;
  g_mutex_unlock (&self->mutex);
  for (guint i = 1; i < workers && i <= asleep; i++)
    g_cond_signal (&self->begun);
}

/* Ends a job whose parts are all taken. Threads that have not joined by now are not waited for, as
 * they may wake up late. */
static void
end (ExecPool *self)
{
  lock (self);
  self->most = 0;
  g_mutex_unlock (&self->mutex);
  for (guint look = 0; look < LOOKS && g_atomic_int_get (&self->working) > 0; look++)
    rest ();
  if (g_atomic_int_get (&self->working) == 0)
    return;
  lock (self);
  g_atomic_int_set (&self->is_awaited,
                    TRUE); /* before reading `working`: `leave` does both in reverse order */
  while (g_atomic_int_get (&self->working) > 0)
    g_cond_wait (&self->ended, &self->mutex);
  g_atomic_int_set (&self->is_awaited, FALSE);
  g_mutex_unlock (&self->mutex);
}

void
exec_pool_run (guint64 parts, guint workers, ExecPoolPart run, gpointer data)
{
  const guint64 used = MIN (parts, MIN (workers, exec_pool_threads ()));

  g_assert (parts <= G_MAXINT / 2);
  if (used <= 1)
    {
      run_alone (parts, run, data);
      return;
    }
  own->is_running = TRUE;
  begin (own, parts, (guint)used, run, data);
  take_parts (own, 0);
  end (own);
  own->is_running = FALSE;
}

void *
exec_pool_scratch (gsize bytes)
{
  if (exec_pool_threads () == 1)
    return NULL;
  if (bytes > own->scratch_bytes)
    {
      g_free (own->scratch);
      own->scratch = g_malloc (bytes * own->threads);
      own->scratch_bytes = bytes;
    }
  return own->scratch;
}

void
exec_pool_lock (void)
{
  g_mutex_lock (&sums_mutex);
}

void
exec_pool_unlock (void)
{
  g_mutex_unlock (&sums_mutex);
}
