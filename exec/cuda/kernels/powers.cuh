/* SPDX-License-Identifier: Apache-2.0 */
/* e^x and 1 / x in an instruction or two, and the sigmoid made of them. expf and a correctly
 * rounded division take ten each, more than kernels that are bound by memory have time for. */
#pragma once
#include "exec/cuda/kernels/launch.cuh"

namespace
{

/* e^x, good to 2^-22 (1 + |x|) of itself. */
__device__ inline float
power_of_e (float x)
{
  float two = x * 1.44269504f;
#ifdef __CUDA_ARCH__
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(two) : "f"(two));
  return two;
#else
  return exp2f (two);
#endif
}

/* 1 / x, good to 2^-23 of itself, for |x| from 2^-126 to 2^126. */
__device__ inline float
inverse_of (float x)
{
#ifdef __CUDA_ARCH__
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(x));
  return x;
#else
  return 1.0f / x;
#endif
}

__device__ inline float
sigmoid (float x)
{
  return inverse_of (1.0f + power_of_e (-x));
}

}
