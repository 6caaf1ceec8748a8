/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/number/number.h"
#include "tests/fake/nccl-fake-private.h"
#include "tests/fake/order.h"

#include <math.h>
#include <string.h>

static const char *const kind_names[]
    = { "nothing",       "ncclCommInitRankConfig", "ncclCommSplit", "ncclCommWindowRegister",
        "ncclAllGather", "ncclReduceScatter",      "ncclAllReduce", "ncclSend",
        "ncclRecv" };

static const PlanDtype dtypes[] = {
  [ncclInt8] = PLAN_DTYPE_U8,      [ncclUint8] = PLAN_DTYPE_U8,     [ncclInt32] = PLAN_DTYPE_I32,
  [ncclUint32] = PLAN_DTYPE_I32,   [ncclInt64] = PLAN_DTYPE_I64,    [ncclUint64] = PLAN_DTYPE_I64,
  [ncclFloat16] = PLAN_DTYPE_FP16, [ncclFloat32] = PLAN_DTYPE_FP32, [ncclBfloat16] = PLAN_DTYPE_BF16
};

static size_t
bytes_of (const Call *call, size_t count)
{
  return (size_t)plan_dtype_bytes (dtypes[call->type], count);
}

/* --- errors ------------------------------------------------------------------------------- */

void
fake_nccl_refuse (Team *team, const char *format, ...)
{
  va_list args;

  va_start (args, format);
  g_autofree char *text = g_strdup_vprintf (format, args);
  va_end (args);
  for (guint rank = 0; rank < team->ranks; rank++)
    if (team->members[rank] != NULL)
      {
        team->members[rank]->state = ncclInvalidUsage;
        g_strlcpy (team->members[rank]->last, text, sizeof team->members[rank]->last);
      }
}

static char *
describe (const Call *call)
{
  switch (call->kind)
    {
    case CALL_SEND:
    case CALL_RECV:
      return g_strdup_printf ("%s %s %d of %zu of type %d", kind_names[call->kind],
                              call->kind == CALL_SEND ? "to" : "from", call->peer, call->count,
                              (int)call->type);
    case CALL_WINDOW:
      return g_strdup_printf ("%s of %zu bytes", kind_names[call->kind], call->count);
    case CALL_ALL_GATHER:
    case CALL_REDUCE_SCATTER:
    case CALL_ALL_REDUCE:
      return g_strdup_printf ("%s of %zu of type %d, operation %d", kind_names[call->kind],
                              call->count, (int)call->type, (int)call->op);
    default:
      return g_strdup (kind_names[call->kind]);
    }
}

static gboolean
is_transfer (const Call *call)
{
  return call->kind == CALL_SEND || call->kind == CALL_RECV;
}

const Call *
fake_nccl_call_at (const struct ncclComm *comm, guint i)
{
  return i < comm->calls->len ? &g_array_index (comm->calls, Call, i) : NULL;
}

/* The n-th transfer of a kind with a peer; NULL if there is none, or `comm` is NULL. */
static const Call *
transfer (const struct ncclComm *comm, Kind kind, guint peer, guint n)
{
  for (guint i = 0; comm != NULL && i < comm->calls->len; i++)
    {
      const Call *call = fake_nccl_call_at (comm, i);

      if (call->kind == kind && call->peer == (int)peer && n-- == 0)
        return call;
    }
  return NULL;
}

static guint
first_of (const Team *team)
{
  guint rank = 0;

  while (team->members[rank] == NULL)
    rank++;
  return rank;
}

static gboolean
add_peers (const struct ncclComm *comm, Team *party)
{
  const Team *team = comm->team;
  gboolean are_here = comm->is_here;

  party->members[comm->rank] = team->members[comm->rank];
  for (guint i = 0; are_here && i < comm->calls->len; i++)
    {
      const Call *call = fake_nccl_call_at (comm, i);

      if (is_transfer (call) && party->members[call->peer] == NULL)
        are_here
            = team->members[call->peer] != NULL && add_peers (team->members[call->peer], party);
    }
  return are_here;
}

