/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/nccl-fake.h"

#include "tests/fake/cuda-fake.h"
#include "tests/fake/nccl-fake-private.h"
#include "tests/fake/order.h"

#include <string.h>

/* How long NCCL's thread continues a call after an abort. */
#define OWED_US 20000

static GMutex mutex;
static GCond changed;
static GHashTable *meetings; /* id -> Team whose ranks have not all come yet */
static GPtrArray *comms;     /* all communicators that exist */
static guint symmetric, by_copy_engine;
static guint64 buffers; /* bytes that a communicator takes to connect its ranks */
static int processors;  /* the most processors that a communicator may take */
static int version = NCCL_VERSION_CODE;
static struct
{
  gboolean is_set, is_lost;
  guint rank, calls;
  FakeNcclLoss how;
} loss;

/* Of this thread: the calls that it has made in a group that has not ended. */
static _Thread_local guint group_depth;
static _Thread_local struct ncclComm *group_comm;
static _Thread_local GPtrArray *group_aborts; /* of communicators */

void
fake_nccl_reset (void)
{
  g_mutex_lock (&mutex);
  g_clear_pointer (&meetings, g_hash_table_unref);
  symmetric = by_copy_engine = 0;
  buffers = 0;
  processors = 0;
  version = NCCL_VERSION_CODE;
  loss.is_set = loss.is_lost = FALSE;
  g_mutex_unlock (&mutex);
  fake_nccl_forget_memory ();
}

void
fake_nccl_lose (guint rank, guint calls, FakeNcclLoss how)
{
  g_mutex_lock (&mutex);
  loss.is_set = TRUE;
  loss.is_lost = FALSE;
  loss.rank = rank;
  loss.calls = calls;
  loss.how = how;
  g_mutex_unlock (&mutex);
}

void
fake_nccl_set_buffers (guint64 bytes)
{
  buffers = bytes;
}

guint
fake_nccl_owed (void)
{
  guint owed = 0;

  g_mutex_lock (&mutex);
  for (guint i = 0; comms != NULL && i < comms->len; i++)
    {
      const struct ncclComm *comm = comms->pdata[i];

      for (guint c = 0; comm->caller == g_thread_self () && c < comm->calls->len; c++)
        owed += fake_nccl_call_at (comm, c)->out_handle != NULL;
    }
  g_mutex_unlock (&mutex);
  return owed;
}

int
fake_nccl_processors (void)
{
  return processors;
}

/* Notes how many processors the communicator may take; the mutex is held. */
static void
note_limit (const ncclConfig_t *config)
{
  processors = MAX (processors, config->maxCTAs > 0 ? config->maxCTAs : G_MAXINT);
}

void
fake_nccl_set_version (int to)
{
  version = to;
}

guint
fake_nccl_symmetric (void)
{
  return symmetric;
}

guint
fake_nccl_by_copy_engine (void)
{
  return by_copy_engine;
}

static ncclResult_t
misuse (struct ncclComm *comm, const char *text)
{
  g_strlcpy (comm->last, text, sizeof comm->last);
  fake_order_report ("NCCL: %s", text);
  return ncclInvalidUsage;
}

/* --- communicators ------------------------------------------------------------------------ */

static struct ncclComm *
comm_new (Team *team, guint rank, int device, gboolean is_blocking, gboolean spares_sms)
{
  struct ncclComm *comm = g_new0 (struct ncclComm, 1);

  comm->team = team;
  comm->rank = comm->first_rank = rank;
  comm->device = device;
  comm->is_blocking = is_blocking;
  comm->spares_sms = spares_sms;
  comm->calls = g_array_new (FALSE, FALSE, sizeof (Call));
  comm->stalled = g_ptr_array_new ();
  comm->windows = g_ptr_array_new ();
  comm->kept = g_atomic_rc_box_new0 (gint);
  if (comms == NULL)
    comms = g_ptr_array_new ();
  g_ptr_array_add (comms, comm);
  team->members[rank] = comm;
  team->open++;
  fake_order_made (comm, "ncclComm");
  return comm;
}

