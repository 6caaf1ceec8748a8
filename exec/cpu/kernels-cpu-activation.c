/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of activations: SwiGLU, all others with or without gates, those of experts, and the gate
 * of shared experts. */
#include "config.h"

#include "exec/cpu/kernels-cpu-experts.h"
#include "exec/cpu/kernels-cpu-private.h"
#include "planner/model/model.h"

#include <math.h>

#define BLOCK EXEC_CPU_BLOCK

static inline float
sigmoid (float x)
{
  return 1.0f / (1.0f + EXEC_CPU_EXP (-x));
}

static EXEC_WIDE void
swiglu_block (float *restrict out, const float *gate, const float *up, guint64 n)
{
  for (guint64 i = 0; i < n; i++)
    out[i] = gate[i] * sigmoid (gate[i]) * up[i];
}

static void
swiglu_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_SWIGLU_cols];
  float gate_storage[BLOCK], up_storage[BLOCK], out[BLOCK];

  for (guint64 row = first; row < end; row++)
    for (guint64 at = 0; at < cols; at += BLOCK)
      {
        guint64 n = MIN (BLOCK, cols - at), in_at = 2 * row * cols + at;
        const float *gate = exec_cpu_read_ref (args, PLAN_REF_SWIGLU_in, in_at, n, gate_storage);
        const float *up = exec_cpu_read_ref (args, PLAN_REF_SWIGLU_in, in_at + cols, n, up_storage);

        swiglu_block (out, gate, up, n);
        exec_cpu_write_raising (args, PLAN_REF_SWIGLU_out, PLAN_REF_SWIGLU_amax, row * cols + at, n,
                                out);
      }
}

void
exec_cpu_swiglu (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_SWIGLU_rows],
                   (guint64)args->op->dims[PLAN_DIM_SWIGLU_cols], swiglu_rows);
}

static EXEC_WIDE void
swiglu_bwd_block (float *restrict dgate, float *restrict dup, const float *dout, const float *gate,
                  const float *up, guint64 n)
{
  for (guint64 i = 0; i < n; i++)
    {
      float s = sigmoid (gate[i]);

      dgate[i] = dout[i] * up[i] * s * (1.0f + gate[i] * (1.0f - s));
      dup[i] = dout[i] * gate[i] * s;
    }
}

static void
swiglu_bwd_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_SWIGLU_BWD_cols];
  float gate_storage[BLOCK], up_storage[BLOCK], dout_storage[BLOCK], dgate[BLOCK], dup[BLOCK];

  for (guint64 row = first; row < end; row++)
    for (guint64 at = 0; at < cols; at += BLOCK)
      {
        guint64 n = MIN (BLOCK, cols - at), in_at = 2 * row * cols + at;
        const float *dout
            = exec_cpu_read_ref (args, PLAN_REF_SWIGLU_BWD_dout, row * cols + at, n, dout_storage);
        const float *gate
            = exec_cpu_read_ref (args, PLAN_REF_SWIGLU_BWD_in, in_at, n, gate_storage);
        const float *up
            = exec_cpu_read_ref (args, PLAN_REF_SWIGLU_BWD_in, in_at + cols, n, up_storage);

        swiglu_bwd_block (dgate, dup, dout, gate, up, n);
        exec_cpu_write_raising (args, PLAN_REF_SWIGLU_BWD_din, PLAN_REF_SWIGLU_BWD_amax, in_at, n,
                                dgate);
        exec_cpu_write_raising (args, PLAN_REF_SWIGLU_BWD_din, PLAN_REF_SWIGLU_BWD_amax,
                                in_at + cols, n, dup);
      }
}

void
exec_cpu_swiglu_bwd (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_SWIGLU_BWD_rows],
                   (guint64)args->op->dims[PLAN_DIM_SWIGLU_BWD_cols], swiglu_bwd_rows);
}

