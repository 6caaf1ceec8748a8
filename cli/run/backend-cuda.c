/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/backend.h"

#include "cli/run/ranks.h"
#ifdef HAVE_CUDNN
#include "exec/cuda/attention-cudnn.h"
#endif
#include "exec/comm/launch.h"
#include "exec/cuda/device-cuda.h"
#include "exec/nccl/comm-nccl.h"
#include "exec/probe/probe.h"
#include "planner/base/error.h"

#include <string.h>

/* SMs that a ring of NCCL holds, as predictions assume (ring.sms in db/data/parameters.csv, NCCL's
 * own choice on 8 H100); GEMMs that run beside it are tuned for the remaining SMs. */
#define COLLECTIVE_SMS 24

static ExecNcclOptions
options_for (guint local_rank, guint timeout_s)
{
  return (ExecNcclOptions){ .local_rank = local_rank,
                            .timeout_s = timeout_s,
                            .sms = COLLECTIVE_SMS,
                            .spares_sms = TRUE,
                            .is_registered = TRUE }; /* where nccl_ub is on */
}

static gboolean
is_launched (void)
{
  return exec_comm_mpi_is_launched () || exec_launch_is_there ();
}

/* Opens NCCL for processes that MPI started; ranks find each other through MPI. */
static ExecComm *
join_by_mpi (guint timeout_s, GError **error)
{
  guint local_rank = 0;
  ExecComm *carrier = cli_ranks_open_mpi (timeout_s, error);
  if (!carrier)
    return NULL;
  exec_launch_local_rank (&local_rank);
  const ExecNcclOptions options = options_for (local_rank, timeout_s);
  ExecComm *self = exec_comm_nccl_open (carrier, &options, error);
  if (self)
    return self;
  g_autofree char *own = g_strdup_printf ("rank %u: ", carrier->rank);
  const char *why = (*error)->message;
  if (g_error_matches (*error, PLAN_ERROR, PLAN_ERROR_BACKEND)) /* others may not know of it */
    carrier->ops->abort (carrier, g_str_has_prefix (why, own) ? why + strlen (own) : why);
  carrier->ops->close (carrier);
  return NULL;
}

static ExecComm *
open_process (guint timeout_s, GError **error)
{
  g_auto (ExecLaunch) launch = { 0 };
  if (exec_comm_mpi_is_launched ())
    return join_by_mpi (timeout_s, error);
  if (!exec_launch_read (&launch, error))
    return NULL;
  const ExecNcclOptions options = options_for (launch.local_rank, timeout_s);
  return exec_comm_nccl_open_launched (&launch, &options, error);
}

/* Makes CUDA load all kernels at once. Otherwise a kernel is loaded at its first launch, which may
 * wait for the device, and so for what another rank's thread has yet to issue: see "Lazy Loading,
 * Concurrent Execution" in the CUDA programming guide, which names this remedy. Ranks that are
 * processes do not need it. */
static void
load_kernels_first (void)
{
  g_setenv ("CUDA_MODULE_LOADING", "EAGER", FALSE);
}

/* Opens NCCL for a rank that is a thread, with a GPU of its own. */
static ExecComm *
join (ExecComm *threads, GError **error)
{
  const ExecNcclOptions options = options_for (threads->rank, threads->timeout_s);
  return exec_comm_nccl_open (threads, &options, error);
}

static PlanCluster *
describe_gpus (gint64 ranks, gint64 nodes, gint64 per_host, gboolean share, GError **error)
{
  PlanCluster *self = exec_probe_gpus (ranks / nodes, per_host, share, error);
  if (self && nodes > 1)
    exec_probe_set_nodes (self, nodes);
  return self;
}

#ifdef HAVE_CUDNN
static ExecAttentionShape
shape_of (const PlanWorkspace *row)
{
  const gint64 *dims = row->dims;
  return (ExecAttentionShape){ .batch = dims[PLAN_DIM_ATTENTION_BWD_batch],
                               .seq = dims[PLAN_DIM_ATTENTION_BWD_seq],
                               .heads = dims[PLAN_DIM_ATTENTION_BWD_heads],
                               .kv_heads = dims[PLAN_DIM_ATTENTION_BWD_kv_heads],
                               .head_dim = dims[PLAN_DIM_ATTENTION_BWD_head_dim],
                               .dtype = row->dtype,
                               .is_backward = row->pass != PLAN_PASS_FORWARD,
                               .is_deterministic = row->pass == PLAN_PASS_DETERMINISTIC };
}

static gboolean
ask (gint64 capability, PlanWorkspace *io_row, GError **error)
{
  const ExecAttentionShape shape = shape_of (io_row);
  return exec_attention_check_shape (&shape, error)
         && exec_attention_ask (&shape, exec_attention_gpu_of (capability), &io_row->bytes, error);
}

static gboolean
ask_here (PlanWorkspace *io_row, GError **error)
{
  const ExecAttentionShape shape = shape_of (io_row);
  if (!exec_attention_check_shape (&shape, error))
    return FALSE;
  ExecAttention *self = exec_attention_new (error);
  if (!self)
    return FALSE;
  const gboolean ok = exec_attention_workspace (self, &shape, &io_row->bytes, error);
  exec_attention_free (self);
  return ok;
}

static const gint64 capabilities[] = { 80, 90, 100, 0 };

static const CliCudnn cudnn = { .version = exec_attention_version,
                                .capabilities = capabilities,
                                .prepare = exec_attention_load_driver,
                                .ask = ask,
                                .ask_here = ask_here };
#define CUDNN &cudnn
#else
#define CUDNN NULL
#endif

const CliBackend cli_backend = {
  .kernels = &exec_kernels_cuda,
  .device = PLAN_DEVICE_GPU,
  .process_comm = "nccl",
  .is_launched = is_launched,
  .open_process = open_process,
  .join = join,
  .before_join = load_kernels_first,
  .cudnn = CUDNN,
  .describe_machine = describe_gpus,
};
