/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded before the C library: a clock that goes back by up to a day with every look
 * (FSDPLAN_CLOCK=back), and a file system on which no lock can be had (FSDPLAN_LOCKS=none), as in
 * homes on some networks. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int
is_set (const char *name, const char *value)
{
  const char *set = getenv (name);
  return set && strcmp (set, value) == 0;
}

/* Seconds by which the clock has gone back so far; each process has another series. */
static time_t
behind (void)
{
  static time_t seconds;
  if (!is_set ("FSDPLAN_CLOCK", "back"))
    return 0;
  seconds += 1 + (seconds * 31 + getpid ()) % 86400;
  return seconds;
}

int
clock_gettime (clockid_t clock, struct timespec *out)
{
  static int (*hidden) (clockid_t, struct timespec *);
  if (!hidden)
    hidden = (int (*) (clockid_t, struct timespec *))dlsym (RTLD_NEXT, "clock_gettime");
  const int result = hidden (clock, out);
  if (clock == CLOCK_REALTIME)
    out->tv_sec -= behind ();
  return result;
}

time_t
time (time_t *out)
{
  struct timespec now = { 0 };
  clock_gettime (CLOCK_REALTIME, &now);
  if (out)
    *out = now.tv_sec;
  return now.tv_sec;
}

int
gettimeofday (struct timeval *out, void *zone)
{
  struct timespec now = { 0 };
  (void)zone;
  clock_gettime (CLOCK_REALTIME, &now);
  *out = (struct timeval){ .tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000 };
  return 0;
}

/* Fails the commands by which SQLite locks files; all others are passed on. */
static int
pass_on (const char *name, int fd, int command, void *argument)
{
  int (*hidden) (int, int, ...) = (int (*) (int, int, ...))dlsym (RTLD_NEXT, name);
  if ((command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK)
      && is_set ("FSDPLAN_LOCKS", "none"))
    {
      errno = ENOLCK;
      return -1;
    }
  return hidden (fd, command, argument);
}

int
fcntl (int fd, int command, ...)
{
  va_list more;
  va_start (more, command);
  void *argument = va_arg (more, void *);
  va_end (more);
  return pass_on ("fcntl", fd, command, argument);
}

int
fcntl64 (int fd, int command, ...)
{
  va_list more;
  va_start (more, command);
  void *argument = va_arg (more, void *);
  va_end (more);
  return pass_on ("fcntl64", fd, command, argument);
}
