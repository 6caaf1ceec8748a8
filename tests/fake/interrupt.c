/* SPDX-License-Identifier: Apache-2.0 */
/* A library to load before the program: the program gets Ctrl-C (SIGINT) in the call for the time
 * whose number is INTERRUPT_AT. A search asks for the time after each plan that it has scored. */
#include "config.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

int64_t g_get_monotonic_time (void);

int64_t
g_get_monotonic_time (void)
{
  static atomic_int calls;
  struct timespec now;
  const char *at = getenv ("INTERRUPT_AT");
  clock_gettime (CLOCK_MONOTONIC, &now);
  if (at && atomic_fetch_add (&calls, 1) + 1 == atoi (at))
    raise (SIGINT);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
