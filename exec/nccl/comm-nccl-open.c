/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators, from the first meeting of the ranks to the last. Before NCCL is asked, the ranks
 * show each other a card: what would let NCCL hang, such as two ranks on one GPU, becomes an error
 * that names both. */
#include "config.h"

#include "exec/comm/rendezvous.h"
#include "exec/nccl/comm-nccl-try.h"
#include "exec/probe/cores.h"
#include "planner/base/error.h"

#include <string.h>

/* What a rank tells the others of itself, sent as plain bytes. */
typedef struct
{
  ncclUniqueId id; /* all use rank 0's */
  gint32 version;
  char host[64], gpu[32];
} Card;

/* What a rank knows once all have met. */
typedef struct
{
  int device;
  ncclUniqueId id; /* made by rank 0 for all */
  gboolean is_one_host;
  const char *place; /* HOST:PORT where they met if a launcher said it; NULL: they met otherwise */
  char **hosts;      /* of all ranks; NULL: not known */
} Meeting;

static void
meeting_clear (Meeting *self)
{
  g_clear_pointer (&self->hosts, g_strfreev);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Meeting, meeting_clear)

static ncclConfig_t
config_of (const NcclComm *self)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

  config.blocking = 0;
  config.splitShare = 0; /* groups share no resources, so none waits for another */
  if (self->world->options.sms > 0)
    config.maxCTAs = (int)self->world->options.sms;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = self->name;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  if (self->world->options.spares_sms)
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
  return config;
}

/* SMs that gathers take: none where NCCL 2.28 leaves them to copy engines, which it does in
 * symmetric memory within a node (enqueue.cc). */
static guint
gather_sms (const NcclWorld *world)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  if (world->options.spares_sms && world->options.is_registered && world->is_one_host)
    return 0;
#endif
  return world->options.sms;
}

static NcclComm *
comm_new (NcclWorld *world, guint rank, guint ranks, guint stride)
{
  NcclComm *self = g_new0 (NcclComm, 1);

  self->comm = (ExecComm){ .ops = &exec_comm_nccl_ops,
                           .rank = rank,
                           .ranks = ranks,
                           .gpu = (guint)world->device,
                           .sms = world->options.sms,
                           .gather_sms = gather_sms (world),
                           .timeout_s = world->options.timeout_s };
  self->world = world;
  self->stride = stride;
  if (stride == 1)
    g_snprintf (self->name, sizeof self->name, "%u ranks", ranks);
  else
    g_snprintf (self->name, sizeof self->name, "%u ranks, %u apart", ranks, stride);
  g_ptr_array_add (world->comms, self);
  return self;
}

static NcclWorld *
world_new (guint rank, ExecComm *carrier, Meeting *meeting, const ExecNcclOptions *options)
{
  NcclWorld *world = g_new0 (NcclWorld, 1);

  world->device = meeting->device;
  world->is_one_host = meeting->is_one_host;
  world->options = *options;
  world->rank = rank;
  world->carrier = carrier;
  world->meeting = g_strdup (meeting->place);
  world->hosts = g_steal_pointer (&meeting->hosts);
  world->comms = g_ptr_array_new ();
  world->aborted = g_ptr_array_new ();
  world->blocks = g_array_new (FALSE, TRUE, sizeof (NcclBlock));
  world->spare = g_ptr_array_new ();
  g_queue_init (&world->pending);
  g_mutex_init (&world->mutex);
  g_mutex_init (&world->watch_mutex);
  g_cond_init (&world->watch_ends);
  return world;
}

static void
free_pending (gpointer data)
{
  NcclPending *pending = data;

  if (pending->done != NULL)
    cudaEventDestroy (pending->done);
  g_free (pending);
}