static void
comm_free (struct ncclComm *comm)
{
  Team *team = comm->team;

  team->here -= comm->is_here;
  team->members[comm->rank] = NULL;
  if (--team->open == 0)
    {
      if (meetings != NULL && g_hash_table_lookup (meetings, team->id) == team)
        g_hash_table_remove (meetings, team->id); /* the rank dies before all others have come */
      g_free (team);
    }
  fake_order_gone (comm, "ncclComm");
  g_ptr_array_remove (comms, comm);
  g_atomic_rc_box_release (comm->kept);
  g_array_unref (comm->calls);
  g_ptr_array_unref (comm->stalled);
  g_ptr_array_unref (comm->windows);
  cudaFree (comm->buffers);
  g_free (comm);
}

/* The next rank of a colour, in the order of keys, then ranks; -1: none is left. */
static int
next_of_colour (const Team *team, int colour, const gboolean *is_placed)
{
  int found = -1;

  for (guint rank = 0; rank < team->ranks; rank++)
    {
      const Call *call = fake_nccl_call_at (team->members[rank], 0);

      if (!is_placed[rank] && call->peer == colour
          && (found < 0 || call->key < fake_nccl_call_at (team->members[found], 0)->key))
        found = (int)rank;
    }
  return found;
}

static void
split (const Team *team)
{
  gboolean is_placed[MAX_RANKS] = { FALSE };

  for (guint first = 0; first < team->ranks; first++)
    {
      const int colour = fake_nccl_call_at (team->members[first], 0)->peer;
      Team *made;
      int rank;

      if (is_placed[first])
        continue;
      made = g_new0 (Team, 1);
      while ((rank = next_of_colour (team, colour, is_placed)) >= 0)
        {
          const struct ncclComm *comm = team->members[rank];
          const Call *call = fake_nccl_call_at (comm, 0);
          struct ncclComm *child
              = comm_new (made, made->ranks++, comm->device, call->is_blocking, call->spares_sms);

          child->first_rank = comm->first_rank;
          *(struct ncclComm **)call->out_handle = child;
          is_placed[rank] = TRUE;
        }
    }
}

/* Carries out the call that all ranks of a party have made; the mutex is held. */
static void
complete (Team *team, Team *party, Kind kind)
{
  gboolean ok = fake_nccl_calls_agree (party);

  if (ok && kind == CALL_INIT)
    ok = fake_nccl_devices_differ (team);
  else if (ok && kind == CALL_SPLIT)
    split (team);
  else if (ok && kind == CALL_WINDOW)
    fake_nccl_make_windows (team);
  else if (ok)
    fake_nccl_carry (party, &symmetric, &by_copy_engine);
  for (guint rank = 0; rank < team->ranks; rank++)
    if (party->members[rank] != NULL)
      {
        team->here--;
        party->members[rank]->is_here = FALSE;
        g_array_set_size (party->members[rank]->calls, 0);
        if (ok)
          party->members[rank]->state = ncclSuccess;
      }
  g_cond_broadcast (&changed);
}

/* Makes a stream stand still until the abort; the mutex is held. */
static void
stall_stream (struct ncclComm *comm, cudaStream_t stream)
{
  if (!g_ptr_array_find (comm->stalled, stream, NULL))
    g_ptr_array_add (comm->stalled, stream);
  fake_order_stall (stream, TRUE);
}

/* Makes the streams of the issued call stand still; the mutex is held. */
static void
stall (struct ncclComm *comm)
{
  g_array_set_size (comm->calls, 0);
  comm->team->here -= comm->is_here;
  comm->is_here = FALSE;
  comm->state = ncclSuccess;
  stall_stream (comm, comm->stream);
}

/* Makes the rank lost: it makes no more calls; the mutex is held. */
static void
lose (const struct ncclComm *comm)
{
  loss.is_lost = TRUE;
  for (guint rank = 0; rank < comm->team->ranks && loss.how == FAKE_NCCL_STALLS; rank++)
    if (comm->team->members[rank]->is_here)
      stall (comm->team->members[rank]);
  g_cond_broadcast (&changed);
}

/* Whether a call fails or waits for ever since a rank is lost; the mutex is held. */
static gboolean
is_lost (struct ncclComm *comm, ncclResult_t *result)
{
  if (loss.is_set && !loss.is_lost && comm->first_rank == loss.rank && loss.calls-- == 0)
    lose (comm);
  if (!loss.is_lost)
    return FALSE;
  if (loss.how == FAKE_NCCL_STALLS && comm->stream != NULL)
    stall (comm);
  else if (loss.how == FAKE_NCCL_CLOSES && comm->first_rank != loss.rank)
    comm->state = ncclRemoteError;
  else if (loss.how == FAKE_NCCL_DIES && comm->first_rank == loss.rank)
    comm->state = ncclSystemError;
  else
    comm->state = ncclInProgress;
  *result = comm->state;
  return TRUE;
}

