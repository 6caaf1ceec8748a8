/* What tests of NCCL share, on the fake and on real GPUs: ranks that are threads with a GPU each,
 * and every collective on a stream. Compiled against either one's headers. */
#pragma once
#include "exec/nccl/comm-nccl.h"
#include "tests/unit/test-comm-ranks.h"
#include <cuda_runtime_api.h>
G_BEGIN_DECLS

/* What all ranks of a test share. */
extern ExecNcclOptions nccl_options;
extern guint nccl_gpu_step;                  /* from one rank's GPU to the next one's */
extern void (*nccl_begin_rank) (guint rank); /* what a rank's thread does first; NULL: nothing */

/* What a rank's collectives work on, on its device: one block taken from its communicator. */
typedef struct
{
  guint8 *in, *gathered, *gathered_in_place, *scattered, *scattered_in_place, *reduced, *exchanged,
      *largest, *passed, *traded;
} Arrays;

void *take_arrays (Rank *self, Arrays *arrays);
gboolean copy_arrays (Rank *self, const Arrays *arrays, gboolean to_device, cudaStream_t stream);
gboolean check_cuda (Rank *self, cudaError_t result);

/* Every collective on a stream, by a communicator that may be a group of the rank's own. */
void call_on_device (Rank *self, ExecComm *comm);

/* `function` for every rank, whose communicator is on NCCL: opened over one of threads, aborted
 * when the rank has an error then, and closed. */
void run_on_nccl (GThreadFunc function, Rank *ranks, guint n);

/* Numbers for `n` ranks, `count` elements for each of them; see rank_init. */
void init_ranks (Rank *ranks, guint n, guint32 seed, PlanDtype dtype, guint64 count,
                 gboolean is_exact);
void clear_ranks (Rank *ranks, guint n);

G_END_DECLS
