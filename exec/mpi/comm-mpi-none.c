/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces exec/mpi in a build without MPI. */
#include "config.h"

#include "exec/comm.h"
#include "planner/base/error.h"

ExecComm *
exec_comm_mpi_open (GError **error)
{
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "built without MPI");
  return NULL;
}
