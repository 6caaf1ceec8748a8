/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/stop.h"

#include <signal.h>

static volatile sig_atomic_t asked;

static void
note (int signal_number G_GNUC_UNUSED)
{
  asked = 1;
}

void
exec_stop_watch (void)
{
  struct sigaction action = { .sa_handler = note, .sa_flags = (int)SA_RESETHAND | SA_RESTART };
  sigemptyset (&action.sa_mask);
  sigaction (SIGTERM, &action, NULL);
}

gboolean
exec_stop_is_asked (void)
{
  return asked != 0;
}
