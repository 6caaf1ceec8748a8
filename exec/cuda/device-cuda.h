/* A GPU as an ExecDevice: one stream per stream of the schedule, one event per event, one
 * allocation for all buffers, and one of pinned memory for those that lie on the host. Nothing else
 * is allocated on the GPU but a scale per buffer, where formats have one, and what libraries take
 * for themselves. */
#pragma once
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

extern const ExecDeviceOps exec_device_cuda;

/* The table of kernels that this device launches. Opening it reports a missing driver or GPU. */
extern const ExecKernels exec_kernels_cuda;

/* A copy between the device and pinned memory; see ExecLauncher. */
int exec_cuda_copy (const ExecArgs *args, void *stream);

/* The host's share of the optimizer, which is done when it returns; see ExecLauncher. */
int exec_cuda_adamw_host (const ExecArgs *args, void *stream);

/* N ranks as threads of this process that share one GPU; see exec_comm_threads_open. */
gboolean exec_comm_cuda_open (guint ranks, ExecComm **out_comms, GError **error);

G_END_DECLS
