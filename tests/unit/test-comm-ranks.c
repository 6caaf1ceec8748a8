/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/test-comm-ranks.h"

#include "exec/number/number.h"

#include <arpa/inet.h>
#include <check.h>
#include <math.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

guint64
rank_bytes (const Rank *self, guint64 count)
{
  return plan_dtype_bytes (self->dtype, count);
}

void
rank_init (Rank *self, GRand *rand, ExecComm *comm, PlanDtype dtype, guint64 count,
           gboolean is_exact)
{
  guint64 all = comm->ranks * count;
  g_autofree float *values = g_new (float, all + 1);

  *self = (Rank){ .comm = comm, .dtype = dtype, .count = count };
  for (guint64 i = 0; i < all; i++)
    values[i]
        = is_exact
              ? (float)g_rand_int_range (rand, -16, 17)
              : (float)(g_rand_double_range (rand, -1, 1) * (1 << g_rand_int_range (rand, 0, 20)));
  self->in = g_malloc (rank_bytes (self, all) + 1);
  exec_number_narrow (self->in, dtype, values, all);
  self->gathered = g_malloc0 (rank_bytes (self, all) + 1);
  self->gathered_in_place = g_malloc0 (rank_bytes (self, all) + 1);
  self->scattered = g_malloc0 (rank_bytes (self, count) + 1);
  self->scattered_in_place = g_malloc (rank_bytes (self, all) + 1);
  self->reduced = g_malloc (rank_bytes (self, all) + 1);
  self->exchanged = g_malloc0 (rank_bytes (self, all) + 1);
  self->largest = g_malloc0 (rank_bytes (self, all) + 1);
  self->passed = g_malloc0 (rank_bytes (self, all) + 1);
  self->traded = g_malloc0 (2 * rank_bytes (self, count) + 1);
}

void
rank_clear (Rank *self)
{
  g_free (self->in);
  g_free (self->gathered);
  g_free (self->gathered_in_place);
  g_free (self->scattered);
  g_free (self->scattered_in_place);
  g_free (self->reduced);
  g_free (self->exchanged);
  g_free (self->largest);
  g_free (self->passed);
  g_free (self->traded);
  g_clear_error (&self->error);
}

void
rank_prepare (Rank *self)
{
  const guint64 all = rank_bytes (self, self->comm->ranks * self->count);
  const guint64 bytes = rank_bytes (self, self->count);
  memset (self->gathered_in_place, 0, all);
  memcpy (self->gathered_in_place + self->comm->rank * bytes, self->in, bytes);
  memcpy (self->scattered_in_place, self->in, all);
  memcpy (self->reduced, self->in, all);
  memcpy (self->largest, self->in, all);
}

gboolean
rank_pass_all (Rank *self, guint8 *passed, const guint8 *in, void *stream)
{
  ExecComm *comm = self->comm;
  gboolean ok = TRUE;

  for (guint far = 1; far <= MAX (comm->ranks - 1, 1) && ok; far++)
    ok = comm->ops->exchange (comm, passed + rank_bytes (self, (far - 1) * self->count), in,
                              self->count, self->dtype, far, stream, &self->error);
  return ok;
}

gboolean
rank_trade_all (Rank *self, guint8 *traded, const guint8 *in, void *stream)
{
  ExecComm *comm = self->comm;
  guint8 *second = traded + rank_bytes (self, self->count);
  gboolean ok = TRUE;

  for (guint round = 0; round < 3 && ok; round++)
    {
      const gboolean down = round < 2;
      const gboolean up = round > 0;

      if (comm->rank > 0)
        ok = comm->ops->trade (comm, down ? traded : NULL, up ? in : NULL, self->count, self->dtype,
                               comm->rank - 1, stream, &self->error);
      if (comm->rank + 1 < comm->ranks && ok)
        ok = comm->ops->trade (comm, up ? second : NULL, down ? in : NULL, self->count, self->dtype,
                               comm->rank + 1, stream, &self->error);
    }
  return ok;
}

gboolean
rank_call_all (Rank *self)
{
  ExecComm *comm = self->comm;
  const ExecCommOps *ops = comm->ops;
  const PlanDtype dtype = self->dtype;
  const guint64 count = self->count, all = comm->ranks * count;
  const guint64 own = comm->rank * rank_bytes (self, count);
  guint8 *gathered = self->gathered_in_place, *scattered = self->scattered_in_place;
  GError **error = &self->error;

  rank_prepare (self);
  return ops->all_gather (comm, self->gathered, self->in, count, dtype, NULL, error)
         && ops->all_gather (comm, gathered, gathered + own, count, dtype, NULL, error)
         && ops->reduce_scatter (comm, self->scattered, self->in, count, dtype, NULL, error)
         && ops->reduce_scatter (comm, scattered + own, scattered, count, dtype, NULL, error)
         && ops->all_reduce (comm, self->reduced, all, dtype, NULL, error)
         && ops->all_reduce_max (comm, self->largest, all, dtype, NULL, error)
         && ops->all_to_all (comm, self->exchanged, self->in, count, dtype, NULL, error)
         && rank_pass_all (self, self->passed, self->in, NULL)
         && rank_trade_all (self, self->traded, self->in, NULL) && ops->barrier (comm, error);
}