static void
world_free (NcclWorld *world)
{
  exec_comm_nccl_end_abort (world);
  exec_comm_nccl_free_blocks (world);
  g_queue_clear_full (&world->pending, free_pending);
  g_ptr_array_set_free_func (world->spare, free_pending);
  g_ptr_array_unref (world->spare);
  if (world->stream != NULL)
    {
      cudaStreamSynchronize (world->stream); /* ends: nothing waits for other ranks now */
      cudaStreamDestroy (world->stream);
    }
  for (guint i = 0; i < G_N_ELEMENTS (world->stage); i++)
    {
      cudaFree (world->stage[i]);
      cudaFreeHost (world->pinned[i]);
    }
  g_array_unref (world->blocks);
  g_ptr_array_unref (world->comms);
  g_ptr_array_unref (world->aborted);
  g_strfreev (world->hosts);
  g_free (world->meeting);
  g_mutex_clear (&world->mutex);
  g_mutex_clear (&world->watch_mutex);
  g_cond_clear (&world->watch_ends);
  g_free (world->reason);
  g_free (world);
}

/* --- closing ------------------------------------------------------------------------------ */

/* Ends a communicator that still works, once all ranks' collectives on it have ended. */
static gboolean
finalize (NcclComm *self, GError **error)
{
  NCCL_TRY (self, ncclCommFinalize (self->handle), error);
  return TRUE;
}

static void
comm_free (NcclComm *self)
{
  g_autoptr (GError) error = NULL;

  exec_comm_nccl_forget_blocks (self);
  if (self->handle != NULL && !finalize (self, &error))
    g_warning ("%s", error->message);
  if (self->handle != NULL && ncclCommDestroy (self->handle) != ncclSuccess)
    g_warning ("NCCL does not close the communicator of %s", self->name);
  g_ptr_array_remove (self->world->comms, self);
  g_free (self);
}

void
exec_comm_nccl_close (ExecComm *comm)
{
  NcclComm *self = (NcclComm *)comm;
  NcclWorld *world = self->world;
  g_autoptr (GError) error = NULL;

  g_mutex_lock (&world->mutex);
  if (!exec_comm_nccl_wait_for_all (self, &error))
    g_debug ("%s", error->message);
  const gboolean is_last = world->comms->pdata[0] == self;
  g_mutex_unlock (&world->mutex);
  exec_comm_close_groups (comm);
  if (is_last)
    exec_comm_nccl_end_watch (world);
  g_mutex_lock (&world->mutex);
  comm_free (self);
  g_mutex_unlock (&world->mutex);
  if (!is_last)
    return;
  if (world->carrier != NULL)
    world->carrier->ops->close (world->carrier);
  world_free (world);
}

/* --- groups ------------------------------------------------------------------------------- */

static gboolean
split (NcclComm *parent, NcclComm *self, guint color, GError **error)
{
  ncclConfig_t config = config_of (self);

  NCCL_TRY (
      parent,
      ncclCommSplit (parent->handle, (int)color, (int)parent->comm.rank, &self->handle, &config),
      error);
  /* The parent is done with the call, and has made the handle, which may still be in progress
   * itself. */
  return exec_comm_nccl_settle (self, ncclInProgress, "ncclCommSplit", error)
         && exec_comm_nccl_register_blocks (self, error);
}

ExecComm *
exec_comm_nccl_group (ExecComm *comm, guint size, guint stride, GError **error)
{
  INSIDE (comm);
  NcclComm *parent = (NcclComm *)comm, *self;

  if (!exec_comm_nccl_is_usable (parent, error))
    return NULL;
  self = comm_new (parent->world, comm->rank / stride % size, size, parent->stride * stride);
  if (split (parent, self, exec_comm_group_of (comm->rank, size, stride), error))
    return &self->comm;
  exec_comm_nccl_end_abort (parent->world); /* until then NCCL may write the new one's handle */
  comm_free (self);
  return NULL;
}

/* --- opening ------------------------------------------------------------------------------ */

static gboolean
check_version (int version, GError **error)
{
  if (version >= NCCL_VERSION_CODE)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "NCCL here is %d.%d.%d, and this program was built with %d.%d.%d: it needs that or "
               "a newer one",
               version / 10000, version / 100 % 100, version % 100, NCCL_VERSION_CODE / 10000,
               NCCL_VERSION_CODE / 100 % 100, NCCL_VERSION_CODE % 100);
  return FALSE;
}

