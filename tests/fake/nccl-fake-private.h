/* The fake NCCL, as its files share it: nccl-fake.c lets ranks meet, nccl-fake-carry.c carries out
 * a call once they have met, nccl-fake-memory.c keeps the windows. All these functions are called
 * with the mutex held. */
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

/* A call of a rank, alone or in a group. */
typedef struct
{
  Kind kind;
  const guint8 *in;
  guint8 *out;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;                         /* the rank at the other end; for a split its colour */
  int key;                          /* for a split */
  void *out_handle;                 /* where a split or a window is put */
  gboolean is_blocking, spares_sms; /* options of the communicator that a split makes */
} Call;

/* What the ranks of a communicator share. */
typedef struct
{
  guint ranks, here, open; /* here: ranks that have made the call; open: ranks that have not closed
                              the communicator */
  struct ncclComm *members[MAX_RANKS];
  char id[NCCL_UNIQUE_ID_BYTES]; /* by which the ranks meet; empty: they meet by a split */
} Team;

struct ncclComm
{
  Team *team;
  guint rank,
      first_rank; /* rank in this communicator, and in the one that was split first to make it */
  int device;
  gboolean is_blocking, spares_sms, is_here;
  gboolean is_finalized, is_aborted;
  gint *kept;      /* its calls that graphs still hold; this count outlives the communicator */
  GThread *keeper; /* the thread that captured the last of them */
  GThread *caller; /* the thread that made the calls in progress */
  ncclResult_t state;
  char last[256];
  GArray *calls; /* of Call: the calls in progress, of a group or a single one */
  cudaStream_t stream;
  GPtrArray *stalled; /* of cudaStream_t: streams that stand still until the abort */
  GPtrArray *windows; /* of Window */
  void *buffers;      /* memory that connects ranks; NULL: they are not connected */
};

typedef struct
{
  guint8 *at;
  size_t bytes;
  gboolean is_symmetric;
} Window;

/* The first says whether these bytes are one whole allocation of ncclMemAlloc, which this fake asks
 * of windows; the second forgets all allocations. */
gboolean fake_nccl_is_taken (void *at, size_t bytes);
void fake_nccl_forget_memory (void);

const Call *fake_nccl_call_at (const struct ncclComm *comm, guint i);

/* Ends the call with an error at every rank that has made it. */
void fake_nccl_refuse (Team *team, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Finds the ranks that take part in the call of a rank: for sends and receives the ranks at their
 * other ends, the ranks that these exchange with, and so on; for any other call all ranks. Ranks
 * that do not take part are NULL in `out_party`. Returns FALSE where one that takes part has not
 * made its call yet. */
gboolean fake_nccl_find_party (const struct ncclComm *comm, Team *out_party);

/* Whether all ranks have made the same call, or receive what is sent; if not, their calls are
 * refused. */
gboolean fake_nccl_calls_agree (Team *team);

/* Carries out the ranks' calls on their streams, and counts those between symmetric windows. */
void fake_nccl_carry (const Team *team, guint *symmetric, guint *by_copy_engine);

/* The first makes the windows that ranks register; the second says whether all ranks have GPUs of
 * their own, as NCCL demands. */
void fake_nccl_make_windows (const Team *team);
gboolean fake_nccl_devices_differ (Team *team);

G_END_DECLS
