/* Attention's launchers: by cuDNN where it has kernels for the shape on this GPU, else by those of
 * attention-batched.h.
 *
 * Which it is, is decided for every attention of a schedule when its device is opened, so that
 * nothing is compiled or taken on the GPU while a step runs; a shape that cuDNN does not take is
 * told at that time, with the reason. What cuDNN does is always the first of its heuristics'
 * proposals that it can compile, in every run the same. Its workspace is the op's scratch. */
#pragma once
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

/* For the thread that calls; each open that succeeds is followed by a close. The device is set.
 * Deterministic gradients of queries are summed without atomics. */
gboolean exec_cuda_fused_open (const ExecDeviceNeeds *needs, GError **error);
void exec_cuda_fused_close (void);

/* An ExecLauncher each; the code is one for exec_cuda_check. */
int exec_cuda_fused_attention (const ExecArgs *args, void *stream);
int exec_cuda_fused_attention_bwd (const ExecArgs *args, void *stream);

/* cuDNN's, as it numbers itself; 0: built without it. */
guint exec_cuda_fused_version (void);

G_END_DECLS