/* Lets the rank arrive at the calls that it has made on a communicator; the mutex is held. */
static void
arrive (struct ncclComm *comm)
{
  Team party;

  comm->state = ncclInProgress;
  comm->is_here = TRUE;
  fake_order_host_give (comm);
  comm->team->here++;
  if (fake_nccl_find_party (comm, &party))
    complete (comm->team, &party, fake_nccl_call_at (comm, 0)->kind);
}

/* Allocates, once, the memory that connects a rank to the others; the mutex is held. */
static ncclResult_t
connect_ranks (struct ncclComm *comm, gboolean is_collective)
{
  const char *when = g_getenv ("NCCL_RUNTIME_CONNECT");
  const gboolean is_lazy = when == NULL || *when != '0';

  if (buffers == 0 || comm->buffers != NULL || (!is_collective && is_lazy)
      || cudaMalloc (&comm->buffers, buffers) == cudaSuccess)
    return ncclSuccess;
  comm->state = ncclUnhandledCudaError;
  g_strlcpy (comm->last, "Failed to CUDA calloc: out of memory", sizeof comm->last);
  return comm->state;
}

/* --- in graphs ---------------------------------------------------------------------------- */

/* Calls that were captured together into a graph. */
typedef struct
{
  struct ncclComm *comm;
  gint *kept; /* the communicator's count, which outlives it */
  guint n;
  Call calls[];
} Kept;

/* Runs captured calls in a launch: waits for the launches of all ranks, or for ever where the calls
 * do not match, or a rank is lost. */
static cudaError_t
launch_kept (cudaStream_t stream, void *closure)
{
  const Kept *kept = closure;
  struct ncclComm *comm = kept->comm;
  ncclResult_t result;

  g_mutex_lock (&mutex);
  if (comm->state == ncclSuccess)
    {
      g_array_append_vals (comm->calls, kept->calls, kept->n);
      comm->stream = stream;
      if (!is_lost (comm, &result))
        arrive (comm);
      while (comm->state == ncclInProgress && !loss.is_lost)
        g_cond_wait (&changed, &mutex);
    }
  if (comm->state != ncclSuccess)
    stall_stream (comm, stream);
  g_mutex_unlock (&mutex);
  return cudaSuccess;
}

static void
kept_is_gone (void *closure)
{
  const Kept *kept = closure;

  g_atomic_int_add (kept->kept, -1);
  g_atomic_rc_box_release (kept->kept);
}

/* Captures the calls, without meeting other ranks; the mutex is held. */
static ncclResult_t
keep (struct ncclComm *comm)
{
  const gsize bytes = sizeof (Kept) + comm->calls->len * sizeof (Call);
  g_autofree Kept *kept = g_malloc0 (bytes);

  kept->comm = comm;
  kept->kept = g_atomic_rc_box_acquire (comm->kept);
  g_atomic_int_inc (comm->kept);
  comm->keeper = g_thread_self ();
  kept->n = comm->calls->len;
  memcpy (kept->calls, comm->calls->data, comm->calls->len * sizeof (Call));
  fake_order_keep (comm->stream, "nccl", launch_kept, kept, bytes, kept_is_gone);
  g_array_set_size (comm->calls, 0);
  return comm->is_blocking ? ncclSuccess : ncclInProgress;
}

/* Issues or captures the calls that a rank has made on a communicator; the mutex is held. */
static ncclResult_t
submit (struct ncclComm *comm)
{
  const gboolean is_collective = g_array_index (comm->calls, Call, 0).kind >= CALL_ALL_GATHER;
  ncclResult_t result = connect_ranks (comm, is_collective);

  if (result != ncclSuccess)
    return result;
  if (comm->stream != NULL && fake_order_is_captured (comm->stream))
    return keep (comm);
  if (is_lost (comm, &result))
    return result;
  arrive (comm);
  while (comm->is_blocking && comm->state == ncclInProgress)
    g_cond_wait (&changed, &mutex);
  return comm->is_blocking ? comm->state : ncclInProgress;
}