/* A run of elements of one half of a gradient. */
static void
slopes_of (const ExecArgs *args, guint64 row, guint64 col, guint64 count, float *out)
{
  const guint64 cols = (guint64)args->op->dims[PLAN_DIM_SWIGLU_BWD_QUANTIZE_cols];
  const guint64 within = col % cols, at = 2 * row * cols + within;
  float gates[BLOCK], ups[BLOCK], douts[BLOCK], rest[BLOCK];
  const gboolean is_gate = col < cols;
  const float *gate = exec_cpu_read_ref (args, PLAN_REF_SWIGLU_BWD_QUANTIZE_in, at, count, gates);
  const float *up
      = exec_cpu_read_ref (args, PLAN_REF_SWIGLU_BWD_QUANTIZE_in, at + cols, count, ups);
  const float *dout = exec_cpu_read_ref (args, PLAN_REF_SWIGLU_BWD_QUANTIZE_dout,
                                         row * cols + within, count, douts);

  swiglu_bwd_block (is_gate ? out : rest, is_gate ? rest : out, dout, gate, up, count);
}

const float *
exec_cpu_made (const ExecArgs *args, guint64 row, guint64 col, guint64 count, float *out)
{
  const guint64 cols = (guint64)args->op->dims[PLAN_DIM_SWIGLU_QUANTIZE_cols];
  const PlanDtype dtype = args->dtype[PLAN_REF_SWIGLU_QUANTIZE_in];
  float gates[BLOCK], ups[BLOCK], rounded[BLOCK];

  if (args->op->kind == PLAN_OP_SWIGLU_QUANTIZE)
    {
      const guint64 at = 2 * row * cols + col;

      swiglu_block (out, exec_cpu_read_ref (args, PLAN_REF_SWIGLU_QUANTIZE_in, at, count, gates),
                    exec_cpu_read_ref (args, PLAN_REF_SWIGLU_QUANTIZE_in, at + cols, count, ups),
                    count);
    }
  else
    {
      const guint64 first = col < cols ? MIN (count, cols - col) : count;

      slopes_of (args, row, col, first, out);
      if (first < count)
        slopes_of (args, row, cols, count - first, out + first);
    }
  exec_cpu_write (rounded, dtype, 0, count, out);
  memcpy (out, exec_cpu_read (rounded, dtype, 0, count, gates), count * sizeof *out);
  return out;
}

/* --- all other activations ---------------------------------------------------------------- */

#define SQRT_HALF 0.70710678f   /* sqrt (1/2) */
#define NORMAL_AT_0 0.39894228f /* density of the normal distribution: 1 / sqrt (2 pi) */
#define TANH_SCALE 0.79788456f  /* sqrt (2 / pi) */
#define TANH_CUBE 0.044715f

/* An activation's value and slope. */
typedef struct
{
  float value, slope;
} Point;

static Point
gelu (float x)
{
  float share = 0.5f * erfcf (-x * SQRT_HALF);

  return (Point){ x * share, share + x * NORMAL_AT_0 * expf (-0.5f * x * x) };
}

/* (1 + tanh (y / 2)) / 2 is the sigmoid of y. 1 - sigmoid is computed as a product, not a
 * difference, because a difference would lose its digits where it is small. */
static Point
gelu_tanh (float x)
{
  float y = 2.0f * TANH_SCALE * (x + TANH_CUBE * x * x * x), e = EXEC_CPU_EXP (-fabsf (y));
  float more = 1.0f / (1.0f + e), less = e * more, share = y > 0 ? more : less;
  float inner = 2.0f * TANH_SCALE * (1.0f + 3.0f * TANH_CUBE * x * x);

  return (Point){ x * share, share + x * more * less * inner };
}

/* x * sigmoid (steepness * x) */
static Point
swish (float x, float steepness)
{
  float s = sigmoid (steepness * x);

  return (Point){ x * s, s * (1.0f + steepness * x * (1.0f - s)) };
}

static Point
point_of (PlanActivation kind, float x)
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
      return (Point){ x > 0 ? x : 0, x > 0 ? 1 : 0 };
    case PLAN_ACTIVATION_RELU2:
      return (Point){ x > 0 ? x * x : 0, x > 0 ? 2 * x : 0 };
    case PLAN_ACTIVATION_QUICK_GELU:
      return swish (x, 1.702f);
    }
  g_assert_not_reached ();
}

PLAN_SAME_DIM (ACTIVATE, ACTIVATE_BWD, cols);
PLAN_SAME_DIM (ACTIVATE, ACTIVATE_BWD, gated);

/* Reads `n` elements of a row: gates, or all elements where there are no gates. `out_up` is what
 * the gates scale, or NULL. */
