/* SPDX-License-Identifier: Apache-2.0 */
/* Activations: value and slope at one x, and launches of the kernel that is compiled for a kind. */
#pragma once
#include "exec/cuda/kernels/powers.cuh"
#include "planner/model/model.h"

namespace
{

const float NORMAL_AT_0 = 0.39894228f; /* density of the normal distribution: 1 / sqrt (2 pi) */
const float TANH_SCALE = 0.79788456f;  /* sqrt (2 / pi) */
const float TANH_CUBE = 0.044715f;

/* An activation's value and slope at one x. */
struct Point
{
  float value, slope;
};

/* The share of a normal distribution below -x, x >= 0, divided by e^(-x^2 / 2): a polynomial of 1 /
 * (1 + x / 4), fitted so that x times the share is good to 2^-27, and the share in the tail to
 * 2^-15 of itself. 1 + erff would keep less of a tail. */
__device__ inline float
tail_of (float x)
{
  float t = inverse_of (fmaf (0.25f, x, 1.0f)), sum = -0.0924425721f;

  sum = fmaf (sum, t, 0.345378288f);
  sum = fmaf (sum, t, -0.273862938f);
  sum = fmaf (sum, t, 0.287657888f);
  sum = fmaf (sum, t, 0.0214673847f);
  sum = fmaf (sum, t, 0.11307544f);
  sum = fmaf (sum, t, 0.0987265109f);
  return sum * t;
}

__device__ inline Point
gelu (float x)
{
  float bell = power_of_e (-0.5f * x * x), below = tail_of (fabsf (x)) * bell;
  float share = x > 0 ? 1.0f - below : below;

  return { x * share, share + x * NORMAL_AT_0 * bell };
}

/* (1 + tanh (y / 2)) / 2 is the sigmoid of y. Neither it nor 1 minus it is computed as a
 * difference, which would lose its digits where it is small. */
__device__ inline Point
gelu_tanh (float x)
{
  float y = 2.0f * TANH_SCALE * (x + TANH_CUBE * x * x * x), e = power_of_e (-fabsf (y));
  float more = inverse_of (1.0f + e), less = e * more, share = y > 0 ? more : less;
  float inner = 2.0f * TANH_SCALE * (1.0f + 3.0f * TANH_CUBE * x * x);

  return { x * share, share + x * more * less * inner };
}

/* x * sigmoid (steepness * x) */
__device__ inline Point
swish (float x, float steepness)
{
  float s = sigmoid (steepness * x);

  return { x * s, s * (1.0f + steepness * x * (1.0f - s)) };
}

template <PlanActivation kind>
__device__ inline Point
point_of (float x)
{
  switch (kind)
    {
    case PLAN_ACTIVATION_SILU:
      return swish (x, 1.0f);
    case PLAN_ACTIVATION_GELU:
      return gelu (x);
    case PLAN_ACTIVATION_GELU_TANH:
      return gelu_tanh (x);
    case PLAN_ACTIVATION_RELU:
      return { x > 0 ? x : 0.0f, x > 0 ? 1.0f : 0.0f };
    case PLAN_ACTIVATION_RELU2:
      return { x > 0 ? x * x : 0.0f, x > 0 ? 2 * x : 0.0f };
    case PLAN_ACTIVATION_QUICK_GELU:
      return swish (x, 1.702f);
    }
  return { 0, 0 };
}

/* The shape of an activation. Where it is gated, a row of `in` holds the gate values, then the up
 * values. A gate value is clamped to at most `limit`, an up value to [-limit, limit] before
 * `offset` is added to it; limit 0: nothing is clamped. */
struct Activation
{
  uint64_t rows, cols, width; /* width: elements of a row of `in` */
  PlanActivation kind;
  bool is_gated;
  float limit, offset;
};

__device__ inline float
bound_gate (const Activation &shape, float x)
{
  return shape.limit > 0 && x > shape.limit ? shape.limit : x;
}

__device__ inline bool
is_beyond (const Activation &shape, float x)
{
  return shape.limit > 0 && fabsf (x) > shape.limit;
}

/* The factor of an activated gate: its up value, clamped and offset; 1 without gates. */
__device__ inline float
factor_of (const Activation &shape, float up)
{
  if (!shape.is_gated)
    return 1.0f;
  return (is_beyond (shape, up) ? copysignf (shape.limit, up) : up) + shape.offset;
}

/* Zeroes the gradient of a gate value, or of an up value, that was clamped. */
__device__ inline void
stop_beyond (const Activation &shape, float gate, float up, float *dgate, float *dup)
{
  if (gate > 0 && is_beyond (shape, gate))
    *dgate = 0;
  if (is_beyond (shape, up))
    *dup = 0;
}

/* Calls `launch` with the kind as a type, so that it launches the kernel compiled for that kind: to
 * choose the kind for every element would take longer than most kinds do. */
template <PlanActivation kind> struct Kind
{
  static const PlanActivation value = kind;
};

template <typename Launch>
int
launch_kind (PlanActivation kind, Launch launch)
{
  switch (kind)
    {
    case PLAN_ACTIVATION_SILU:
      return launch (Kind<PLAN_ACTIVATION_SILU>{});
    case PLAN_ACTIVATION_GELU:
      return launch (Kind<PLAN_ACTIVATION_GELU>{});
    case PLAN_ACTIVATION_GELU_TANH:
      return launch (Kind<PLAN_ACTIVATION_GELU_TANH>{});
    case PLAN_ACTIVATION_RELU:
      return launch (Kind<PLAN_ACTIVATION_RELU>{});
    case PLAN_ACTIVATION_RELU2:
      return launch (Kind<PLAN_ACTIVATION_RELU2>{});
    case PLAN_ACTIVATION_QUICK_GELU:
      return launch (Kind<PLAN_ACTIVATION_QUICK_GELU>{});
    }
  return (int)cudaErrorInvalidValue;
}

inline Activation
activation_of (const Operands &operands)
{
  Activation shape;

  shape.rows = operands.dim (0);
  shape.cols = operands.dim (1);
  shape.kind = (PlanActivation)operands.dim (2);
  shape.is_gated = operands.dim (3) != 0;
  shape.width = (shape.is_gated ? 2 : 1) * shape.cols;
  shape.limit = (float)exec_manner (operands.args, PLAN_MANNER_LIMIT);
  shape.offset = (float)exec_manner (operands.args, PLAN_MANNER_OFFSET);
  return shape;
}

/* --- swiglu ------------------------------------------------------------------------------- */

__device__ inline Piece
swiglu_piece (const Piece &gate, const Piece &up)
{
  Piece value;

  for (unsigned i = 0; i < PIECE; i++)
    value.at[i] = gate.at[i] * sigmoid (gate.at[i]) * up.at[i];
  return value;
}

/* The gradients of gates, and of ups. */
__device__ inline void
swiglu_slopes (const Piece &gate, const Piece &up, const Piece &d, Piece *dgate, Piece *dup)
{
  for (unsigned i = 0; i < PIECE; i++)
    {
      float g = gate.at[i], s = sigmoid (g);

      dgate->at[i] = d.at[i] * up.at[i] * s * (1.0f + g * (1.0f - s));
      dup->at[i] = d.at[i] * g * s;
    }
}

}