static ncclResult_t
make_call (struct ncclComm *comm, const Call *call, cudaStream_t stream)
{
  ncclResult_t result = ncclInProgress;

  g_mutex_lock (&mutex);
  if (comm->is_finalized)
    result = misuse (comm, "a call on a communicator that is finalized");
  else if (comm->state == ncclInProgress)
    result = misuse (comm, "a call on a communicator while the one before is in progress");
  else if (comm->state != ncclSuccess)
    result = comm->state;
  else if (call->kind >= CALL_SEND && (guint)call->peer >= comm->team->ranks)
    result = misuse (comm, "a transfer with a rank that there is not");
  else if (comm->calls->len > 0 && comm->stream != stream)
    result = misuse (comm, "calls of one group on two streams");
  else if (group_depth > 0 && group_comm != NULL && group_comm != comm)
    result = misuse (comm, "calls of one group on two communicators are not in this fake");
  else
    {
      g_array_append_val (comm->calls, *call);
      comm->stream = stream;
      comm->caller = g_thread_self ();
      if (group_depth > 0)
        group_comm = comm;
      else
        result = submit (comm);
    }
  g_mutex_unlock (&mutex);
  return result;
}

/* --- the end of communicators ------------------------------------------------------------- */

/* Waits until graphs hold no calls of the communicator, or reports that the caller holds one. */
static void
await_graphs (struct ncclComm *comm)
{
  while (g_atomic_int_get (comm->kept) > 0)
    {
      if (comm->keeper == g_thread_self ())
        {
          misuse (comm, "the end of a communicator waits for a graph that has calls of it, which "
                        "its own thread is to destroy");
          return;
        }
      g_usleep (100);
    }
}

/* Reports where freeing memory would wait for ever; the mutex is held. */
static void
check_others (struct ncclComm *comm)
{
  for (guint i = 0; i < comms->len; i++)
    {
      const struct ncclComm *other = comms->pdata[i];

      if (other->device == comm->device && other->stalled->len > 0 && !other->is_aborted)
        misuse (comm, "an abort waits for a collective of another communicator, which is not "
                      "aborted with it");
    }
}

static void
end_abort (struct ncclComm *comm)
{
  g_mutex_lock (&mutex);
  check_others (comm);
  g_mutex_unlock (&mutex);
  await_graphs (comm);
  for (guint i = 0; i < comm->calls->len; i++)
    if (fake_nccl_call_at (comm, i)->out_handle != NULL)
      {
        g_usleep (OWED_US);
        *(void **)fake_nccl_call_at (comm, i)->out_handle = NULL;
      }
  g_mutex_lock (&mutex);
  for (guint i = 0; i < comm->windows->len; i++)
    {
      fake_order_gone (comm->windows->pdata[i], "ncclWindow");
      g_free (comm->windows->pdata[i]);
    }
  comm_free (comm);
  g_mutex_unlock (&mutex);
}

static void
end_aborts (void)
{
  for (guint i = 0; group_aborts != NULL && i < group_aborts->len; i++)
    end_abort (group_aborts->pdata[i]);
  g_clear_pointer (&group_aborts, g_ptr_array_unref);
}

ncclResult_t
ncclGroupStart (void)
{
  group_depth++;
  return ncclSuccess;
}

ncclResult_t
ncclGroupEnd (void)
{
  struct ncclComm *comm = group_comm;
  ncclResult_t result = ncclSuccess;

  if (group_depth == 0)
    return ncclInvalidUsage;
  if (--group_depth > 0)
    return ncclSuccess;
  end_aborts ();
  if (comm == NULL)
    return ncclSuccess;
  group_comm = NULL;
  g_mutex_lock (&mutex);
  result = submit (comm);
  g_mutex_unlock (&mutex);
  return result;
}

/* --- the calls themselves ----------------------------------------------------------------- */

ncclResult_t
ncclGetVersion (int *out)
{
  *out = version;
  return ncclSuccess;
}

const char *
ncclGetLastError (ncclComm_t comm)
{
  return comm != NULL ? comm->last : "";
}