gboolean
fake_nccl_find_party (const struct ncclComm *comm, Team *out_party)
{
  const Team *team = comm->team;

  *out_party = (Team){ .ranks = team->ranks };
  if (is_transfer (fake_nccl_call_at (comm, 0)))
    return add_peers (comm, out_party);
  memcpy (out_party->members, team->members, sizeof team->members);
  return team->here == team->ranks;
}

static gboolean
refuse_pair (Team *team, guint one, const Call *first, guint other, const Call *second)
{
  const Call none = { .kind = CALL_NONE };
  g_autofree char *one_text = describe (first != NULL ? first : &none);
  g_autofree char *other_text = describe (second != NULL ? second : &none);

  fake_nccl_refuse (team, "rank %u calls %s, rank %u calls %s", one, one_text, other, other_text);
  return FALSE;
}

/* Checks that what a rank sends to another one is received there. */
static gboolean
transfers_agree (Team *team)
{
  for (guint from = 0; from < team->ranks; from++)
    for (guint to = 0; to < team->ranks; to++)
      for (guint n = 0;; n++)
        {
          const Call *sent = transfer (team->members[from], CALL_SEND, to, n);
          const Call *received = transfer (team->members[to], CALL_RECV, from, n);

          if (sent == NULL && received == NULL)
            break;
          if (sent == NULL || received == NULL || sent->count != received->count
              || sent->type != received->type)
            return refuse_pair (team, from, sent, to, received);
        }
  return TRUE;
}

static gboolean
is_no_collective (const Call *call)
{
  return call == NULL || is_transfer (call);
}

gboolean
fake_nccl_calls_agree (Team *team)
{
  const guint one = first_of (team);

  for (guint rank = one + 1; rank < team->ranks; rank++)
    for (guint i = 0; team->members[rank] != NULL
                      && i < MAX (team->members[one]->calls->len, team->members[rank]->calls->len);
         i++)
      {
        const Call *first = fake_nccl_call_at (team->members[one], i),
                   *call = fake_nccl_call_at (team->members[rank], i);

        if (is_no_collective (first) && is_no_collective (call))
          continue;
        if (first == NULL || call == NULL || first->kind != call->kind
            || first->count != call->count || first->type != call->type || first->op != call->op)
          return refuse_pair (team, one, first, rank, call);
      }
  return transfers_agree (team);
}

/* --- what a call does --------------------------------------------------------------------- */

static const Window *
window_of (const struct ncclComm *comm, const guint8 *at, size_t bytes)
{
  for (guint i = 0; i < comm->windows->len; i++)
    {
      const Window *window = comm->windows->pdata[i];

      if (at >= window->at && at + bytes <= window->at + window->bytes)
        return window;
    }
  return NULL;
}

/* The number of elements that a rank passes to a call, and that it gets. */
static void
sizes_of (const struct ncclComm *comm, const Call *call, size_t *in, size_t *out)
{
  const guint ranks = comm->team->ranks;

  *in = call->kind == CALL_RECV             ? 0
        : call->kind == CALL_REDUCE_SCATTER ? call->count * ranks
                                            : call->count;
  *out = call->kind == CALL_SEND         ? 0
         : call->kind == CALL_ALL_GATHER ? call->count * ranks
                                         : call->count;
}

static gboolean
is_symmetric (const struct ncclComm *comm, const Call *call)
{
  size_t in, out;
  const Window *from, *to;

  sizes_of (comm, call, &in, &out);
  from = window_of (comm, call->in, bytes_of (call, in));
  to = window_of (comm, call->out, bytes_of (call, out));
  return from != NULL && from->is_symmetric && to != NULL && to->is_symmetric;
}