/* Fills in this rank's card. Only rank 0, or a rank that exchanges no cards, makes an id: for an id
 * NCCL listens in a thread of its own, which ends only when all ranks have come. */
static gboolean
fill_card (Card *card, int device, gboolean makes_id, GError **error)
{
  int version = 0;

  memset (card, 0, sizeof *card);
  if (ncclGetVersion (&version) != ncclSuccess
      || (makes_id && ncclGetUniqueId (&card->id) != ncclSuccess))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "NCCL does not start: %s",
                   ncclGetLastError (NULL));
      return FALSE;
    }
  card->version = version;
  g_strlcpy (card->host, g_get_host_name (), sizeof card->host);
  CUDA_TRY (cudaDeviceGetPCIBusId (card->gpu, sizeof card->gpu, device), error);
  return check_version (version, error);
}

static gboolean
cards_agree (const Card *cards, guint ranks, GError **error)
{
  for (guint rank = 1; rank < ranks; rank++)
    {
      if (cards[rank].version != cards[0].version)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                       "rank 0 has NCCL %d and rank %u NCCL %d: all ranks need the same",
                       cards[0].version, rank, cards[rank].version);
          return FALSE;
        }
      for (guint peer = 0; peer < rank; peer++)
        if (strcmp (cards[peer].host, cards[rank].host) == 0
            && strcmp (cards[peer].gpu, cards[rank].gpu) == 0)
          {
            g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                         "ranks %u and %u both use GPU %s of %s: NCCL needs one for each; "
                         "--comm threads does with one",
                         peer, rank, cards[rank].gpu, cards[rank].host);
            return FALSE;
          }
    }
  return TRUE;
}

static gboolean
is_one_host (const Card *cards, guint ranks)
{
  for (guint rank = 1; rank < ranks; rank++)
    if (strcmp (cards[rank].host, cards[0].host) != 0)
      return FALSE;
  return TRUE;
}

static char **
hosts_of (const Card *cards, guint ranks)
{
  char **hosts = g_new0 (char *, ranks + 1);

  for (guint rank = 0; rank < ranks; rank++)
    hosts[rank] = g_strndup (cards[rank].host, sizeof cards[rank].host);
  return hosts;
}

static gboolean
exchange_cards (ExecComm *carrier, Meeting *meeting, GError **error)
{
  g_autofree Card *cards = g_new0 (Card, carrier->ranks);
  Card own;

  if (!fill_card (&own, meeting->device, carrier->rank == 0, error)
      || !carrier->ops->all_gather (carrier, cards, &own, sizeof own, PLAN_DTYPE_U8, NULL, error)
      || !cards_agree (cards, carrier->ranks, error))
    return FALSE;
  meeting->id = cards[0].id;
  meeting->is_one_host = is_one_host (cards, carrier->ranks);
  meeting->hosts = hosts_of (cards, carrier->ranks);
  return TRUE;
}

/* Tells the user if a rank has one core alone. NCCL issues each call that does not wait from a
 * thread that it makes for it (group.cc), and has a proxy thread, while the rank's own thread
 * polls. */
static void
tell_cores (void)
{
  ExecCores cores;

  exec_cores_read (&cores);
  if (exec_cores_count (&cores) < 2)
    g_message (
        "a rank has one core to itself, which NCCL's threads want as well: several are faster "
        "(srun --cpus-per-task 4, mpirun --bind-to none)");
}

/* Pinned memory is allocated before any rank has a collective under way, because that may wait for
 * GPUs, also for those of other ranks of the process. */
static gboolean
open_handle (NcclComm *self, const ncclUniqueId *id, GError **error)
{
  ncclConfig_t config = config_of (self);

  CUDA_TRY (cudaStreamCreateWithFlags (&self->world->stream, cudaStreamNonBlocking), error);
  if (!exec_comm_nccl_take_stage (self->world, error))
    return FALSE;
  if (self->comm.ranks > 1)
    tell_cores ();
  NCCL_TRY (self,
            ncclCommInitRankConfig (&self->handle, (int)self->comm.ranks, *id, (int)self->comm.rank,
                                    &config),
            error);
  return TRUE;
}

