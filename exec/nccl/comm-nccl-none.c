/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces exec/nccl in a build without NCCL. */
#include "config.h"

#include "exec/nccl/comm-nccl.h"
#include "planner/base/error.h"

static ExecComm *
refuse (GError **error)
{
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                       "this build has no NCCL: configure it with --with-nccl, or use --comm "
                       "threads");
  return NULL;
}

ExecComm *
exec_comm_nccl_open (ExecComm *carrier, const ExecNcclOptions *options, GError **error)
{
  return refuse (error);
}

ExecComm *
exec_comm_nccl_open_launched (const ExecLaunch *launch, const ExecNcclOptions *options,
                              GError **error)
{
  return refuse (error);
}
