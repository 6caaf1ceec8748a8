/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/comm/rendezvous.h"

#include "planner/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC "fsdplan1"
#define RETRY_US (50 * 1000)
#define STRANGER_MS 5000 /* time that whoever connects has to say which rank it is */
#define SHOWN_RANKS 8

/* The header that a rank sends before its bytes. It is sent as it lies in memory: all ranks run one
 * program, so they have the same byte order. */
typedef struct
{
  char magic[8];
  guint32 rank, ranks, bytes;
} Hello;

typedef struct
{
  const char *meeting;
  char *host, *port;
  guint rank, ranks, bytes, timeout_s;
  gint64 end_us;    /* when the timeout ends; G_MAXINT64: never */
  gboolean is_roll; /* whoever does not come is missing, which is no failure */
} Meeting;

static void
meeting_clear (Meeting *self)
{
  g_clear_pointer (&self->host, g_free);
  g_clear_pointer (&self->port, g_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Meeting, meeting_clear)

/* Splits HOST:PORT or [HOST]:PORT. */
static gboolean
split (Meeting *self, GError **error)
{
  const char *text = self->meeting, *colon = strrchr (text, ':');
  if (colon && colon > text && colon[1])
    {
      const gboolean has_brackets = *text == '[' && colon[-1] == ']';
      self->host = g_strndup (text + has_brackets, (gsize)(colon - text) - 2 * has_brackets);
      self->port = g_strdup (colon + 1);
      return TRUE;
    }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "'%s' is not HOST:PORT", text);
  return FALSE;
}

static gboolean
fail (const Meeting *self, const char *what, GError **error)
{
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "rank %u, at %s, where ranks meet: %s", self->rank,
               self->meeting, what);
  return FALSE;
}

static gboolean
is_over (const Meeting *self)
{
  return g_get_monotonic_time () >= self->end_us;
}

/* Waits until there is something to read or write; FALSE if `limit_us` or the meeting's end comes
 * first. */
static gboolean
await (const Meeting *self, int fd, short events, gint64 limit_us)
{
  struct pollfd asked = { .fd = fd, .events = events };
  const gint64 end_us = MIN (self->end_us, limit_us);
  int n;
  do
    {
      const gint64 left_us = end_us - g_get_monotonic_time ();
      n = poll (&asked, 1, (int)CLAMP (left_us / 1000, 0, 1000));
    }
  while ((n == 0 || (n < 0 && errno == EINTR)) && g_get_monotonic_time () < end_us);
  return n > 0;
}

/* Sends or receives all bytes. FALSE: the other end is gone or too slow. */
static gboolean
transfer (const Meeting *self, int fd, gboolean sends, void *at, gsize bytes, gint64 limit_us)
{
  for (gsize done = 0; done < bytes;)
    {
      gssize n;
      if (!await (self, fd, sends ? POLLOUT : POLLIN, limit_us))
        return FALSE;
      n = sends ? send (fd, (guint8 *)at + done, bytes - done, MSG_NOSIGNAL)
                : recv (fd, (guint8 *)at + done, bytes - done, 0);
      if (n > 0)
        done += (gsize)n;
      else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        return FALSE;
    }
  return TRUE;
}

static void
set_nonblocking (int fd)
{
  fcntl (fd, F_SETFL, fcntl (fd, F_GETFL) | O_NONBLOCK);
  fcntl (fd, F_SETFD, FD_CLOEXEC);
}

/* --- rank 0 ------------------------------------------------------------------------------- */

