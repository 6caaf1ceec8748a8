/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/comm/launch.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <string.h>

#define MAX_RANKS 1000000
#define MASTER_PORT 29500 /* torchrun's default */

void
exec_launch_clear (ExecLaunch *self)
{
  g_clear_pointer (&self->meeting, g_free);
}

gboolean
exec_launch_is_there (void)
{
  return g_getenv ("RANK") != NULL && g_getenv ("WORLD_SIZE") != NULL;
}

static gboolean
read_number (const char *variable, gint64 min, gint64 max, guint *out, GError **error)
{
  const char *text = g_getenv (variable);
  gint64 value;

  if (text == NULL)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s is not set: a launcher sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
                   "MASTER_PORT",
                   variable);
      return FALSE;
    }
  if (!plan_units_parse_int (text, variable, min, max, &value, error))
    return FALSE;
  *out = (guint)value;
  return TRUE;
}

gboolean
exec_launch_local_rank (guint *out)
{
  static const char *const variables[] = { "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID" };

  for (guint i = 0; i < G_N_ELEMENTS (variables); i++)
    if (g_getenv (variables[i]) != NULL && read_number (variables[i], 0, MAX_RANKS - 1, out, NULL))
      return TRUE;
  return FALSE;
}

/* Finds HOST:PORT where rank 0 is to be met. IPv6 addresses are put in brackets. */
static gboolean
find_meeting (char **out, gboolean *out_is_nccls, GError **error)
{
  const char *given = g_getenv ("NCCL_COMM_ID"), *host = g_getenv ("MASTER_ADDR");
  guint port = MASTER_PORT;

  *out_is_nccls = given != NULL;
  if (given != NULL)
    {
      *out = g_strdup (given);
      return TRUE;
    }
  if (host == NULL || *host == '\0')
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "MASTER_ADDR is not set: it says on which host rank 0 is");
      return FALSE;
    }
  if (g_getenv ("MASTER_PORT") != NULL && !read_number ("MASTER_PORT", 1, 65534, &port, error))
    return FALSE;
  *out = g_strdup_printf (strchr (host, ':') != NULL ? "[%s]:%u" : "%s:%u", host, port + 1);
  return TRUE;
}

gboolean
exec_launch_read (ExecLaunch *out, GError **error)
{
  g_auto (ExecLaunch) launch = { 0 };

  if (!read_number ("WORLD_SIZE", 1, MAX_RANKS, &launch.ranks, error)
      || !read_number ("RANK", 0, launch.ranks - 1, &launch.rank, error)
      || (launch.ranks > 1 && !find_meeting (&launch.meeting, &launch.is_nccls, error)))
    return FALSE;
  if (!exec_launch_local_rank (&launch.local_rank)
      && (launch.ranks > 1 || g_getenv ("LOCAL_RANK") != NULL)
      && !read_number ("LOCAL_RANK", 0, launch.ranks - 1, &launch.local_rank, error))
    return FALSE;
  *out = launch;
  launch = (ExecLaunch){ 0 };
  return TRUE;
}