static ExecComm *
open_world (guint rank, guint ranks, ExecComm *carrier, Meeting *meeting,
            const ExecNcclOptions *options, GError **error)
{
  NcclWorld *world = world_new (rank, carrier, meeting, options);
  NcclComm *self = comm_new (world, rank, ranks, 1);

  if (open_handle (self, &meeting->id, error))
    {
      if (ranks > 1)
        exec_comm_nccl_begin_watch (world);
      return &self->comm;
    }
  comm_free (self);
  world_free (world);
  return NULL;
}

/* Selects this rank's GPU among those that the process sees: all ranks of the machine see the same
 * GPUs, or each rank its own alone, as by srun --gpus-per-task=1. If two ranks come to use one GPU,
 * cards_agree reports it. */
static gboolean
use_device (guint local_rank, int *out_device, GError **error)
{
  int visible = 1;

  CUDA_TRY (cudaGetDeviceCount (&visible), error);
  *out_device = (int)(local_rank % (guint)MAX (visible, 1));
  CUDA_TRY (cudaSetDevice (*out_device), error);
  return TRUE;
}

/* Has NCCL connect all ranks when a communicator is made. Since 2.22 it does so at the first
 * collective of each kind, which then takes memory that the plan's buffers have by now (its user
 * guide: NCCL_RUNTIME_CONNECT). Set once, before NCCL reads its environment; what the user has set
 * stays. */
static void
connect_at_once (void)
{
  static gsize told;

  if (g_once_init_enter (&told))
    {
      g_setenv ("NCCL_RUNTIME_CONNECT", "0", FALSE);
      g_once_init_leave (&told, 1);
    }
}

ExecComm *
exec_comm_nccl_open (ExecComm *carrier, const ExecNcclOptions *options, GError **error)
{
  g_auto (Meeting) meeting = { 0 };

  connect_at_once ();
  if (!use_device (options->local_rank, &meeting.device, error)
      || !exchange_cards (carrier, &meeting, error))
    return NULL;
  return open_world (carrier->rank, carrier->ranks, carrier, &meeting, options, error);
}

/* Processes of a launcher meet by our own rendezvous. NCCL could let them meet at NCCL_COMM_ID
 * by itself, but uses only an interface in the subnet of that address (bootstrap.cc,
 * ncclFindInterfaceMatchSubnet), and networks with a subnet for each rack or node have none. So
 * NCCL does it only where the user has set that variable; each rank then makes the same id of
 * it. */
static gboolean
meet_launched (const ExecLaunch *launch, guint timeout_s, Meeting *meeting, GError **error)
{
  g_autofree Card *cards = g_new0 (Card, launch->ranks);
  const gboolean meets = launch->meeting != NULL && !launch->is_nccls;
  Card own;

  if (!fill_card (&own, meeting->device, launch->rank == 0 || !meets, error))
    return FALSE;
  cards[0] = own;
  if (meets
      && (!exec_rendezvous (launch->meeting, launch->rank, launch->ranks, cards, &own, sizeof own,
                            timeout_s, error)
          || !cards_agree (cards, launch->ranks, error)))
    return FALSE;
  meeting->id = cards[0].id;
  meeting->is_one_host = launch->ranks == 1 || (meets && is_one_host (cards, launch->ranks));
  if (meets)
    {
      meeting->place = launch->meeting;
      meeting->hosts = hosts_of (cards, launch->ranks);
    }
  return TRUE;
}

ExecComm *
exec_comm_nccl_open_launched (const ExecLaunch *launch, const ExecNcclOptions *options,
                              GError **error)
{
  g_auto (Meeting) meeting = { 0 };

  connect_at_once ();
  if (!use_device (options->local_rank, &meeting.device, error)
      || !meet_launched (launch, options->timeout_s, &meeting, error))
    return NULL;
  return open_world (launch->rank, launch->ranks, NULL, &meeting, options, error);
}
