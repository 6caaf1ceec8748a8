/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded before the program: the call for the time that INTERRUPT_AT names brings Ctrl-C with it. A
 * search asks for the time behind each plan that it scored. */
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
