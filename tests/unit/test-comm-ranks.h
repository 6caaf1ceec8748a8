/* Shared by tests of every communicator: ranks as threads, all collectives, and a loop for the
 * result of each. */
#pragma once
#include "exec/comm.h"
#include <glib.h>
G_BEGIN_DECLS

#define MAX_RANKS 8
#define ROUNDS 5

/* The operands and results of one rank. The main thread checks them after all ranks have ended,
 * since Check's assertions cannot fail in other threads. */
typedef struct
{
  ExecComm *comm;
  PlanDtype dtype;
  guint64 count;
  guint8 *in; /* ranks * count elements */
  guint8 *gathered, *gathered_in_place;
  guint8 *scattered, *scattered_in_place; /* the latter as large as `in` */
  guint8 *reduced, *exchanged, *largest;
  guint8 *passed; /* `count` elements of each rank before this one, the nearest first */
  guint8 *traded; /* 2 * count elements: of the previous rank, then of the next one */
  GError *error;
} Rank;

/* Fills a rank's operands with random numbers: any, or such that their sums are the same in every
 * order. */
void rank_init (Rank *self, GRand *rand, ExecComm *comm, PlanDtype dtype, guint64 count,
                gboolean is_exact);
void rank_clear (Rank *self);
guint64 rank_bytes (const Rank *self, guint64 count);

/* Before each round: copies the operands of collectives that work in place. */
void rank_prepare (Rank *self);

/* Calls every collective in host memory, with and without result buffers of its own. */
gboolean rank_call_all (Rank *self);

/* Passes elements on to each other rank in the ring. `stream` NULL: in the host's memory. */
gboolean rank_pass_all (Rank *self, guint8 *passed, const guint8 *in, void *stream);

/* Trades between neighbours in a line of ranks: down alone, both ways, and up alone. `stream` NULL:
 * in the host's memory. */
gboolean rank_trade_all (Rank *self, guint8 *traded, const guint8 *in, void *stream);

void run_ranks (GThreadFunc function, Rank *ranks, guint n);

/* Element `i` of the sum, added up in the order of ranks. */
void slow_sum (const Rank *ranks, guint n, guint64 i, void *out);
/* Element `i` of the maximum. */
void slow_max (const Rank *ranks, guint n, guint64 i, void *out);
void check_ranks (const Rank *ranks, guint n);

/* Returns "127.0.0.1:PORT" with a port that nobody listens at; the caller frees it. */
char *test_free_meeting (void);

/* How eight ranks can be split into groups of two or four that lie `stride` apart. */
#define N_SPLITS 5
extern const struct TestSplit
{
  guint size, stride;
} splits[N_SPLITS];

/* Checks, for all ranks, that each group of a split had its own members in order, and their
 * sums. */
void check_groups (const Rank *ranks, guint n, guint split);

G_END_DECLS
