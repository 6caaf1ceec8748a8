/* Matrix products of experts: one by cuBLASLt for each expert that has rows; and their quantised
 * factors, by a kernel for each.
 *
 * How many rows an expert has is counted on the device, by the map that sorts them, and the host
 * needs it to issue these. So what makes such a map also copies its counts to the host, and
 * products wait for the copy; by then the host has waited for it already, as the schedule says. */
#pragma once
#include "exec/device.h"
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

/* Prepares the calling thread for the schedule's maps, on its current CUDA device and after
 * exec_cuda_gemm_open. Each open is followed by a close, the last one's first. */
gboolean exec_cuda_grouped_open (ExecComm *comm, const PlanSchedule *schedule, GError **error);
void exec_cuda_grouped_close (void);

/* Each is an ExecLauncher; the code it returns is one for exec_cuda_check. */
int exec_cuda_row_map (const ExecArgs *args, void *stream);
int exec_cuda_grouped_gemm (const ExecArgs *args, void *stream);
int exec_cuda_grouped_quantize (const ExecArgs *args, void *stream);
int exec_cuda_grouped_transpose (const ExecArgs *args, void *stream);

G_END_DECLS
