/* ExecKernels: the kernels of a backend, each of which does one op on one rank's memory.
 *
 * A backend is one constant table with a function for every kind of op that does arithmetic, and
 * the device it runs on. A function gets resolved pointers only: no schedule and no clock. */
#pragma once
#include "exec/device.h"
#include "exec/params.h"
#include "planner/model/model.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* Constants of the model and the optimizer that are not in any op. */
struct _ExecConstants
{
  double norm_eps;
  PlanRope rope;
  PlanRouterScore router_score;
  gboolean pre_softmax;
  double router_scale;
  double bias_rate; /* the step by which routers' biases move */
  double lr, beta1, beta2, adam_eps, weight_decay, max_norm; /* max_norm 0: no clipping */
  gboolean decays_all; /* weight decay applies to gains and biases, too */
  gint64 step;         /* Adam's step, from 1 */
  gint64 tokens;       /* tokens of this step whose loss counts; 0: as many as the op says */
  gint64 grad_divisor; /* by which gradients are divided before they are reduced; 0: not divided */
};

/* Block scales of an operand, in an array of their own. */
typedef struct
{
  const guint8 *scales;
  PlanDtype format;       /* the number format of elements and scales together */
  gboolean is_transposed; /* the operand is the copy scaled along columns, which is stored as [cols,
                             rows] */
  guint64 apart;          /* bytes to the scales of the next expert's matrix */
} ExecBlocks;

struct _ExecArgs
{
  const PlanOp *op;
  const PlanManner *manner; /* NULL: all of its values are 0 */
  void *ptr[PLAN_MAX_REFS]; /* NULL where the operand is absent */
  PlanDtype dtype[PLAN_MAX_REFS];
  float *scale[PLAN_MAX_REFS]; /* scale of an operand whose format has one per tensor */
  ExecBlocks blocks[PLAN_MAX_REFS];
  ExecParam param;          /* the parameter that an op on parameters is called for */
  const ExecParams *params; /* or all of those of a unit: operands are the whole unit's; or NULL */
  guint64 turn; /* of ring attention: the keys are those of the rank so many before this one */
  guint64 scratch_bytes; /* size of the scratch operand */
  const ExecConstants *constants;
  const void *varying; /* the device's copy of the constants that change by step; NULL: none */
  guint taken_sms;     /* SMs of the GPU that collectives may hold meanwhile */
  gboolean is_deterministic;
};

/* A value of the op's manner, such as its window; 0 where none is given. */
static inline double
exec_manner (const ExecArgs *args, PlanMannerKey key)
{
  return args->manner ? args->manner->value[key] : 0;
}

/* The auxiliary loss that balances experts, of the rows of one micro batch, is its coefficient *
 * experts * the sum over experts of the share of rows that the expert got times its mean
 * probability. Its gradient by one row's probability of an expert is this unit times the number of
 * rows that the expert got: losses here are sums over tokens, so the mean probability counts as a
 * sum. */
static inline float
exec_aux_loss_unit (const ExecArgs *args, gint64 rows, gint64 experts, gint64 topk)
{
  const double coef = exec_manner (args, PLAN_MANNER_AUX_LOSS);
  return (float)(coef * (double)experts / (double)MAX (rows * topk, 1));
}

/* The rotary embedding of the op: the model's, or one with the op's own theta. */
static inline PlanRope
exec_rope (const ExecArgs *args)
{
  const double theta = exec_manner (args, PLAN_MANNER_THETA);
  PlanRope rope = args->constants->rope;
  if (theta > 0)
    {
      rope.theta = theta;
      rope.scaling = PLAN_ROPE_SCALING_NONE;
    }
  return rope;
}

typedef void (*ExecKernel) (const ExecArgs *args);

/* Launches an op on a stream of the device. Returns 0, or an error number that the device can
 * explain. */
typedef int (*ExecLauncher) (const ExecArgs *args, void *stream);

/* Each kind of op that does arithmetic has a function in `run` (CPU) or in `launch` (GPU). */
struct _ExecKernels
{
  const char *name;
  const char *summary;
  gboolean (*open) (GError **error); /* called first: fails where the backend cannot run */
  char *(*describe) (void);          /* the libraries and devices that compute; the caller frees */

  /* Fails, naming the op, where its kernel does not take operands of these formats and sizes. */
  gboolean (*check) (const PlanSchedule *schedule, const PlanOp *op, GError **error);
  const ExecDeviceOps *device;
  guint more_formats; /* bit d: PlanDtype d, which this backend has beyond those of all backends */
  ExecKernel run[PLAN_N_OPS]; /* NULL for memory, host and collective ops */
  ExecLauncher launch[PLAN_N_OPS];
};

extern const ExecKernels exec_kernels_cpu;

/* One step of AdamW. It is the host's share on GPUs, too, whose memory holds its operands then. */
void exec_cpu_adamw (const ExecArgs *args);

/* Matrix product in fp32, row-major, by exec/cpu/gemm-blas.c or exec/cpu/gemm-plain.c. `layout` is
 * as in the op list. The result depends on the arguments alone, bit for bit. */
void exec_gemm_fp32 (gint64 m, gint64 n, gint64 k, int layout, const float *a, const float *b,
                     float *out);

/* Matrix product of bf16 factors. It is added to `out` if `adds`, else stored in it; where
 * `rounded` is not NULL, it is rounded to bf16 and stored there instead. Only where the processor
 * multiplies bf16 itself; else exec_gemm_bf16_name is NULL. */
gboolean exec_gemm_bf16_is_available (void);
const char *exec_gemm_bf16_name (void); /* library and version */
void exec_gemm_bf16 (gint64 m, gint64 n, gint64 k, int layout, const void *a, const void *b,
                     gboolean adds, float *out, guint16 *rounded);
void exec_gemm_open (void);
const char *exec_gemm_name (void); /* library and version */

G_END_DECLS
