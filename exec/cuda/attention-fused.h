/* Launchers of attention: by cuDNN where it has kernels for the shape on this GPU, else by those of
 * attention-batched.h.
 *
 * The choice is made for every attention of a schedule when the device is opened, so that nothing
 * is compiled or allocated on the GPU while a step runs; a shape that cuDNN does not take is
 * reported then, with the reason. cuDNN runs the first engine of its heuristics' proposals that it
 * can compile, the same one in every run. Its workspace is the op's scratch. */
#pragma once
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

/* Prepares the calling thread for its current CUDA device. Each open that succeeds is followed by a
 * close. Deterministic runs sum the gradients of queries without atomics. */
gboolean exec_cuda_fused_open (const ExecDeviceNeeds *needs, GError **error);
void exec_cuda_fused_close (void);

/* Each is an ExecLauncher; the code it returns is one for exec_cuda_check. */
int exec_cuda_fused_attention (const ExecArgs *args, void *stream);
int exec_cuda_fused_attention_bwd (const ExecArgs *args, void *stream);

/* cuDNN's version as it numbers itself; 0: there is none. */
guint exec_cuda_fused_version (void);

G_END_DECLS