static const float *
read_gates (const ExecArgs *args, guint operand, guint64 row, guint64 at, guint64 n, float *storage,
            float *up_storage, const float **out_up)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_ACTIVATE_cols];
  gboolean is_gated = args->op->dims[PLAN_DIM_ACTIVATE_gated] != 0;
  guint64 from = (is_gated ? 2 : 1) * row * cols + at;
  const void *in = args->ptr[operand];
  PlanDtype dtype = args->dtype[operand];

  *out_up = is_gated ? exec_cpu_read (in, dtype, from + cols, n, up_storage) : NULL;
  return exec_cpu_read (in, dtype, from, n, storage);
}

/* The clamp of a gated activation. A gate is at most `limit`; an up value lies within `limit` of 0,
 * and `offset` is added to it afterwards. A limit of 0: nothing is clamped. */
typedef struct
{
  float limit, offset;
} Bounds;

static Bounds
bounds_of (const ExecArgs *args)
{
  return (Bounds){ (float)exec_manner (args, PLAN_MANNER_LIMIT),
                   (float)exec_manner (args, PLAN_MANNER_OFFSET) };
}

static inline float
bound_gate (Bounds bounds, float x)
{
  return bounds.limit > 0 && x > bounds.limit ? bounds.limit : x;
}

static inline gboolean
is_beyond (Bounds bounds, float x)
{
  return bounds.limit > 0 && fabsf (x) > bounds.limit;
}

static inline float
bound_up (Bounds bounds, float x)
{
  return (is_beyond (bounds, x) ? copysignf (bounds.limit, x) : x) + bounds.offset;
}

static void
activate_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_ACTIVATE_cols];
  PlanActivation kind = (PlanActivation)args->op->dims[PLAN_DIM_ACTIVATE_kind];
  const Bounds bounds = bounds_of (args);
  float storage[BLOCK], up_storage[BLOCK], out[BLOCK];

  for (guint64 row = first; row < end; row++)
    for (guint64 at = 0; at < cols; at += BLOCK)
      {
        guint64 n = MIN (BLOCK, cols - at);
        const float *up;
        const float *gate
            = read_gates (args, PLAN_REF_ACTIVATE_in, row, at, n, storage, up_storage, &up);

        for (guint64 i = 0; i < n; i++)
          out[i] = point_of (kind, bound_gate (bounds, gate[i])).value
                   * (up != NULL ? bound_up (bounds, up[i]) : 1.0f);
        exec_cpu_write_raising (args, PLAN_REF_ACTIVATE_out, PLAN_REF_ACTIVATE_amax,
                                row * cols + at, n, out);
      }
}

void
exec_cpu_activate (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_ACTIVATE_rows],
                   (guint64)args->op->dims[PLAN_DIM_ACTIVATE_cols], activate_rows);
}

static void
activate_bwd_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_ACTIVATE_BWD_cols];
  PlanActivation kind = (PlanActivation)args->op->dims[PLAN_DIM_ACTIVATE_BWD_kind];
  const Bounds bounds = bounds_of (args);
  float storage[BLOCK], up_storage[BLOCK], dout_storage[BLOCK], dgate[BLOCK], dup[BLOCK];

  for (guint64 row = first; row < end; row++)
    for (guint64 at = 0; at < cols; at += BLOCK)
      {
        guint64 n = MIN (BLOCK, cols - at);
        const float *up;
        const float *gate
            = read_gates (args, PLAN_REF_ACTIVATE_BWD_in, row, at, n, storage, up_storage, &up);
        const float *dout = exec_cpu_read_ref (args, PLAN_REF_ACTIVATE_BWD_dout, row * cols + at, n,
                                               dout_storage);
        guint64 out_at = (up != NULL ? 2 : 1) * row * cols + at;

        for (guint64 i = 0; i < n; i++)
          {
            Point point = point_of (kind, bound_gate (bounds, gate[i]));

            dgate[i] = dout[i] * point.slope * (up != NULL ? bound_up (bounds, up[i]) : 1.0f);
            dup[i] = dout[i] * point.value;
            if (gate[i] > 0 && is_beyond (bounds, gate[i]))
              dgate[i] = 0;
            if (up != NULL && is_beyond (bounds, up[i]))
              dup[i] = 0;
          }
        exec_cpu_write_raising (args, PLAN_REF_ACTIVATE_BWD_din, PLAN_REF_ACTIVATE_BWD_amax, out_at,
                                n, dgate);
        if (up != NULL)
          exec_cpu_write_raising (args, PLAN_REF_ACTIVATE_BWD_din, PLAN_REF_ACTIVATE_BWD_amax,
                                  out_at + cols, n, dup);
      }
}

