/* ExecLaunch: this process's rank, as a launcher says in the environment: RANK, WORLD_SIZE,
 * LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets them. Launchers that speak MPI are left
 * to exec_comm_mpi_open. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint rank, ranks;
  guint local_rank;  /* number among the processes of this host */
  char *meeting;     /* HOST:PORT where ranks find rank 0; NULL: there is one rank */
  gboolean is_nccls; /* the meeting is NCCL_COMM_ID, and NCCL itself meets there */
} ExecLaunch;

void exec_launch_clear (ExecLaunch *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecLaunch, exec_launch_clear)

/* Whether such a launcher started this process. */
gboolean exec_launch_is_there (void);

/* Reads what the launcher set; an error names the variable that is missing or wrong. Ranks meet at
 * NCCL_COMM_ID where the user set it, else at the port after MASTER_PORT, because the launcher may
 * listen at MASTER_PORT itself. */
gboolean exec_launch_read (ExecLaunch *out, GError **error);

/* The number of this process on its host, as any known launcher says; FALSE where none does. */
gboolean exec_launch_local_rank (guint *out);

G_END_DECLS
