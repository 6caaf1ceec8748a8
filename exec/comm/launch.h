/* ExecLaunch: which of its processes a launcher says that this one is, where it says so in the
 * environment alone: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun does.
 * Launchers that speak MPI are exec_comm_mpi_open's. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint rank, ranks;
  guint local_rank;  /* among those of this machine */
  char *meeting;     /* HOST:PORT where ranks find rank 0; NULL for one rank */
  gboolean is_nccls; /* NCCL's own meeting, as the user said: NCCL_COMM_ID */
} ExecLaunch;

void exec_launch_clear (ExecLaunch *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecLaunch, exec_launch_clear)

/* TRUE when such a launcher started this process. */
gboolean exec_launch_is_there (void);

/* What it said; names the variable that is missing or wrong. The meeting is NCCL_COMM_ID where the
 * user set it, else the port after MASTER_PORT: the launcher listens at that one itself. */
gboolean exec_launch_read (ExecLaunch *out, GError **error);

/* This process's number on its machine, by any launcher; FALSE where none says it. */
gboolean exec_launch_local_rank (guint *out);

G_END_DECLS