void
exec_cpu_activate_bwd (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_ACTIVATE_BWD_rows],
                   (guint64)args->op->dims[PLAN_DIM_ACTIVATE_BWD_cols], activate_bwd_rows);
}

/* --- activations of experts --------------------------------------------------------------- */

static EXEC_WIDE void
silu_block (float *restrict value, float *restrict slope, const float *in, guint64 n)
{
  for (guint64 i = 0; i < n; i++)
    {
      float s = sigmoid (in[i]);

      value[i] = in[i] * s;
      slope[i] = s * (1.0f + in[i] * (1.0f - s));
    }
}

static void
find_points (PlanActivation kind, float *value, float *slope, const float *in, guint64 n)
{
  if (kind == PLAN_ACTIVATION_SILU)
    silu_block (value, slope, in, n);
  else
    for (guint64 i = 0; i < n; i++)
      {
        Point point = point_of (kind, in[i]);

        value[i] = point.value;
        slope[i] = point.slope;
      }
}

PLAN_SAME_DIM (ACTIVATE, EXPERT_ACTIVATE, cols);
PLAN_SAME_DIM (ACTIVATE, EXPERT_ACTIVATE, gated);
PLAN_SAME_DIM (ACTIVATE, EXPERT_ACTIVATE_BWD, cols);
PLAN_SAME_DIM (ACTIVATE, EXPERT_ACTIVATE_BWD, gated);

/* Returns the gates with their bound applied: in `storage`, or `gate` itself where nothing is
 * clamped. */
static const float *
bound_gates (Bounds bounds, const float *gate, guint64 n, float *storage)
{
  if (bounds.limit == 0)
    return gate;
  for (guint64 i = 0; i < n; i++)
    storage[i] = bound_gate (bounds, gate[i]);
  return storage;
}

/* out = activation (gate) * up * the row's routing weight */
void
exec_cpu_expert_activate (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[PLAN_DIM_EXPERT_ACTIVATE_rows],
          cols = (guint64)args->op->dims[PLAN_DIM_EXPERT_ACTIVATE_cols];
  PlanActivation kind = (PlanActivation)args->op->dims[PLAN_DIM_EXPERT_ACTIVATE_kind];
  const Bounds bounds = bounds_of (args);
  float storage[BLOCK], up_storage[BLOCK], out[BLOCK], slope[BLOCK], share;

  for (guint64 row = 0; row < rows; row++)
    for (guint64 at = 0; at < cols; at += BLOCK)
      {
        guint64 n = MIN (BLOCK, cols - at);
        const float *up, *gate = read_gates (args, PLAN_REF_EXPERT_ACTIVATE_in, row, at, n, storage,
                                             up_storage, &up);
        float p = *exec_cpu_read_ref (args, PLAN_REF_EXPERT_ACTIVATE_probs, row, 1, &share);

        find_points (kind, out, slope, bound_gates (bounds, gate, n, storage), n);
        for (guint64 i = 0; up != NULL && i < n; i++)
          out[i] *= bound_up (bounds, up[i]);
        for (guint64 i = 0; i < n; i++)
          out[i] *= p;
        exec_cpu_write_ref (args, PLAN_REF_EXPERT_ACTIVATE_out, row * cols + at, n, out);
      }
}

/* Also computes the gradient of each row's routing weight, a sum over the row's columns in
 * order. */
