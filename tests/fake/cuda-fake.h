/* A CUDA device played on the CPU: exec/cuda's .cu files compile as C++ after this header, and run.
 *
 * A launch is done when it returns, its blocks one after the other. The threads of a block are
 * fibers in a fixed order, forwards or backwards; each runs until it waits at a barrier or a
 * shuffle, and each warp until it waits for others: as far apart as warps can get. A barrier that
 * some threads never reach, two barriers waited at together, and a shuffle without all lanes of its
 * mask end the launch with an error. Shared memory is NaN at the start of each block (GCC before 14
 * keeps that of templates as it was: put it into plain functions).
 *
 * Not there: streams that overlap, events, dynamic shared memory, textures, a memory of the
 * device's own, the device's expf, and races that neither order of the threads shows. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* For tests. The log has a line per launch, set and copy since the reset:
 * "name grid X Y block X shared BYTES stream POINTER", "memset BYTES stream POINTER". */
void fake_cuda_reset (void);
const char *fake_cuda_log (void);
const char *fake_cuda_error (void); /* what the first launch that failed since then did */
void fake_cuda_run_backwards (gboolean backwards);

#define FAKE_CUDA_SUCCESS 0
#define FAKE_CUDA_INVALID_VALUE 1
#define FAKE_CUDA_LAUNCH_FAILURE 719

/* For the code below. */
typedef void (*FakeCudaThread) (const void *closure);
void fake_cuda_barrier (int line);
guint32 fake_cuda_shuffle (int line, guint32 mask, guint32 value, guint source);

G_END_DECLS

#ifdef __cplusplus
#include <cstring>

#define __global__ static
#define __device__
#define __host__
#define __shared__ static __attribute__ ((section ("fake_cuda_shared")))
#define __launch_bounds__(threads)

struct dim3
{
  unsigned x, y, z;
  dim3 (unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x (x_), y (y_), z (z_) {}
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

typedef int cudaError_t;
typedef struct FakeCudaStream *cudaStream_t;
enum cudaMemcpyKind
{
  cudaMemcpyDeviceToDevice = 3
};
enum : cudaError_t
{
  cudaSuccess = FAKE_CUDA_SUCCESS,
  cudaErrorInvalidValue = FAKE_CUDA_INVALID_VALUE,
  cudaErrorLaunchFailure = FAKE_CUDA_LAUNCH_FAILURE
};

cudaError_t cudaMemsetAsync (void *at, int byte, size_t size, cudaStream_t stream);
cudaError_t cudaMemcpyAsync (void *to, const void *from, size_t size, cudaMemcpyKind kind,
                             cudaStream_t stream);

#define __syncthreads() fake_cuda_barrier (__LINE__)
#define __shfl_xor_sync(mask, value, lanes) \
  fake_cuda_shuffle_from (__LINE__, mask, value, threadIdx.x % 32 ^ (unsigned)(lanes))
#define __shfl_down_sync(mask, value, lanes) \
  fake_cuda_shuffle_from (__LINE__, mask, value, threadIdx.x % 32 + (unsigned)(lanes))

/* A source beyond the warp is the thread itself, as on the device. */
template <typename T>
T
fake_cuda_shuffle_from (int line, guint32 mask, T value, unsigned source)
{
  guint32 bits;

  static_assert (sizeof value == sizeof bits, "shuffles move 32 bits");
  memcpy (&bits, &value, sizeof bits);
  bits = fake_cuda_shuffle (line, mask, bits, source < 32 ? source : threadIdx.x % 32);
  memcpy (&value, &bits, sizeof bits);
  return value;
}

/* One thread runs at a time, and stops at barriers and shuffles alone. */
template <typename T>
T
atomicAdd (T *at, T value)
{
  T old = *at;

  *at = old + value;
  return old;
}

template <typename T>
T
atomicMax (T *at, T value)
{
  T old = *at;

  *at = value > old ? value : old;
  return old;
}

cudaError_t fake_cuda_run (const char *name, dim3 grid, dim3 block, void *stream,
                           FakeCudaThread thread, const void *closure);

template <typename Closure>
cudaError_t
fake_cuda_launch (const char *name, dim3 grid, dim3 block, void *stream, const Closure &closure)
{
  return fake_cuda_run (
      name, grid, block, stream, [] (const void *self) { (*(const Closure *)self) (); }, &closure);
}

#define EXEC_CUDA_LAUNCH(kernel, shape, stream, ...) \
  fake_cuda_launch (#kernel, (shape).grid, (shape).block, stream, [=] { kernel (__VA_ARGS__); })
#endif
