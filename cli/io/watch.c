/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/watch.h"

#include "planner/base/error.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BETWEEN_US (G_USEC_PER_SEC / 10) /* from one line of progress to the next one */

/* A second SIGINT within this time is taken for the same request: timeout(1) signals both its child
 * and the process group. */
#define ONE_WISH_S 0.2

static volatile sig_atomic_t is_interrupted;

/* Notes the first SIGINT; one that comes more than ONE_WISH_S later ends the program at once. */
static void
interrupt (int signal_number G_GNUC_UNUSED)
{
  static struct timespec first;
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC, &now);
  if (!is_interrupted)
    first = now;
  else if ((double)(now.tv_sec - first.tv_sec) + 1e-9 * (double)(now.tv_nsec - first.tv_nsec)
           > ONE_WISH_S)
    _exit (CLI_INTERRUPTED);
  is_interrupted = TRUE;
}

gboolean
cli_watch_is_due (void)
{
  static gint64 last_us = -BETWEEN_US;
  const gint64 now_us = g_get_monotonic_time ();
  if (now_us - last_us < BETWEEN_US || !isatty (STDERR_FILENO))
    return FALSE;
  last_us = now_us;
  return TRUE;
}

void
cli_watch_erase (void)
{
  if (isatty (STDERR_FILENO))
    fputs ("\r\033[K", stderr);
}

void
cli_watch_interrupts (void)
{
  struct sigaction old, action = { .sa_handler = interrupt, .sa_flags = SA_RESTART };
  sigemptyset (&action.sa_mask);
  if (sigaction (SIGINT, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
    sigaction (SIGINT, &action, NULL);
}

gboolean
cli_watch_is_interrupted (void)
{
  return is_interrupted;
}

gboolean
cli_watch_refuse (const char *what_is_known, GError **error)
{
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_STOPPED, "interrupted: %s", what_is_known);
  return FALSE;
}
