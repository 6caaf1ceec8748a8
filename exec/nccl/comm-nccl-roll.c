/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are lost. NCCL says that a call has not ended, or that some connection was closed,
 * and not whose. So the ranks that find this out meet once more in the way in which they met first,
 * and whoever does not come within the timeout is named. Ranks find it out at different times, by a
 * deadline each, at most one timeout apart. */
#include "config.h"

#include "exec/comm/rendezvous.h"
#include "exec/nccl/comm-nccl-private.h"

#define DEFAULT_S 60 /* how long a roll call lasts where the run has no timeout */
#define SHOWN_RANKS 8
#define ALL_ANSWER "all ranks answer: one of them is late, or a GPU or the network stands still"

static void
append_rank (GString *text, const NcclWorld *world, guint rank)
{
  g_string_append_printf (text, "%srank %u", text->len > 0 ? ", " : "", rank);
  if (world->hosts != NULL)
    g_string_append_printf (text, " on %s", world->hosts[rank]);
}

/* "no sign of rank 2 on b, rank 3 on b and 4 more within 20 s". */
static char *
print_missing (const NcclWorld *world, const guint8 *is_here, guint ranks, guint seconds)
{
  g_autoptr (GString) names = g_string_new (NULL);
  guint missing = 0;

  for (guint rank = 0; rank < ranks; rank++)
    if (!is_here[rank] && missing++ < SHOWN_RANKS)
      append_rank (names, world, rank);
  if (missing == 0)
    return g_strdup (ALL_ANSWER);
  if (missing > SHOWN_RANKS)
    g_string_append_printf (names, " and %u more", missing - SHOWN_RANKS);
  return g_strdup_printf ("no sign of %s within %u s", names->str, seconds);
}

static char *
call_at_meeting (const NcclWorld *world, guint ranks, guint seconds)
{
  g_autofree guint8 *is_here = g_new (guint8, ranks);
  g_autoptr (GError) error = NULL;
  g_autoptr (GString) rank_0 = g_string_new (NULL);

  if (exec_rendezvous_roll (world->meeting, world->rank, ranks, is_here, seconds, &error))
    return print_missing (world, is_here, ranks, seconds);
  g_debug ("%s", error->message);
  if (world->rank == 0)
    return NULL;
  append_rank (rank_0, world, 0);
  return g_strdup_printf ("no sign of %s, by which ranks find each other, within %u s", rank_0->str,
                          seconds);
}

static gboolean
has_roll (const ExecComm *carrier)
{
  return carrier != NULL && carrier->ops->roll != NULL;
}

static char *
call_by_carrier (const NcclWorld *world, const ExecPlacement *placement)
{
  ExecComm *carrier = world->carrier;
  g_autoptr (GError) error = NULL;

  carrier->placement = placement;
  if (carrier->ops->roll (carrier, &error))
    return g_strdup (ALL_ANSWER);
  return g_strdup (error->message);
}

char *
exec_comm_nccl_call_roll (const NcclWorld *world, const char *what)
{
  const NcclComm *first = world->comms->pdata[0];
  const guint seconds = first->comm.timeout_s > 0 ? first->comm.timeout_s : DEFAULT_S;

  if (first->comm.ranks < 2 || (world->meeting == NULL && !has_roll (world->carrier)))
    return NULL;
  g_message ("rank %u: %s; asks the others whether they are there, for up to %u s", world->rank,
             what, seconds);
  if (world->carrier != NULL)
    return call_by_carrier (world, first->comm.placement);
  return call_at_meeting (world, first->comm.ranks, seconds);
}