static int
listen_on (const struct addrinfo *at)
{
  const int yes = 1, no = 0, fd = socket (at->ai_family, at->ai_socktype, at->ai_protocol);
  if (fd < 0)
    return -1;
  set_nonblocking (fd);
  setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (at->ai_family == AF_INET6)
    setsockopt (fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (bind (fd, at->ai_addr, at->ai_addrlen) == 0 && listen (fd, SOMAXCONN) == 0)
    return fd;
  const int code = errno;
  close (fd);
  errno = code;
  return -1;
}

/* Listens on all addresses of the host, because it is not known which of them MASTER_ADDR means. */
static int
open_listener (const Meeting *self, GError **error)
{
  static const int families[] = { AF_INET6, AF_INET };
  int fd = -1, code = EADDRNOTAVAIL;
  for (guint i = 0; fd < 0 && i < G_N_ELEMENTS (families); i++)
    {
      const struct addrinfo wanted
          = { .ai_family = families[i], .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
      struct addrinfo *found = NULL;
      if (getaddrinfo (NULL, self->port, &wanted, &found) != 0)
        continue;
      fd = listen_on (found);
      code = fd < 0 ? errno : 0;
      freeaddrinfo (found);
      if (code == EADDRINUSE)
        break;
    }
  if (fd < 0)
    {
      g_autofree char *why
          = g_strdup_printf ("rank 0 cannot listen: %s%s", g_strerror (code),
                             code == EADDRINUSE ? "; give another MASTER_PORT" : "");
      fail (self, why, error);
    }
  return fd;
}

/* Receives the bytes of a process that has connected; returns its rank, or -1 if it is none of this
 * run's. */
static int
receive_from (const Meeting *self, int fd, guint8 *all)
{
  const gint64 limit_us = g_get_monotonic_time () + STRANGER_MS * 1000;
  Hello hello;
  if (!transfer (self, fd, FALSE, &hello, sizeof hello, limit_us)
      || memcmp (hello.magic, MAGIC, sizeof hello.magic) != 0 || hello.ranks != self->ranks
      || hello.bytes != self->bytes || hello.rank == 0 || hello.rank >= self->ranks
      || !transfer (self, fd, FALSE, all + (gsize)hello.rank * self->bytes, self->bytes, limit_us))
    return -1;
  return (int)hello.rank;
}

static gboolean
fail_missing (const Meeting *self, const int *fds, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL);
  guint n = 0;
  for (guint rank = 1; rank < self->ranks; rank++)
    if (fds[rank] < 0 && n++ < SHOWN_RANKS)
      g_string_append_printf (text, "%s%u", n > 1 ? ", " : "", rank);
  if (n > SHOWN_RANKS)
    g_string_append_printf (text, " and %u more", n - SHOWN_RANKS);
  g_autofree char *why = g_strdup_printf ("no sign of rank%s %s within %u s", n > 1 ? "s" : "",
                                          text->str, self->timeout_s);
  return fail (self, why, error);
}

static gboolean
receive_all (const Meeting *self, int listener, int *fds, guint8 *all, GError **error)
{
  for (guint here = 1; here < self->ranks;)
    {
      if (!await (self, listener, POLLIN, G_MAXINT64))
        return self->is_roll || fail_missing (self, fds, error);
      const int fd = accept (listener, NULL, NULL);
      if (fd < 0)
        continue;
      set_nonblocking (fd);
      const int rank = receive_from (self, fd, all);
      if (rank < 0)
        {
          close (fd);
          continue;
        }
      if (fds[rank] >= 0)
        {
          g_autofree char *why = g_strdup_printf ("two processes say that they are rank %d", rank);
          close (fd);
          return fail (self, why, error);
        }
      fds[rank] = fd;
      here++;
    }
  return TRUE;
}

/* Sends all bytes to a rank. After a roll call this has a time of its own, since waiting for ranks
 * that do not come uses up the timeout. */
static gboolean
send_to (const Meeting *self, int fd, guint8 *all)
{
  Meeting later = *self;
  if (self->is_roll)
    later.end_us = g_get_monotonic_time () + STRANGER_MS * 1000;
  return transfer (&later, fd, TRUE, all, (gsize)self->ranks * self->bytes, G_MAXINT64);
}

static gboolean
receive_and_send (const Meeting *self, guint8 *all, GError **error)
{
  g_autofree int *fds = g_new (int, self->ranks);
  const int listener = open_listener (self, error);
  if (listener < 0)
    return FALSE;
  for (guint rank = 0; rank < self->ranks; rank++)
    fds[rank] = -1;
  gboolean ok = receive_all (self, listener, fds, all, error);
  for (guint rank = 1; rank < self->ranks; rank++)
    {
      if (ok && fds[rank] >= 0 && !send_to (self, fds[rank], all) && !self->is_roll)
        {
          g_autofree char *why = g_strdup_printf ("rank %u has gone", rank);
          ok = fail (self, why, error);
        }
      if (fds[rank] >= 0)
        close (fds[rank]);
    }
  close (listener);
  return ok;
}

/* --- the other ranks ---------------------------------------------------------------------- */

/* Tries to connect once. Returns the socket, or -1 with the reason. */
static int
connect_to (const Meeting *self, const struct addrinfo *at, const char **out_why)
{
  int code = 0;
  socklen_t length = sizeof code;
  const int fd = socket (at->ai_family, at->ai_socktype, at->ai_protocol);
  if (fd < 0)
    {
      *out_why = g_strerror (errno);
      return -1;
    }
  set_nonblocking (fd);
  if (connect (fd, at->ai_addr, at->ai_addrlen) != 0)
    code = errno;
  if (code == EINPROGRESS && !await (self, fd, POLLOUT, G_MAXINT64))
    code = ETIMEDOUT;
  else if (code == EINPROGRESS)
    getsockopt (fd, SOL_SOCKET, SO_ERROR, &code, &length);
  if (code == 0)
    return fd;
  *out_why = g_strerror (code);
  close (fd);
  return -1;
}

/* Connects to rank 0. Tries again and again, because rank 0 may not listen yet and its name may not
 * resolve yet. */
static int
connect_to_rank_0 (const Meeting *self, GError **error)
{
  const struct addrinfo wanted = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
  const char *why = NULL;
  int fd = -1;
  for (;;)
    {
      struct addrinfo *found = NULL;
      const int code = getaddrinfo (self->host, self->port, &wanted, &found);
      if (code != 0)
        why = gai_strerror (code);
      for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
        fd = connect_to (self, at, &why);
      if (found)
        freeaddrinfo (found);
      if (fd >= 0)
        return fd;
      if (is_over (self))
        break;
      g_usleep (RETRY_US);
    }
  g_autofree char *text
      = g_strdup_printf ("rank 0 is not reached within %u s: %s; MASTER_ADDR must "
                         "be an address of its host, and the port after "
                         "MASTER_PORT open",
                         self->timeout_s, why);
  fail (self, text, error);
  return -1;
}

/* Sends this rank's bytes to rank 0 and receives those of all ranks. In a roll call rank 0 may
 * answer only when its own timeout is over, which may have begun just now, and takes some time for
 * that. */
static gboolean
send_and_receive (Meeting *self, guint8 *all, const void *own, GError **error)
{
  Hello hello = { .rank = self->rank, .ranks = self->ranks, .bytes = self->bytes };
  memcpy (hello.magic, MAGIC, sizeof hello.magic);
  const int fd = connect_to_rank_0 (self, error);
  if (fd < 0)
    return FALSE;
  if (self->is_roll)
    self->end_us = g_get_monotonic_time () + self->timeout_s * (gint64)G_USEC_PER_SEC
                   + 2 * STRANGER_MS * (gint64)1000;
  const gboolean ok
      = transfer (self, fd, TRUE, &hello, sizeof hello, G_MAXINT64)
        && transfer (self, fd, TRUE, (void *)own, self->bytes, G_MAXINT64)
        && transfer (self, fd, FALSE, all, (gsize)self->ranks * self->bytes, G_MAXINT64);
  close (fd);
  return ok
         || fail (self,
                  is_over (self)
                      ? "rank 0 does not answer: it waits for others, which it names, or "
                        "was stopped"
                      : "what listens there sent this rank away, or has ended: rank 0 "
                        "says why, unless it belongs to another run",
                  error);
}

static Meeting
meeting_of (const char *meeting, guint rank, guint ranks, guint bytes, guint timeout_s)
{
  return (Meeting){ .meeting = meeting,
                    .rank = rank,
                    .ranks = ranks,
                    .bytes = bytes,
                    .timeout_s = timeout_s,
                    .end_us = timeout_s > 0
                                  ? g_get_monotonic_time () + timeout_s * (gint64)G_USEC_PER_SEC
                                  : G_MAXINT64 };
}

static gboolean
meet (Meeting *self, void *all, const void *own, GError **error)
{
  if (!split (self, error))
    return FALSE;
  if (self->rank > 0)
    return send_and_receive (self, all, own, error);
  memcpy (all, own, self->bytes);
  return receive_and_send (self, all, error);
}

gboolean
exec_rendezvous (const char *meeting, guint rank, guint ranks, void *all, const void *own,
                 guint bytes, guint timeout_s, GError **error)
{
  g_auto (Meeting) self = meeting_of (meeting, rank, ranks, bytes, timeout_s);
  return meet (&self, all, own, error);
}

gboolean
exec_rendezvous_roll (const char *meeting, guint rank, guint ranks, guint8 *is_here,
                      guint timeout_s, GError **error)
{
  g_auto (Meeting) self = meeting_of (meeting, rank, ranks, 1, timeout_s);
  const guint8 here = 1;
  self.is_roll = TRUE;
  memset (is_here, 0, ranks);
  return meet (&self, is_here, &here, error);
}
