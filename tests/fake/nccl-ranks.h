/* Shared by tests of NCCL, on the fake and on real GPUs: ranks are threads with a GPU each, which
 * call every collective on a stream. Compiled with the headers of either NCCL. */
#pragma once
#include "exec/nccl/comm-nccl.h"
#include "tests/unit/test-comm-ranks.h"
#include <cuda_runtime_api.h>
G_BEGIN_DECLS

/* Settings of all ranks of a test. */
extern ExecNcclOptions nccl_options;
extern guint nccl_gpu_step; /* the distance between the GPUs of neighbouring ranks */
extern void (*nccl_begin_rank) (guint rank); /* called first in each rank's thread; NULL: nothing */

/* The buffers of a rank's collectives, on its device: parts of one block allocated by its
 * communicator. */
typedef struct
{
  guint8 *in, *gathered, *gathered_in_place, *scattered, *scattered_in_place, *reduced, *exchanged,
      *largest, *passed, *traded;
} Arrays;

void *take_arrays (Rank *self, Arrays *arrays);
gboolean copy_arrays (Rank *self, const Arrays *arrays, gboolean to_device, cudaStream_t stream);
gboolean check_cuda (Rank *self, cudaError_t result);

/* Calls every collective on a stream, by a communicator, which may be a group that the rank is
 * in. */
void call_on_device (Rank *self, ExecComm *comm);

/* Runs `function` in a thread for every rank, with a communicator on NCCL: opened over one of
 * threads, aborted where the rank has an error afterwards, and closed. */
void run_on_nccl (GThreadFunc function, Rank *ranks, guint n);

/* Fills the operands of `n` ranks, `count` elements for each of them; see rank_init. */
void init_ranks (Rank *ranks, guint n, guint32 seed, PlanDtype dtype, guint64 count,
                 gboolean is_exact);
void clear_ranks (Rank *ranks, guint n);

G_END_DECLS
