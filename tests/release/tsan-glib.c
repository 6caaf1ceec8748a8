/* SPDX-License-Identifier: Apache-2.0 */
/* Tells ThreadSanitizer what GLib's locks order. It cannot see that by itself: GLib is not built
 * with it, and its locks sleep on futexes that no interceptor knows. This library is loaded before
 * GLib, so its functions are called first. A lock's address stands for the lock. */
#include "config.h"

#include <dlfcn.h>
#include <glib.h>

#pragma GCC diagnostic ignored "-Wpedantic"

extern void __tsan_acquire (void *at) __attribute__ ((weak));
extern void __tsan_release (void *at) __attribute__ ((weak));

/* What a thread does after AFTER (at) is ordered after all that other threads did before their
 * BEFORE (at). */
#define AFTER(at) (__tsan_acquire ? __tsan_acquire (at) : (void)0)
#define BEFORE(at) (__tsan_release ? __tsan_release (at) : (void)0)

/* The function that this one hides, found once: the linker's answer is the same in each thread. */
#define HIDDEN(name) \
  static __typeof__ (&(name)) hidden; \
  if (!__atomic_load_n (&hidden, __ATOMIC_RELAXED)) \
  __atomic_store_n (&hidden, (__typeof__ (&(name)))dlsym (RTLD_NEXT, #name), __ATOMIC_RELAXED)

#undef g_mutex_lock
#undef g_mutex_unlock
#undef g_mutex_trylock
#undef g_cond_wait
#undef g_once_impl
#undef g_once_init_enter
#undef g_once_init_leave
#undef g_atomic_ref_count_inc
#undef g_atomic_ref_count_dec
#undef g_atomic_rc_box_release_full

void
g_mutex_lock (GMutex *mutex)
{
  HIDDEN (g_mutex_lock);
  hidden (mutex);
  AFTER (mutex);
}

gboolean
g_mutex_trylock (GMutex *mutex)
{
  HIDDEN (g_mutex_trylock);
  const gboolean is_held = hidden (mutex);
  if (is_held)
    AFTER (mutex);
  return is_held;
}

void
g_mutex_unlock (GMutex *mutex)
{
  HIDDEN (g_mutex_unlock);
  BEFORE (mutex);
  hidden (mutex);
}

void
g_cond_wait (GCond *cond, GMutex *mutex)
{
  HIDDEN (g_cond_wait);
  BEFORE (mutex);
  hidden (cond, mutex);
  AFTER (mutex);
}

gpointer
g_once_impl (GOnce *once, GThreadFunc function, gpointer data)
{
  HIDDEN (g_once_impl);
  const gpointer result = hidden (once, function, data);
  /* Only the thread that ran the function releases. Which one did is not known, so all say it: that
   * orders more than GLib does, which may hide a race, but reports none that is not there. */
  BEFORE (once);
  AFTER (once);
  return result;
}

gboolean (g_once_init_enter) (volatile void *at)
{
  static gboolean (*hidden) (volatile void *);
  if (!hidden)
    hidden = (gboolean (*) (volatile void *))dlsym (RTLD_NEXT, "g_once_init_enter");
  const gboolean is_first = hidden (at);
  if (!is_first)
    AFTER ((void *)at);
  return is_first;
}

void (g_once_init_leave) (volatile void *at, gsize result)
{
  static void (*hidden) (volatile void *, gsize);
  if (!hidden)
    hidden = (void (*) (volatile void *, gsize))dlsym (RTLD_NEXT, "g_once_init_leave");
  BEFORE ((void *)at);
  hidden (at, result);
}

void (g_atomic_ref_count_inc) (gatomicrefcount *count)
{
  __atomic_fetch_add (count, 1, __ATOMIC_SEQ_CST);
}

gboolean (g_atomic_ref_count_dec) (gatomicrefcount *count)
{
  BEFORE (count);
  const gboolean is_last = __atomic_sub_fetch (count, 1, __ATOMIC_SEQ_CST) == 0;
  if (is_last)
    AFTER (count);
  return is_last;
}

void
g_atomic_rc_box_release_full (gpointer box, GDestroyNotify clear)
{
  HIDDEN (g_atomic_rc_box_release_full);
  BEFORE (box);
  AFTER (box);
  hidden (box, clear);
}
