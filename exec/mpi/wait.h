/* Waiting for other processes with a deadline. After it ranks call the roll, and exactly those that
 * do not answer are named as missing. Needs MPI_THREAD_SERIALIZED, and tags 1 and 2 of messages on
 * MPI_COMM_WORLD for itself alone. */
#pragma once
#include "exec/comm.h"
#include <glib.h>
G_BEGIN_DECLS

/* Waits for the MPI_Request that `call` began. BACKEND some time after comm->timeout_s. */
gboolean exec_mpi_wait (const ExecComm *comm, void *request, const char *call, GError **error);

/* Sets a BACKEND error with MPI's text unless the code is MPI_SUCCESS. */
gboolean exec_mpi_check (int code, const char *call, GError **error);

/* Returns FALSE from the function when the call fails; the call's text is in the message. */
#define MPI_TRY(call, error) \
  G_STMT_START \
  { \
    if (!exec_mpi_check (call, #call, error)) \
      return FALSE; \
  } \
  G_STMT_END

G_END_DECLS
