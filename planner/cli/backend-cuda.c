/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/backend.h"

#include "exec/cuda/device-cuda.h"
#include "exec/probe.h"
#include "planner/error.h"

const CliBackend cli_backend = {
  .kernels = &exec_kernels_cuda,
  .device = PLAN_DEVICE_GPU,
  .process_comm = "nccl",
  .is_launched = exec_comm_nccl_is_launched,
  .open_process = exec_comm_nccl_open,
  .describe_machine = exec_probe_gpus,
};
