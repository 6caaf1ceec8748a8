/* The fake NCCL, as its files share it: nccl-fake.c is where ranks meet, nccl-fake-carry.c what a
 * call does once they have, nccl-fake-memory.c where windows lie. The mutex is held in all of this.
 */
#pragma once
#include "tests/fake/include/nccl.h"
#include <glib.h>
G_BEGIN_DECLS

#define MAX_RANKS 64

typedef enum
{
  CALL_NONE,
  CALL_INIT,
  CALL_SPLIT,
  CALL_WINDOW,
  CALL_ALL_GATHER,
  CALL_REDUCE_SCATTER,
  CALL_ALL_REDUCE,
  CALL_SEND,
  CALL_RECV
} Kind;

/* One call, or one of a group of them. */
typedef struct
{
  Kind kind;
  const guint8 *in;
  guint8 *out;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;                         /* the other end; of a split the colour */
  int key;                          /* of a split */
  void *out_handle;                 /* where a split or a window is put */
  gboolean is_blocking, spares_sms; /* of what a split makes */
} Call;

/* What the ranks of a communicator share. */
typedef struct
{
  guint ranks, here, open; /* here: that made the call; open: that have not closed */
  struct ncclComm *members[MAX_RANKS];
  char id[NCCL_UNIQUE_ID_BYTES]; /* by which they meet; empty: of a split */
} Team;

struct ncclComm
{
  Team *team;
  guint rank, first_rank; /* in this communicator; in the first one of its line of splits */
  int device;
  gboolean is_blocking, spares_sms, is_here;
  gboolean is_finalized, is_aborted;
  gint *kept;      /* calls of it that graphs still hold; the count outlives it */
  GThread *keeper; /* who captured the last of them */
  GThread *caller; /* who made the calls that are in progress */
  ncclResult_t state;
  char last[256];
  GArray *calls; /* Call: of the group, or the one, that is in progress */
  cudaStream_t stream;
  GPtrArray *stalled; /* cudaStream_t: those that stand still until the abort */
  GPtrArray *windows; /* Window */
  void *buffers;      /* between ranks; NULL: they are not connected */
};

typedef struct
{
  guint8 *at;
  size_t bytes;
  gboolean is_symmetric;
} Window;

/* Whether these bytes are an allocation of ncclMemAlloc, the whole of it, as windows must be here;
 * forgets all allocations. */
gboolean fake_nccl_is_taken (void *at, size_t bytes);
void fake_nccl_forget_memory (void);

const Call *fake_nccl_call_at (const struct ncclComm *comm, guint i);

/* Ends the call with an error at every rank that has made it. */
void fake_nccl_refuse (Team *team, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Who takes part in the call of a rank: of sends and receives the ranks at their other ends, and so
 * on from these; of any other call all ranks. The members that do not take part are NULL in
 * `out_party`. FALSE: one that does has not come yet. */
gboolean fake_nccl_find_party (const struct ncclComm *comm, Team *out_party);

/* Whether all ranks made the same call, or receive what is sent; else they are refused. */
gboolean fake_nccl_calls_agree (Team *team);

/* Carries out the ranks' calls on their streams, and counts those between symmetric windows. */
void fake_nccl_carry (const Team *team, guint *symmetric, guint *by_copy_engine);

/* Makes the windows that ranks register; whether no two ranks share a GPU, which NCCL refuses. */
void fake_nccl_make_windows (const Team *team);
gboolean fake_nccl_devices_differ (Team *team);

G_END_DECLS