void
run_ranks (GThreadFunc function, Rank *ranks, guint n)
{
  GThread *threads[MAX_RANKS];

  for (guint i = 0; i < n; i++)
    threads[i] = g_thread_new ("rank", function, &ranks[i]);
  for (guint i = 0; i < n; i++)
    g_thread_join (threads[i]);
}

void
slow_sum (const Rank *ranks, guint n, guint64 i, void *out)
{
  float sum = 0;

  for (guint rank = 0; rank < n; rank++)
    {
      float term;

      exec_number_widen (&term, ranks[rank].in + rank_bytes (ranks, i), ranks->dtype, 1);
      sum = rank == 0 ? term : sum + term;
    }
  exec_number_narrow (out, ranks->dtype, &sum, 1);
}

void
slow_max (const Rank *ranks, guint n, guint64 i, void *out)
{
  float max = -INFINITY;

  for (guint rank = 0; rank < n; rank++)
    {
      float term;

      exec_number_widen (&term, ranks[rank].in + rank_bytes (ranks, i), ranks->dtype, 1);
      max = fmaxf (max, term);
    }
  exec_number_narrow (out, ranks->dtype, &max, 1);
}

void
check_ranks (const Rank *ranks, guint n)
{
  guint64 count = ranks->count, size = rank_bytes (ranks, 1);

  for (guint rank = 0; rank < n; rank++)
    {
      const Rank *self = &ranks[rank];

      ck_assert_msg (self->error == NULL, "%s", self->error != NULL ? self->error->message : "");
      for (guint far = 1; far <= MAX (n - 1, 1); far++)
        ck_assert (memcmp (self->passed + (far - 1) * count * size,
                           ranks[(rank + n - far % n) % n].in, count * size)
                   == 0);
      ck_assert (rank == 0 || memcmp (self->traded, ranks[rank - 1].in, count * size) == 0);
      ck_assert (rank + 1 == n
                 || memcmp (self->traded + count * size, ranks[rank + 1].in, count * size) == 0);
      for (guint peer = 0; peer < n; peer++)
        {
          ck_assert (memcmp (self->gathered + peer * count * size, ranks[peer].in, count * size)
                     == 0);
          ck_assert (
              memcmp (self->gathered_in_place + peer * count * size, ranks[peer].in, count * size)
              == 0);
          ck_assert (memcmp (self->exchanged + peer * count * size,
                             ranks[peer].in + rank * count * size, count * size)
                     == 0);
        }
      for (guint64 i = 0; i < n * count; i++)
        {
          guint8 sum[8], max[8];
          guint64 own = i - rank * count;

          slow_sum (ranks, n, i, sum);
          ck_assert_mem_eq (self->reduced + i * size, sum, size);
          slow_max (ranks, n, i, max);
          ck_assert_mem_eq (self->largest + i * size, max, size);
          if (i / count != rank)
            continue;
          ck_assert_mem_eq (self->scattered + own * size, sum, size);
          ck_assert_mem_eq (self->scattered_in_place + i * size, sum, size);
        }
    }
}

const struct TestSplit splits[N_SPLITS] = { { 2, 1 }, { 2, 2 }, { 2, 4 }, { 4, 1 }, { 4, 2 } };

void
check_groups (const Rank *ranks, guint n, guint split)
{
  const guint size = splits[split].size, stride = splits[split].stride;
  Rank members[MAX_RANKS];

  for (guint first = 0; first < n; first++)
    {
      guint found = 0;

      if (first / stride % size != 0)
        continue;
      for (guint i = first; found < size; i += stride)
        {
          ck_assert_msg (ranks[i].error == NULL, "%s",
                         ranks[i].error != NULL ? ranks[i].error->message : "");
          ck_assert_uint_eq (ranks[i].comm->rank, found);
          ck_assert_uint_eq (ranks[i].comm->ranks, size);
          ck_assert_uint_eq (exec_comm_group_of (i, size, stride),
                             exec_comm_group_of (first, size, stride));
          members[found++] = ranks[i];
        }
      check_ranks (members, size);
    }
}

char *
test_free_meeting (void)
{
  struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl (INADDR_LOOPBACK) };
  socklen_t length = sizeof at;
  const int fd = socket (AF_INET, SOCK_STREAM, 0);

  ck_assert_int_eq (bind (fd, (struct sockaddr *)&at, sizeof at), 0);
  ck_assert_int_eq (getsockname (fd, (struct sockaddr *)&at, &length), 0);
  close (fd);
  return g_strdup_printf ("127.0.0.1:%u", ntohs (at.sin_port));
}
