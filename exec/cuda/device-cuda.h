/* A GPU as an ExecDevice: one stream per stream of the schedule, one event per event, one
 * allocation for all buffers. Nothing else is taken on the GPU but a scale per buffer where formats
 * have one, and what the libraries take for themselves. */
#pragma once
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

extern const ExecDeviceOps exec_device_cuda;

/* Calls a table's `launch`; opening it says what is missing: a driver, a GPU. */
extern const ExecKernels exec_kernels_cuda;

/* N ranks as threads of this process that share one GPU; see exec_comm_threads_open. */
gboolean exec_comm_cuda_open (guint ranks, ExecComm **out_comms, GError **error);

G_END_DECLS
