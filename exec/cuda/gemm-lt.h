/* Matrix products by cuBLASLt: row-major, fp32 inside, with the operands of the op list.
 *
 * What is needed to issue a product is made once per shape and thread. Which of cuBLASLt's
 * algorithms is the fastest is tried once, on the product's own operands, and kept in a text file
 * per GPU and library version beside the user's store; deterministic runs take the first that the
 * library proposes, and so the same one everywhere. What cuBLASLt refuses (sizes or layouts that
 * its narrow formats do not take) a plain kernel multiplies. */
#pragma once
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

/* For the thread that calls; each open is followed by a close. The device is set. `comm` is asked
 * while algorithms are tried behind its collectives; NULL: there is none. */
gboolean exec_cuda_gemm_open (ExecComm *comm, GError **error);
void exec_cuda_gemm_close (void);

/* An ExecLauncher each; the code is one for exec_cuda_check. */
int exec_cuda_gemm (const ExecArgs *args, void *stream);
int exec_cuda_gemm_add (const ExecArgs *args, void *stream);

G_END_DECLS
