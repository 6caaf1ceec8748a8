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
  gboolean is_running; /* parts run; work that they start stays on their thread */

  GMutex mutex;     /* guards the members down to is_over */
  GCond begun;      /* signals a new work */
  GCond ended;      /* signals that the last thread has left a work */
  gint work;        /* number of works so far; also read without the mutex */
  gint at_it;       /* other threads that are working; atomic, without the mutex */
  gint is_awaited;  /* the pool's owner sleeps until at_it is 0; atomic, without the mutex */
  guint asleep;     /* threads that sleep, waiting for a work */
  guint joined;     /* threads that have joined this work */
  guint most;       /* most threads that may join; 0: no parts are left */
  gboolean is_over; /* the pool is closing */

  ExecPoolPart run;
  gpointer data;
  guint64 parts;
  gint next; /* the next part that nobody has taken */

  void *rooms;
  gsize rooms_bytes;
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

/* Waits for a work after the last one seen and joins it if it takes more threads: out_worker is
 * this thread's number in it, or 0. FALSE when the pool is closing. */
static gboolean
join (ExecPool *self, gint *io_seen, guint *out_worker)
{
  for (guint look = 0; look < LOOKS && g_atomic_int_get (&self->work) == *io_seen; look++)
    rest ();
  lock (self);
  while (self->work == *io_seen && !self->is_over)
    {
      self->asleep++;
      g_cond_wait (&self->begun, &self->mutex);
      self->asleep--;
    }
  *io_seen = self->work;
  *out_worker = 0;
  if (self->joined < self->most)
    {
      *out_worker = ++self->joined;
      g_atomic_int_inc (&self->at_it);
    }
  const gboolean goes_on = !self->is_over;
  g_mutex_unlock (&self->mutex);
  return goes_on;
}

/* Leaves a work. Makes a system call only where the owner sleeps, as `begin` does only where
 * threads do: such a call takes as long as an op. */
static void
leave (ExecPool *self)
{
  if (!g_atomic_int_dec_and_test (&self->at_it) || !g_atomic_int_get (&self->is_awaited))
    return;
  lock (self);
  g_cond_signal (&self->ended);
  g_mutex_unlock (&self->mutex);
}

static gpointer
work (gpointer data)
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
  g_atomic_int_inc (&self->work);
  g_cond_broadcast (&self->begun);
  g_mutex_unlock (&self->mutex);
  for (guint i = 0; i + 1 < self->threads && self->others[i] != NULL; i++)
    g_thread_join (self->others[i]);
  g_mutex_clear (&self->mutex);
  g_cond_clear (&self->begun);
  g_cond_clear (&self->ended);
  g_free (self->others);
  g_free (self->rooms);
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

      if ((self->others[i] = g_thread_try_new ("worker", work, self, &why)) != NULL)
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
  g_atomic_int_inc (&self->work);
  const guint asleep = self->asleep;
  g_mutex_unlock (&self->mutex);
  for (guint i = 1; i < workers && i <= asleep; i++)
    g_cond_signal (&self->begun);
}

/* Ends a work whose parts are all taken. Threads that have not joined by now are not waited for, as
 * they may wake up late. */
static void
end (ExecPool *self)
{
  lock (self);
  self->most = 0;
  g_mutex_unlock (&self->mutex);
  for (guint look = 0; look < LOOKS && g_atomic_int_get (&self->at_it) > 0; look++)
    rest ();
  if (g_atomic_int_get (&self->at_it) == 0)
    return;
  lock (self);
  g_atomic_int_set (&self->is_awaited, TRUE); /* before reading at_it: leave does the reverse */
  while (g_atomic_int_get (&self->at_it) > 0)
    g_cond_wait (&self->ended, &self->mutex);
  g_atomic_int_set (&self->is_awaited, FALSE);
  g_mutex_unlock (&self->mutex);
}

void
exec_pool_run (guint64 parts, guint workers, ExecPoolPart run, gpointer data)
{
  const guint64 least = MIN (parts, MIN (workers, exec_pool_threads ()));

  g_assert (parts <= G_MAXINT / 2);
  if (least <= 1)
    {
      run_alone (parts, run, data);
      return;
    }
  own->is_running = TRUE;
  begin (own, parts, (guint)least, run, data);
  take_parts (own, 0);
  end (own);
  own->is_running = FALSE;
}

void *
exec_pool_rooms (gsize bytes)
{
  if (exec_pool_threads () == 1)
    return NULL;
  if (bytes > own->rooms_bytes)
    {
      g_free (own->rooms);
      own->rooms = g_malloc (bytes * own->threads);
      own->rooms_bytes = bytes;
    }
  return own->rooms;
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