/* Whether the call's buffers lie in windows of every rank, at the same place in each. */
static gboolean
all_symmetric (const Team *team, guint i)
{
  for (guint rank = 0; rank < team->ranks; rank++)
    if (is_transfer (fake_nccl_call_at (team->members[rank], i))
        || !is_symmetric (team->members[rank], fake_nccl_call_at (team->members[rank], i)))
      return FALSE;
  return TRUE;
}

/* Computes element `i` of the sum over ranks; nccl-fake.h says in which order. */
static void
add_up (const Team *team, guint8 *const *in, guint owner, const Call *call, size_t i, gboolean wide,
        void *out)
{
  const PlanDtype dtype = dtypes[call->type];
  float sum = 0;

  for (guint n = 0; n < team->ranks; n++)
    {
      const guint rank = wide ? team->ranks - 1 - n : (owner + 1 + n) % team->ranks;
      float term;

      exec_number_widen (&term, in[rank] + bytes_of (call, i), dtype, 1);
      sum = n == 0 ? term : sum + term;
      if (!wide)
        {
          guint8 hop[8];

          exec_number_narrow (hop, dtype, &sum, 1);
          exec_number_widen (&sum, hop, dtype, 1);
        }
    }
  exec_number_narrow (out, dtype, &sum, 1);
}

/* Computes element `i` of the maximum over ranks, which drops NaNs as fmaxf does. */
static void
find_largest (const Team *team, guint8 *const *in, const Call *call, size_t i, void *out)
{
  float max = -INFINITY;

  for (guint rank = 0; rank < team->ranks; rank++)
    {
      float term;

      exec_number_widen (&term, in[rank] + bytes_of (call, i), dtypes[call->type], 1);
      max = rank == 0 ? term : fmaxf (max, term);
    }
  exec_number_narrow (out, dtypes[call->type], &max, 1);
}

/* Computes element `at` of what a rank gets from a reduction. */
static void
reduce (const Team *team, guint8 *const *in, guint rank, const Call *call, size_t at, gboolean wide)
{
  const gboolean scatters = call->kind == CALL_REDUCE_SCATTER;
  guint8 *out = call->out + bytes_of (call, at);

  if (call->op == ncclMax)
    find_largest (team, in, call, at, out);
  else
    add_up (team, in, scatters ? rank : (guint)(at % team->ranks), call,
            scatters ? rank * call->count + at : at, wide, out);
}

/* Carries out one collective, from copies of the ranks' operands. */
static void
carry (const Team *team, guint i, guint8 *const *in, gboolean wide)
{
  for (guint rank = 0; rank < team->ranks; rank++)
    {
      const Call *call = fake_nccl_call_at (team->members[rank], i);
      const size_t bytes = bytes_of (call, call->count);

      if (call->kind == CALL_ALL_GATHER)
        for (guint peer = 0; peer < team->ranks; peer++)
          memcpy (call->out + peer * bytes, in[peer], bytes);
      else
        for (size_t at = 0; at < call->count; at++)
          reduce (team, in, rank, call, at, wide);
    }
}

/* Orders receivers behind senders. Senders are not ordered behind receivers, since NCCL's buffers
 * (NCCL_BUFFSIZE) hold what has been sent and not received. */
static void
order_transfers (const Team *team)
{
  cudaStream_t from[MAX_RANKS * MAX_RANKS], to[MAX_RANKS * MAX_RANKS];
  guint n = 0;

  for (guint rank = 0; rank < team->ranks; rank++)
    for (guint peer = 0; peer < team->ranks; peer++)
      if (transfer (team->members[rank], CALL_SEND, peer, 0) != NULL)
        {
          from[n] = team->members[rank]->stream;
          to[n++] = team->members[peer]->stream;
        }
  fake_order_pass (from, to, n);
}

