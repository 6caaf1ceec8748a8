/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/limits.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Prints from a signal handler, so it allocates nothing and calls only async-signal-safe
 * functions. */
static void
say (const char *text)
{
  for (gsize left = strlen (text); left > 0;)
    {
      const gssize written = write (STDERR_FILENO, text, left);
      if (written <= 0)
        return;
      text += written;
      left -= (gsize)written;
    }
}

G_GNUC_NORETURN static void
end (const char *text)
{
  say (text);
  _exit (EXIT_FAILURE);
}

/* Ends the program with a message where GLib would abort, which dumps core and names no remedy. */
static void
end_of_glib (const char *domain, GLogLevelFlags level, const char *message, gpointer data)
{
  if (strstr (message, "failed to allocate"))
    end ("fsdplan: too little memory: the machine's, or what a limit leaves of it (ulimit -v, a "
         "job's or container's memory)\n");
  if (strstr (message, "creating thread"))
    end (
        "fsdplan: a thread cannot be started: too little memory, or too many processes (ulimit -v, "
        "ulimit -u)\n");
  g_log_default_handler (domain, level, message, data);
}

/* Reads a line of `fd`, without its newline and cut to `size`; FALSE where there is none. */
static gboolean
read_line (int fd, char *line, gsize size)
{
  gsize length = 0;
  char c;
  while (read (fd, &c, 1) == 1 && c != '\n')
    if (length + 1 < size)
      line[length++] = c;
  line[length] = 0;
  return length > 0;
}

/* The file that is mapped at `address`, by the lines "begin-end rights offset device inode name" of
 * /proc/self/maps; NULL where there is none. */
static const char *
find_mapped_file (guintptr address)
{
  static char line[4096 + 256];
  const int fd = open ("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  while (fd >= 0 && read_line (fd, line, sizeof line))
    {
      char *end;
      const guint64 from = g_ascii_strtoull (line, &end, 16);
      const guint64 to = *end ? g_ascii_strtoull (end + 1, NULL, 16) : 0;
      if (from <= address && address < to)
        return strchr (line, '/');
    }
  return NULL;
}

static void
end_of_mapped_file (int signal_number G_GNUC_UNUSED, siginfo_t *info, void *context G_GNUC_UNUSED)
{
  const char *name = find_mapped_file ((guintptr)info->si_addr);
  if (!name)
    end ("fsdplan: memory that is there cannot be read (SIGBUS)\n");
  say ("fsdplan: ");
  say (name);
  end (": cannot be read any more: it was truncated while it was in use, or its disk failed\n");
}

/* Ends the program if its address space is limited to less than `needed`. When that runs out, GLib
 * recurses without end, and BLAS retries without end, instead of failing. */
static void
check_address_space (guint64 needed)
{
  struct rlimit limit;
  if (getrlimit (RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
      || limit.rlim_cur >= needed)
    return;
  fprintf (stderr,
           "fsdplan: a limit of %" G_GUINT64_FORMAT
           " MiB of address space (ulimit -v) is too little: at least %" G_GUINT64_FORMAT
           " MiB are needed here\n",
           (guint64)limit.rlim_cur >> 20, needed >> 20);
  exit (EXIT_FAILURE);
}

void
cli_limits_begin (guint64 address_space)
{
  check_address_space (address_space);
  struct sigaction action
      = { .sa_sigaction = end_of_mapped_file, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND };
  sigemptyset (&action.sa_mask);
  sigaction (SIGBUS, &action, NULL);
  signal (SIGXFSZ, SIG_IGN);
  g_log_set_handler ("GLib", G_LOG_LEVEL_ERROR | G_LOG_FLAG_FATAL | G_LOG_FLAG_RECURSION,
                     end_of_glib, NULL);
}
