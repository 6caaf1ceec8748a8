/* Matrix products by cuBLASLt: row-major, summed in fp32, with the operands of the op list.
 *
 * Descriptors are made once per shape and thread. The algorithms of a product are timed once, on
 * its own operands, and the fastest is kept in a text file per GPU and library version beside the
 * user's store. Deterministic runs take the first that the library proposes, the same one in every
 * run. What cuBLASLt refuses (sizes or layouts that its narrow formats do not take) is multiplied
 * by a plain kernel. */
#pragma once
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

/* Prepares the calling thread for its current CUDA device. Each open is followed by a close. While
 * algorithms are timed behind collectives, `comm` is asked whether a rank is lost; NULL: no
 * other rank can be. */
gboolean exec_cuda_gemm_open (ExecComm *comm, GError **error);
void exec_cuda_gemm_close (void);

/* Each is an ExecLauncher; the code it returns is one for exec_cuda_check. */
int exec_cuda_gemm (const ExecArgs *args, void *stream);
int exec_cuda_gemm_add (const ExecArgs *args, void *stream);

/* The same for products without a bias whose m, or with `varies_k` k, differs from call to call: no
 * algorithms are timed, and one serves all sizes up to the next power of two. */
int exec_cuda_gemm_any_size (const ExecArgs *args, gboolean accumulates, gboolean varies_k,
                             void *stream);

G_END_DECLS
