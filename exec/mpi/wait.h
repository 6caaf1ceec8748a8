/* Waiting for other processes with a deadline. When it passes, ranks call the roll: who does not
 * answer is named, and no one else is. Needs MPI_THREAD_FUNNELED, and messages of MPI_COMM_WORLD
 * for itself. */
#pragma once
#include "exec/comm.h"
#include <glib.h>
G_BEGIN_DECLS

/* Completes what `call` began, an MPI_Request; BACKEND after comm->timeout_s, and a little more. */
gboolean exec_mpi_wait (const ExecComm *comm, void *request, const char *call, GError **error);

/* BACKEND with MPI's text for any code but MPI_SUCCESS. */
gboolean exec_mpi_check (int code, const char *call, GError **error);

/* Leaves the function when the call fails; its text is in the message. */
#define MPI_TRY(call, error) \
  G_STMT_START \
  { \
    if (!exec_mpi_check (call, #call, error)) \
      return FALSE; \
  } \
  G_STMT_END

G_END_DECLS
