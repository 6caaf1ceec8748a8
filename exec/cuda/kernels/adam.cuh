/* SPDX-License-Identifier: Apache-2.0 */
/* Adam's step of one element, by the same operations in the same order as in
 * exec/cpu/kernels-cpu-optimizer.c. */
#pragma once
#include "exec/cuda/kernels/launch.cuh"

namespace
{

/* Adam's hyperparameters, converted once. */
struct Adam
{
  float beta1, beta2, one_minus_beta1, one_minus_beta2, eps, weight_decay;
};

inline Adam
adam_of (const ExecConstants *constants)
{
  Adam adam;

  adam.beta1 = (float)constants->beta1;
  adam.beta2 = (float)constants->beta2;
  adam.one_minus_beta1 = (float)(1 - constants->beta1);
  adam.one_minus_beta2 = (float)(1 - constants->beta2);
  adam.eps = (float)constants->adam_eps;
  adam.weight_decay = (float)constants->weight_decay;
  return adam;
}

/* What changes from step to step: the device's own copy if there is one, else what the launch
 * brought. */
__device__ inline ExecCudaVarying
varying_of (const ExecCudaVarying &given, const ExecCudaVarying *own)
{
  return own != NULL ? *own : given;
}

/* Computes both new moments in place; `g` is the clipped gradient. */
__device__ inline void
step_moments (const Adam &adam, float g, float *avg, float *avg_sq)
{
  *avg = adam.beta1 * *avg + adam.one_minus_beta1 * g;
  *avg_sq = adam.beta2 * *avg_sq + adam.one_minus_beta2 * g * g;
}

__device__ inline float
step_weight (const Adam &adam, const ExecCudaVarying &step, float weight, float avg, float avg_sq)
{
  float update = avg / step.correction1 / (sqrtf (avg_sq / step.correction2) + adam.eps);

  return weight - step.lr * (update + adam.weight_decay * weight);
}

/* Stores an updated weight in `main`. `out`, if the op has it, gets the stored value, which is
 * rounded again, to the format of `out`. */
__device__ inline void
write_weight (const Array &main, const Array &out, uint64_t at, unsigned n, const Piece &weight)
{
  write (main, at, n, weight);
  if (out.at != NULL)
    write (out, at, n, rounded (main, weight));
}

}
