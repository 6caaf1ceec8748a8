/* ExecComm on NCCL: one GPU per rank, ranks in one process or in many.
 *
 * What is in device memory is moved by NCCL on the caller's stream, in place and without copies;
 * the call returns when that is issued. Sums are then NCCL's own, as far from exec_comm_sum as
 * exec_comm_nccl_sum_error says; a plan with reduce_algo=a2a has sums of its own, in rank order,
 * behind an all_to_all. Host memory passes through a stage and is summed in rank order. */
#pragma once
#include "exec/comm.h"
#include "exec/comm/launch.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint local_rank;       /* among those of this machine: which GPU is this rank's */
  guint timeout_s;        /* see ExecComm, which has it from here */
  gboolean is_registered; /* memory taken here is in symmetric windows, or registered: nccl_ub */
  gboolean spares_processors; /* gathers in such memory are by copy engines where NCCL can */
  guint processors; /* that a collective takes of a GPU at most; 0: as many as NCCL likes */
} ExecNcclOptions;

/* The ranks of `carrier`, which is how they find each other, and say that they failed: threads, or
 * mpi. It is closed with what is opened, and stays the caller's where that fails. */
ExecComm *exec_comm_nccl_open (ExecComm *carrier, const ExecNcclOptions *options, GError **error);

/* The processes of a launcher, which find each other at its meeting. */
ExecComm *exec_comm_nccl_open_launched (const ExecLaunch *launch, const ExecNcclOptions *options,
                                        GError **error);

/* How far NCCL's sum of one element over `ranks` may be from exec_comm_sum's, as a share of the sum
 * of magnitudes. NCCL's kernels on symmetric memory add in fp32 in an order of their own and round
 * once; its rings and trees round to `dtype` at every hop. */
double exec_comm_nccl_sum_error (guint ranks, PlanDtype dtype, gboolean is_symmetric);

G_END_DECLS
