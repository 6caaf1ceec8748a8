/* SPDX-License-Identifier: Apache-2.0 */
/* A library to load before the C library. The rank that FAULT_RANK names sends itself the signal
 * FAULT_SIGNAL, or sleeps for FAULT_SECONDS, once: when it opens a file whose path contains
 * FAULT_AT, or when it starts, if FAULT_AT is "start". */
#include "config.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sends the signal, or sleeps, if this is the rank and the first time that it is at the place. */
static void
fail_at (const char *place)
{
  static int has_failed;
  const char *at = getenv ("FAULT_AT"), *faulty = getenv ("FAULT_RANK");
  const char *rank = getenv ("OMPI_COMM_WORLD_RANK"), *number = getenv ("FAULT_SIGNAL"),
             *seconds = getenv ("FAULT_SECONDS");
  if (!rank)
    rank = getenv ("PMIX_RANK");
  if (!at || !faulty || !rank || strcmp (faulty, rank) != 0 || !strstr (place, at) || has_failed)
    return;
  has_failed = 1;
  if (number)
    kill (getpid (), atoi (number));
  if (seconds)
    sleep ((unsigned)atoi (seconds));
}

__attribute__ ((constructor)) static void
begin (void)
{
  fail_at ("start");
}

static int
open_there (const char *name, const char *path, int flags, mode_t mode)
{
  int (*real) (const char *, int, ...);
  void *symbol = dlsym (RTLD_NEXT, name);
  memcpy (&real, &symbol, sizeof real);
  fail_at (path);
  return real (path, flags, mode);
}

int
open (const char *path, int flags, ...)
{
  va_list more;
  va_start (more, flags);
  const mode_t mode = (mode_t)va_arg (more, int);
  va_end (more);
  return open_there ("open", path, flags, mode);
}

int
open64 (const char *path, int flags, ...)
{
  va_list more;
  va_start (more, flags);
  const mode_t mode = (mode_t)va_arg (more, int);
  va_end (more);
  return open_there ("open64", path, flags, mode);
}
