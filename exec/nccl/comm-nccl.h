/* ExecComm on NCCL: one GPU per rank, ranks in one process or in many.
 *
 * NCCL moves what is in device memory on the caller's stream, in place and without copies; the call
 * returns when that is issued. Sums are then NCCL's own, which differ from exec_comm_sum's by at
 * most exec_comm_nccl_sum_error; a plan with reduce_algo=a2a sums by kernels of its own, in rank
 * order, behind an all_to_all. Host memory passes through a stage and is summed in rank order. */
#pragma once
#include "exec/comm.h"
#include "exec/comm/launch.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint local_rank;       /* of this rank among those of its machine: chooses the GPU */
  guint timeout_s;        /* see ExecComm, whose timeout_s begins as this */
  gboolean is_registered; /* nccl_ub: memory taken here is in symmetric windows, or registered */
  gboolean spares_sms;    /* gathers in such memory use copy engines where NCCL can */
  guint sms;              /* SMs that a collective may take; 0: as many as NCCL likes */
} ExecNcclOptions;

/* Opens NCCL for the ranks of `carrier` (threads, or mpi), by which they find each other and report
 * failures. The new communicator closes the carrier; where opening fails, it stays the caller's. */
ExecComm *exec_comm_nccl_open (ExecComm *carrier, const ExecNcclOptions *options, GError **error);

/* Opens NCCL for the processes of a launcher, which find each other where `launch` says. */
ExecComm *exec_comm_nccl_open_launched (const ExecLaunch *launch, const ExecNcclOptions *options,
                                        GError **error);

/* How far NCCL's sum of one element over `ranks` may be from exec_comm_sum's, as a share of the sum
 * of magnitudes. NCCL's kernels on symmetric memory add in fp32 in an order of their own and round
 * once; its rings and trees round to `dtype` at every hop. */
double exec_comm_nccl_sum_error (guint ranks, PlanDtype dtype, gboolean is_symmetric);

G_END_DECLS
