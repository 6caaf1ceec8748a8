/* A CUDA device played on the CPU: what tests ask of it, and (in C++, simt.hpp) what exec/cuda's
 * .cu files need to compile and run. Host code finds the runtime in tests/fake/include.
 *
 * Kernels. A launch runs its blocks one after the other. The threads of a block are fibers in a
 * fixed order, forwards or backwards; each runs until it waits at a barrier or a shuffle, and each
 * warp until it waits for others: as far apart as warps can get. A barrier that some threads never
 * reach, two barriers waited at together, and a shuffle without all lanes of its mask end the
 * launch with an error. Shared memory is NaN at the start of each block (GCC before 14 keeps that
 * of templates as it was: put it into plain functions).
 *
 * Memory. Device and pinned memory is NaN (bytes 0xff) when it is taken. Every access of a kernel
 * is seen (the .cu files are compiled with -fsanitize=thread, and its hooks are trace.cpp): one
 * outside of what is allocated on its device, or in host memory, ends the launch.
 *
 * Order. Everything runs when it is issued, so results never show a missing event: clocks do, see
 * order.h. What kernels use is what they were seen to use, byte by byte. An asynchronous copy to
 * pinned memory arrives when the host has synchronised with it; until then the host sees NaN. A
 * copy to or from pageable memory makes the host wait for all before it on the stream, as the
 * driver may; where the stream stands still, that is reported. A stream that stands still takes
 * 1024 operations; the next one makes the host wait until it continues, as the driver does.
 *
 * Not there: textures, managed memory, cooperative launches, the device's expf, and kernels that
 * use pinned memory. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Resets everything: there is one new device of compute capability 9.0 with 2 GiB. */
void fake_cuda_reset (void);

/* After a reset: sets how many devices there are (up to 8), their memory and their compute
 * capability. */
void fake_cuda_set_machine (guint devices, guint64 bytes, int major, int minor);

/* Makes this thread one of a process that is shown this device alone, as its first one. */
void fake_cuda_show (guint device);

/* Sets the newest CUDA version that the driver supports: 12040. */
void fake_cuda_set_driver (int version);

/* One line per launch, set, copy, product, event and synchronisation since the reset:
 * "name grid X Y block X shared BYTES stream NUMBER". Stream 0 is the default one of device 0;
 * after those of all devices, streams are numbered as they were made. */
const char *fake_cuda_log (void);
void fake_cuda_clear_log (void);

/* Bytes that kernels, sets and copies have read and written since the reset: each of them once per
 * launch and direction, as if all of a launch's later readings were from cache. */
guint64 fake_cuda_moved (void);

/* What went wrong first since the reset, or "". */
const char *fake_cuda_error (void);

/* The same after the end: memory, streams, events and handles that are still there are errors, and
 * so are bytes written beyond the end of memory. */
const char *fake_cuda_finish (void);

void fake_cuda_run_backwards (gboolean backwards);

/* From now on kernels run as the PTX that nvcc made of them, from all .ptx files of a folder
 * (ptx.hpp). Returns the number of kernels. */
guint fake_cuda_run_ptx (const char *folder);

/* Sets whether kernels that run from now on are watched for races between their own threads and
 * blocks, which is slow: see races.cpp. */
void fake_cuda_find_races (gboolean find);

/* Sets whether device memory is protected outside of the runtime's calls: an access by the host is
 * then reported. */
void fake_cuda_guard (gboolean guard);

/* The call-th call from now that can fail, counted from 1, fails with this cudaError_t; 0: none. */
void fake_cuda_fail_at (guint call, int error);

G_END_DECLS

#ifdef __cplusplus
#include "tests/fake/simt.hpp"
#endif
