/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA C++ for a host compiler: exec/cuda's .cu files compile after this, and run on the fake
 * device (cuda-fake.h). */
#pragma once
#include "tests/fake/include/cuda_runtime.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#define __global__ \
  static \
      __attribute__ ((noinline)) /* static, and not inlined, so that its name is found: ptx.hpp */
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static __attribute__ ((section ("fake_cuda_shared")))
#define __launch_bounds__(...)

struct dim3
{
  unsigned x, y, z;
  dim3 (unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x (x_), y (y_), z (z_) {}
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;
const int warpSize = 32;

/* --- for the code below ------------------------------------------------------------------- */

typedef void (*FakeCudaThread) (const void *closure);

/* An argument of a kernel that runs as PTX. */
struct FakeCudaArgument
{
  bool is_real = false;
  double real = 0;
  uint64_t whole = 0; /* the value of an integer, an enum or a pointer */
  std::vector<uint8_t> bytes;
};

struct FakeCudaLaunch
{
  const char *name;
  dim3 grid, block;
  size_t shared;
  FakeCudaThread thread;
  const void *closure; /* the launch copies it */
  size_t closure_bytes;
  std::vector<FakeCudaArgument> arguments;
};

bool fake_cuda_runs_ptx ();
cudaError_t fake_cuda_run (cudaStream_t stream, const FakeCudaLaunch &launch);
void fake_cuda_barrier (int line);
uint32_t fake_cuda_shuffle (int line, uint32_t mask, uint32_t value, unsigned source);
void fake_cuda_sync_warp (int line);
void *fake_cuda_dynamic_shared ();
void fake_cuda_use (const void *at, size_t bytes, bool is_write);
void fake_cuda_begin_atomic ();
void fake_cuda_end_atomic ();

/* --- launches ----------------------------------------------------------------------------- */

template <typename T>
FakeCudaArgument
fake_cuda_argument (const T &value)
{
  FakeCudaArgument self;

  self.bytes.assign ((const uint8_t *)&value, (const uint8_t *)(&value + 1));
  self.is_real = std::is_floating_point<T>::value;
  if constexpr (std::is_floating_point<T>::value)
    self.real = (double)value;
  else if constexpr (std::is_pointer<T>::value || std::is_null_pointer<T>::value)
    self.whole = (uint64_t)(uintptr_t)value;
  else if constexpr (std::is_integral<T>::value || std::is_enum<T>::value)
    self.whole = (uint64_t)value;
  return self;
}

template <typename Closure, typename... Arguments>
cudaError_t
fake_cuda_launch (const char *name, dim3 grid, dim3 block, size_t shared, void *stream,
                  const Closure &closure, const Arguments &...arguments)
{
  FakeCudaLaunch launch = { name, grid, block, shared, nullptr, &closure, sizeof closure, {} };

  if (fake_cuda_runs_ptx ())
    launch.arguments = { fake_cuda_argument (arguments)... };

  static_assert (std::is_trivially_copyable<Closure>::value, "arguments of kernels are plain data");
  launch.thread = [] (const void *self) { (*(const Closure *)self) (); };
  return fake_cuda_run ((cudaStream_t)stream, launch);
}

#define EXEC_CUDA_LAUNCH(kernel, shape, stream, ...) \
  EXEC_CUDA_LAUNCH_SHARED (kernel, shape, 0, stream, __VA_ARGS__)
#define EXEC_CUDA_LAUNCH_SHARED(kernel, shape, shared, stream, ...) \
  fake_cuda_launch ( \
      #kernel, (shape).grid, (shape).block, shared, stream, [=] { kernel (__VA_ARGS__); }, \
      __VA_ARGS__)

/* The shared memory whose size the launch gives. */
#define EXEC_CUDA_DYNAMIC_SHARED(type, name) type *name = (type *)fake_cuda_dynamic_shared ()

/* --- within a block ----------------------------------------------------------------------- */

#define __syncthreads() fake_cuda_barrier (__LINE__)
#define __syncwarp() fake_cuda_sync_warp (__LINE__)
#define __threadfence() ((void)0)
#define __shfl_xor_sync(mask, value, lanes) \
  fake_cuda_shuffle_from (__LINE__, mask, value, threadIdx.x % 32 ^ (unsigned)(lanes))
#define __shfl_down_sync(mask, value, lanes) \
  fake_cuda_shuffle_from (__LINE__, mask, value, threadIdx.x % 32 + (unsigned)(lanes))
#define __shfl_up_sync(mask, value, lanes) \
  fake_cuda_shuffle_from (__LINE__, mask, value, threadIdx.x % 32 - (unsigned)(lanes))
#define __shfl_sync(mask, value, lane) \
  fake_cuda_shuffle_from (__LINE__, mask, value, (unsigned)(lane) % 32)

/* A source lane beyond the warp is replaced by the thread itself, as on the device. */
template <typename T>
T
fake_cuda_shuffle_from (int line, uint32_t mask, T value, unsigned source)
{
  uint32_t bits;

  static_assert (sizeof value == sizeof bits, "shuffles move 32 bits");
  memcpy (&bits, &value, sizeof bits);
  bits = fake_cuda_shuffle (line, mask, bits, source < 32 ? source : threadIdx.x % 32);
  memcpy (&value, &bits, sizeof bits);
  return value;
}

/* --- memory ------------------------------------------------------------------------------- */

/* Reads and changes; no other thread runs between the two. */
template <typename T, typename Change>
T
fake_cuda_atomic (T *at, Change change)
{
  T old;

  fake_cuda_begin_atomic ();
  fake_cuda_use (at, sizeof *at, true);
  memcpy (&old, at, sizeof old);
  *at = change (old);
  fake_cuda_end_atomic ();
  return old;
}

template <typename T, typename V>
T
atomicAdd (T *at, V value)
{
  return fake_cuda_atomic (at, [=] (T old) { return (T)(old + (T)value); });
}

template <typename T, typename V>
T
atomicMax (T *at, V value)
{
  return fake_cuda_atomic (at, [=] (T old) { return old < (T)value ? (T)value : old; });
}

template <typename T, typename V>
T
atomicMin (T *at, V value)
{
  return fake_cuda_atomic (at, [=] (T old) { return (T)value < old ? (T)value : old; });
}

template <typename T, typename V>
T
atomicOr (T *at, V value)
{
  return fake_cuda_atomic (at, [=] (T old) { return (T)(old | (T)value); });
}

template <typename T, typename V>
T
atomicExch (T *at, V value)
{
  return fake_cuda_atomic (at, [=] (T) { return (T)value; });
}

template <typename T, typename V, typename W>
T
atomicCAS (T *at, V expected, W value)
{
  return fake_cuda_atomic (at, [=] (T old) { return old == (T)expected ? (T)value : old; });
}

template <typename T>
T
__ldg (const T *at)
{
  return *at;
}

inline float
__int_as_float (int bits)
{
  float value;

  memcpy (&value, &bits, sizeof value);
  return value;
}

inline int
__float_as_int (float value)
{
  int bits;

  memcpy (&bits, &value, sizeof bits);
  return bits;
}

inline float
__uint_as_float (unsigned bits)
{
  return __int_as_float ((int)bits);
}

inline unsigned
__float_as_uint (float value)
{
  return (unsigned)__float_as_int (value);
}

/* Of an angle in half turns. */
inline void
sincospif (float half_turns, float *sine, float *cosine)
{
  double radians = M_PI * (double)half_turns;

  *sine = (float)std::sin (radians);
  *cosine = (float)std::cos (radians);
}

/* Copies with accesses that the hooks see: compilers do not report those of a larger memcpy. */
inline void *
fake_cuda_copy (void *to, const void *from, size_t bytes)
{
  fake_cuda_use (from, bytes, false);
  fake_cuda_use (to, bytes, true);
  return std::memcpy (to, from, bytes);
}
#define memcpy(to, from, bytes) \
  (__builtin_constant_p (bytes) && (bytes) <= 8 ? __builtin_memcpy (to, from, bytes) \
                                                : fake_cuda_copy (to, from, bytes))