static void
carry_transfers (const Team *team)
{
  for (guint from = 0; from < team->ranks; from++)
    for (guint to = 0; to < team->ranks; to++)
      {
        const Call *sent;

        for (guint n = 0; (sent = transfer (team->members[from], CALL_SEND, to, n)) != NULL; n++)
          memcpy (transfer (team->members[to], CALL_RECV, from, n)->out, sent->in,
                  bytes_of (sent, sent->count));
      }
}

/* Declares the memory that a rank's call uses, and copies its operands. FALSE where that memory is
 * not there. */
static gboolean
use (const struct ncclComm *comm, const Call *call, guint8 **copy)
{
  size_t in, out;
  gboolean is_there;

  sizes_of (comm, call, &in, &out);
  is_there = (in == 0 || fake_order_read (comm->stream, call->in, bytes_of (call, in)))
             && (out == 0 || fake_order_write (comm->stream, call->out, bytes_of (call, out)));
  if (is_there && !is_transfer (call))
    *copy = g_memdup2 (call->in, MAX (bytes_of (call, in), 1));
  return is_there;
}

/* Declares and copies for the i-th calls of all ranks, which are collectives. */
static gboolean
use_all (const Team *team, guint i, guint8 **copies)
{
  gboolean ok = TRUE;

  for (guint rank = 0; rank < team->ranks; rank++)
    if (team->members[rank] != NULL && i < team->members[rank]->calls->len)
      ok &= use (team->members[rank], fake_nccl_call_at (team->members[rank], i), &copies[rank]);
  return ok;
}

void
fake_nccl_carry (const Team *team, guint *symmetric, guint *by_copy_engine)
{
  const struct ncclComm *first = team->members[first_of (team)];
  cudaStream_t streams[MAX_RANKS];
  guint most = 0, n = 0;

  for (guint rank = 0; rank < team->ranks; rank++)
    {
      const struct ncclComm *comm = team->members[rank];

      if (comm == NULL)
        continue;
      fake_order_host_take (comm);
      streams[n++] = comm->stream;
      fake_order_begin (comm->stream, kind_names[fake_nccl_call_at (comm, 0)->kind]);
      most = MAX (most, comm->calls->len);
    }
  for (guint i = 0; i < most; i++)
    {
      guint8 *copies[MAX_RANKS] = { NULL };
      const Call *call = fake_nccl_call_at (first, i);

      if (use_all (team, i, copies) && !is_no_collective (call))
        {
          const gboolean wide = all_symmetric (team, i);

          carry (team, i, copies, wide);
          *symmetric += wide;
          *by_copy_engine += wide && call->kind == CALL_ALL_GATHER && first->spares_sms;
        }
      for (guint rank = 0; rank < team->ranks; rank++)
        g_free (copies[rank]);
    }
  if (is_transfer (fake_nccl_call_at (first, 0)))
    order_transfers (team);
  else
    fake_order_meet (streams, n);
  carry_transfers (team);
  while (n-- > 0)
    fake_order_end (streams[n]);
}

void
fake_nccl_make_windows (const Team *team)
{
  for (guint rank = 0; rank < team->ranks; rank++)
    {
      const Call *call = fake_nccl_call_at (team->members[rank], 0);
      Window *window = g_new (Window, 1);

      *window = (Window){ call->out, call->count, (int)call->op != NCCL_WIN_DEFAULT };
      g_ptr_array_add (team->members[rank]->windows, window);
      fake_order_made (window, "ncclWindow");
      *(Window **)call->out_handle = window;
    }
}

gboolean
fake_nccl_devices_differ (Team *team)
{
  for (guint rank = 0; rank < team->ranks; rank++)
    for (guint peer = 0; peer < rank; peer++)
      if (team->members[peer]->device == team->members[rank]->device)
        {
          fake_nccl_refuse (team,
                            "Duplicate GPU detected : rank %u and rank %u both on CUDA device %d",
                            peer, rank, team->members[rank]->device);
          return FALSE;
        }
  return TRUE;
}
