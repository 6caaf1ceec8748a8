/* ExecKernels: one op on one rank's memory.
 *
 * A backend is one constant table with a function for every op kind that does
 * arithmetic, and the device that it runs on. A function sees resolved pointers
 * only: no schedule, no clock. */
#pragma once
#include "exec/device.h"
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
  double lr, beta1, beta2, adam_eps, weight_decay, max_norm; /* max_norm 0: no clipping */
  gboolean decays_all;                                       /* gains and biases, too */
  gint64 step;                                               /* of Adam, from 1 */
  gint64 tokens;  /* of this step whose loss counts; 0: as many as the op says */
  gint64 mean_of; /* gradients are divided by it before they are reduced; 0: they are not */
};

/* A part of a parameter: elements from `first` on. */
typedef struct
{
  guint64 rows, cols, first;
  guint block; /* elements that share a scale, or the side of squares; 0: all */
} ExecParam;

/* Scales of blocks that lie apart from what they are of. */
typedef struct
{
  const guint8 *scales;
  PlanDtype format;   /* what elements and scales are together */
  gboolean is_turned; /* of columns; such an operand is read [cols, rows] */
} ExecBlocks;

struct _ExecArgs
{
  const PlanOp *op;
  const PlanManner *manner; /* NULL: as if nothing of it were said */
  void *ptr[PLAN_MAX_REFS]; /* NULL where the operand is absent */
  PlanDtype dtype[PLAN_MAX_REFS];
  float *scale[PLAN_MAX_REFS]; /* of an operand in a format that has one per tensor */
  ExecBlocks blocks[PLAN_MAX_REFS];
  ExecParam param;       /* which one an op on parameters is called for */
  guint64 scratch_bytes; /* of the scratch operand */
  const ExecConstants *constants;
  const void *varying; /* the device's own copy of what of them changes by step; NULL: none */
  guint taken_sms;     /* of a GPU's, by collectives that may run meanwhile */
  gboolean is_deterministic;
};

/* What is said of it of how the op works. */
static inline double
exec_manner (const ExecArgs *args, PlanMannerKey key)
{
  return args->manner ? args->manner->value[key] : 0;
}

/* How the op's rotary positions turn. */
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

/* Puts an op on a stream of the device; 0: issued, else a number that the device can explain. */
typedef int (*ExecLauncher) (const ExecArgs *args, void *stream);

/* Each op kind that does arithmetic is in `run` or in `launch`, whichever the device calls. */
struct _ExecKernels
{
  const char *name;
  const char *summary;
  gboolean (*open) (GError **error); /* before anything else: can it run here? */
  char *(*describe) (void);          /* what computes: libraries, devices; the caller frees */

  /* Whether its kernel of an op takes operands like these; refused by name. */
  gboolean (*check) (const PlanSchedule *schedule, const PlanOp *op, GError **error);
  const ExecDeviceOps *device;
  guint more_formats;         /* bits by PlanDtype: beyond those that all kernels read and write */
  ExecKernel run[PLAN_N_OPS]; /* NULL for memory, host and collective ops */
  ExecLauncher launch[PLAN_N_OPS];
};

extern const ExecKernels exec_kernels_cpu;

/* Matrix product in fp32, row-major; exec/cpu/gemm-blas.c or exec/cpu/gemm-plain.c. `layout` as in
 * the op list; the result of one call depends on its arguments alone. */
void exec_gemm_fp32 (gint64 m, gint64 n, gint64 k, int layout, const float *a, const float *b,
                     float *out);

/* The same of bf16 factors, where the processor multiplies these: to what is in `out` if it `adds`;
 * where `rounded` is not NULL the product goes there instead, rounded to bf16. */
gboolean exec_gemm_bf16_open (void); /* whether it does */
const char *exec_gemm_bf16_name (void);
void exec_gemm_bf16 (gint64 m, gint64 n, gint64 k, int layout, const void *a, const void *b,
                     gboolean adds, float *out, guint16 *rounded);
void exec_gemm_open (void);
const char *exec_gemm_name (void); /* library and version */

G_END_DECLS