void
exec_cpu_expert_activate_bwd (const ExecArgs *args)
{
  guint64 rows = (guint64)args->op->dims[PLAN_DIM_EXPERT_ACTIVATE_BWD_rows],
          cols = (guint64)args->op->dims[PLAN_DIM_EXPERT_ACTIVATE_BWD_cols];
  PlanActivation kind = (PlanActivation)args->op->dims[PLAN_DIM_EXPERT_ACTIVATE_BWD_kind];
  const Bounds bounds = bounds_of (args);
  float bounded[BLOCK], storage[BLOCK], up_storage[BLOCK], dout_storage[BLOCK], value[BLOCK],
      slope[BLOCK], share;

  for (guint64 row = 0; row < rows; row++)
    {
      float p = *exec_cpu_read_ref (args, PLAN_REF_EXPERT_ACTIVATE_BWD_probs, row, 1, &share);
      float sum = 0;

      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);
          const float *up, *gate = read_gates (args, PLAN_REF_EXPERT_ACTIVATE_BWD_in, row, at, n,
                                               storage, up_storage, &up);
          const float *dout = exec_cpu_read_ref (args, PLAN_REF_EXPERT_ACTIVATE_BWD_dout,
                                                 row * cols + at, n, dout_storage);
          guint64 out_at = (up != NULL ? 2 : 1) * row * cols + at;

          find_points (kind, value, slope, bound_gates (bounds, gate, n, bounded), n);
          for (guint64 i = 0; i < n; i++)
            {
              float dact = dout[i] * p, factor = up != NULL ? bound_up (bounds, up[i]) : 1.0f;

              sum += dout[i] * value[i] * factor;
              value[i] *= dact;
              slope[i] *= dact * factor;
              if (gate[i] > 0 && is_beyond (bounds, gate[i]))
                slope[i] = 0;
              if (up != NULL && is_beyond (bounds, up[i]))
                value[i] = 0;
            }
          exec_cpu_write_ref (args, PLAN_REF_EXPERT_ACTIVATE_BWD_din, out_at, n, slope);
          if (up != NULL)
            exec_cpu_write_ref (args, PLAN_REF_EXPERT_ACTIVATE_BWD_din, out_at + cols, n, value);
        }
      exec_cpu_write_ref (args, PLAN_REF_EXPERT_ACTIVATE_BWD_dprobs, row, 1, &sum);
    }
}

/* --- the gate of shared experts ----------------------------------------------------------- */

static void
gate_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_GATE_cols];
  float storage[BLOCK], out[BLOCK], score, scale;

  for (guint64 row = first; row < end; row++)
    {
      scale = sigmoid (*exec_cpu_read_ref (args, PLAN_REF_GATE_score, row, 1, &score));
      exec_cpu_write_ref (args, PLAN_REF_GATE_score, row, 1, &scale);
      scale
          = *exec_cpu_read_ref (args, PLAN_REF_GATE_score, row, 1,
                                &score); /* the rounded scale, which the backward pass reads, too */
      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);
          const float *in = exec_cpu_read_ref (args, PLAN_REF_GATE_in, row * cols + at, n, storage);

          for (guint64 i = 0; i < n; i++)
            out[i] = in[i] * scale;
          exec_cpu_write_ref (args, PLAN_REF_GATE_out, row * cols + at, n, out);
        }
    }
}

void
exec_cpu_gate (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_GATE_rows],
                   (guint64)args->op->dims[PLAN_DIM_GATE_cols], gate_rows);
}

/* The gradient of a score is a sum over the row's columns in order. */
static void
gate_bwd_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_GATE_BWD_cols];
  float storage[BLOCK], dout_storage[BLOCK], din[BLOCK], score;

  for (guint64 row = first; row < end; row++)
    {
      float scale = *exec_cpu_read_ref (args, PLAN_REF_GATE_BWD_score, row, 1, &score), sum = 0;

      for (guint64 at = 0; at < cols; at += BLOCK)
        {
          guint64 n = MIN (BLOCK, cols - at);
          const float *in
              = exec_cpu_read_ref (args, PLAN_REF_GATE_BWD_in, row * cols + at, n, storage);
          const float *dout
              = exec_cpu_read_ref (args, PLAN_REF_GATE_BWD_dout, row * cols + at, n, dout_storage);

          for (guint64 i = 0; i < n; i++)
            {
              sum += dout[i] * in[i];
              din[i] = dout[i] * scale;
            }
          exec_cpu_write_ref (args, PLAN_REF_GATE_BWD_din, row * cols + at, n, din);
        }
      sum *= scale * (1.0f - scale);
      exec_cpu_write_ref (args, PLAN_REF_GATE_BWD_dscore, row, 1, &sum);
    }
}

void
exec_cpu_gate_bwd (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_GATE_BWD_rows],
                   (guint64)args->op->dims[PLAN_DIM_GATE_BWD_cols], gate_bwd_rows);
}