/* As in NCCL: where NCCL_COMM_ID says how ranks meet, all communicators have the same id. */
ncclResult_t
ncclGetUniqueId (ncclUniqueId *id)
{
  static gint made;
  const char *meeting = g_getenv ("NCCL_COMM_ID");

  memset (id, 0, sizeof *id);
  if (meeting != NULL)
    g_strlcpy (id->internal, meeting, sizeof id->internal);
  else
    {
      g_snprintf (id->internal, sizeof id->internal, "made %d", g_atomic_int_add (&made, 1));
      fake_order_log ("NCCL id");
    }
  return ncclSuccess;
}

/* The team of an id whose ranks have not all come yet; the mutex is held. */
static Team *
team_of (const ncclUniqueId *id, guint ranks)
{
  Team *team;

  if (meetings == NULL)
    meetings = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  team = g_hash_table_lookup (meetings, id->internal);
  if (team == NULL)
    {
      team = g_new0 (Team, 1);
      team->ranks = ranks;
      g_strlcpy (team->id, id->internal, sizeof team->id);
      g_hash_table_insert (meetings, g_strdup (id->internal), team);
    }
  return team;
}

ncclResult_t
ncclCommInitRankConfig (ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
  const Call call = { .kind = CALL_INIT, .count = (size_t)ranks };
  ncclResult_t result = ncclInvalidArgument;
  int device;
  char bus[32]; /* tells devices apart */
  Team *team;

  if (cudaGetDevice (&device) != cudaSuccess
      || cudaDeviceGetPCIBusId (bus, sizeof bus, device) != cudaSuccess)
    return ncclUnhandledCudaError;
  device = (int)g_ascii_strtoll (bus + strlen ("0000:"), NULL, 16);
  if (ranks <= 0 || ranks > MAX_RANKS || rank < 0 || rank >= ranks || config->magic != 0xcafebeef)
    return ncclInvalidArgument;
  g_mutex_lock (&mutex);
  note_limit (config);
  team = team_of (&id, (guint)ranks);
  if (team->ranks == (guint)ranks && team->members[rank] == NULL)
    {
      *out = comm_new (team, (guint)rank, device, config->blocking != 0,
                       config->CTAPolicy == NCCL_CTA_POLICY_ZERO);
      g_array_append_val ((*out)->calls, call);
      if (team->open == team->ranks)
        g_hash_table_remove (meetings, id.internal);
      result = submit (*out);
    }
  g_mutex_unlock (&mutex);
  return result;
}

/* The result of a call that returns before its end, as splits and windows do. */
static ncclResult_t
unsaid (ncclResult_t result)
{
  return result == ncclInProgress ? ncclSuccess : result;
}

ncclResult_t
ncclCommSplit (ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
  const Call call = { .kind = CALL_SPLIT,
                      .peer = color,
                      .key = key,
                      .out_handle = out,
                      .is_blocking = config->blocking != 0,
                      .spares_sms = config->CTAPolicy == NCCL_CTA_POLICY_ZERO };

  g_mutex_lock (&mutex);
  note_limit (config);
  g_mutex_unlock (&mutex);
  *out = NULL;
  return unsaid (make_call (comm, &call, NULL));
}

ncclResult_t
ncclCommGetAsyncError (ncclComm_t comm, ncclResult_t *state)
{
  g_mutex_lock (&mutex);
  if (loss.is_lost && loss.how == FAKE_NCCL_CLOSES && comm->first_rank != loss.rank)
    comm->state = ncclRemoteError;
  if (comm->state == ncclSuccess)
    connect_ranks (comm, FALSE); /* each rank connects a communicator made by a split for itself */
  *state = comm->state;
  if (comm->is_finalized && comm->state == ncclInProgress && g_atomic_int_get (comm->kept) == 0)
    comm->state = ncclSuccess;
  g_mutex_unlock (&mutex);
  return ncclSuccess;
}

/* Answers at least once that it is in progress. */
ncclResult_t
ncclCommFinalize (ncclComm_t comm)
{
  ncclResult_t state;

  g_mutex_lock (&mutex);
  if (comm->is_finalized)
    misuse (comm, "a communicator is finalized twice");
  else if (group_depth > 0)
    misuse (comm, "a communicator is finalized in a group of calls that is not ended");
  else if (comm->state == ncclInProgress)
    misuse (comm, "a communicator is finalized while a call is in progress");
  else if (comm->state == ncclSuccess)
    {
      comm->is_finalized = TRUE;
      comm->state = ncclInProgress;
    }
  state = comm->state;
  g_mutex_unlock (&mutex);
  return state;
}

