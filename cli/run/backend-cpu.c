/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/backend.h"

#include "cli/run/ranks.h"
#include "exec/probe/probe.h"

static PlanCluster *
describe_processors (gint64 ranks, gint64 nodes, gint64 per_host, gboolean share, GError **error)
{
  PlanCluster *self = exec_probe_processors (ranks / nodes, error);
  if (self)
    exec_probe_set_nodes (self, nodes);
  return self;
}

const CliBackend cli_backend = {
  .kernels = &exec_kernels_cpu,
  .device = PLAN_DEVICE_CPU,
  .process_comm = "mpi",
  .is_launched = exec_comm_mpi_is_launched,
  .open_process = cli_ranks_open_mpi,
  .describe_machine = describe_processors,
};