ncclResult_t
ncclCommDestroy (ncclComm_t comm)
{
  g_mutex_lock (&mutex);
  if (comm->windows->len > 0)
    misuse (comm, "a communicator is destroyed before its windows");
  if (comm->state == ncclInProgress)
    misuse (comm, "a communicator is destroyed while a call is in progress");
  g_mutex_unlock (&mutex);
  await_graphs (comm);
  g_mutex_lock (&mutex);
  comm_free (comm);
  g_mutex_unlock (&mutex);
  return ncclSuccess;
}

/* Aborts: the communicator's kernels end at once. */
ncclResult_t
ncclCommAbort (ncclComm_t comm)
{
  g_mutex_lock (&mutex);
  for (guint i = 0; i < comm->stalled->len; i++)
    fake_order_stall (comm->stalled->pdata[i], FALSE);
  comm->is_aborted = TRUE;
  g_mutex_unlock (&mutex);
  if (group_aborts == NULL)
    group_aborts = g_ptr_array_new ();
  g_ptr_array_add (group_aborts, comm);
  if (group_depth == 0)
    end_aborts ();
  return ncclSuccess;
}

ncclResult_t
ncclCommRegister (const ncclComm_t comm, void *at, size_t bytes, void **out)
{
  Window *window = g_new (Window, 1);

  *window = (Window){ at, bytes, FALSE };
  *out = window;
  g_ptr_array_add (comm->windows, window);
  fake_order_made (window, "ncclCommRegister");
  return ncclSuccess;
}

static ncclResult_t
forget_window (ncclComm_t comm, void *window, const char *kind)
{
  if (!g_ptr_array_remove (comm->windows, window))
    return misuse (comm, "a window or registration of another communicator, or gone already");
  fake_order_gone (window, kind);
  g_free (window);
  return ncclSuccess;
}

ncclResult_t
ncclCommDeregister (const ncclComm_t comm, void *handle)
{
  return forget_window (comm, handle, "ncclCommRegister");
}

ncclResult_t
ncclCommWindowRegister (ncclComm_t comm, void *at, size_t bytes, ncclWindow_t *out, int flags)
{
  const Call call = {
    .kind = CALL_WINDOW, .out = at, .count = bytes, .op = (ncclRedOp_t)flags, .out_handle = out
  };

  *out = NULL;
  if (!fake_nccl_is_taken (at, bytes))
    return misuse (comm, "a window that is not of ncclMemAlloc's memory");
  return unsaid (make_call (comm, &call, NULL));
}

ncclResult_t
ncclCommWindowDeregister (ncclComm_t comm, ncclWindow_t window)
{
  return forget_window (comm, window, "ncclWindow");
}

ncclResult_t
ncclAllGather (const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
               cudaStream_t stream)
{
  const Call call = { .kind = CALL_ALL_GATHER, .in = in, .out = out, .count = count, .type = type };

  return make_call (comm, &call, stream);
}

ncclResult_t
ncclReduceScatter (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                   ncclComm_t comm, cudaStream_t stream)
{
  const Call call = {
    .kind = CALL_REDUCE_SCATTER, .in = in, .out = out, .count = count, .type = type, .op = op
  };

  return op == ncclSum ? make_call (comm, &call, stream) : ncclInvalidArgument;
}

ncclResult_t
ncclAllReduce (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
               ncclComm_t comm, cudaStream_t stream)
{
  const Call call
      = { .kind = CALL_ALL_REDUCE, .in = in, .out = out, .count = count, .type = type, .op = op };

  return op == ncclSum || op == ncclMax ? make_call (comm, &call, stream) : ncclInvalidArgument;
}

ncclResult_t
ncclSend (const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
          cudaStream_t stream)
{
  const Call call = { .kind = CALL_SEND, .in = in, .count = count, .type = type, .peer = peer };

  return make_call (comm, &call, stream);
}

ncclResult_t
ncclRecv (void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
          cudaStream_t stream)
{
  const Call call = { .kind = CALL_RECV, .out = out, .count = count, .type = type, .peer = peer };

  return make_call (comm, &call, stream);
}
