/* Operands of kernels under test: random, blank or from double-precision references, and a way to
 * run one kernel on them with exactly the scratch it asked for. */
#pragma once
#include "exec/kernels.h"
#include <check.h>
#include <glib.h>
G_BEGIN_DECLS

/* Arguments of kernels, which tests set. Before each test of a kernels_case() they have their usual
 * values, or are 0. */
extern ExecConstants constants;
extern PlanManner manner;
extern guint64 turn; /* passed as ExecArgs.turn */
TCase *kernels_case (const char *name);

typedef struct
{
  PlanDtype dtype;
  guint64 count;
  void *data;
  double *value; /* the values in `data`, where it was made from random numbers */
  float *scale;  /* the scale, where the format has one per tensor */
} Tensor;

void tensor_clear (Tensor *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Tensor, tensor_clear)
/* tensor_blank is for results: every byte is 0xff. */
Tensor tensor_blank (PlanDtype dtype, guint64 count);
Tensor tensor_random (GRand *rand, PlanDtype dtype, guint64 count, double scale);
Tensor tensor_tokens (GRand *rand, guint64 count, gint32 from, gint32 vocab);
Tensor tensor_copy (const Tensor *other);
double tensor_get (const Tensor *self, guint64 i);
/* Checks that results are within `bound` times the largest wanted value, plus the rounding of the
 * format. */
void check_close (const Tensor *got, const double *want, double bound, const char *what);
/* Operands in the order of the op list, without the scratch at the end; optional ones may be
 * NULL. */
#define OPERANDS(...) ((const Tensor *const[PLAN_MAX_REFS]){ __VA_ARGS__ })
void run_kernel (PlanOpKind kind, const Tensor *const *operands, const gint64 *dims,
                 PlanDtype matrices);
/* The format of a case: bf16 for odd seeds, fp32 for even ones. */
PlanDtype format_of (int seed);
double gain_of (double weight); /* the factor of a norm, given its weight */
gint64 between (GRand *rand, gint32 low, gint32 high);

/* A forward pass in double: `out` from `in`. */
typedef struct
{
  gint64 dims[PLAN_MAX_DIMS];
  double *in[2];
  const gint32 *tokens;
  double *out;
  guint64 out_count;
} Pass;

typedef void (*Forward) (Pass *pass);

/* The gradient of sum (dout * out) with respect to one input, by central differences. */
double *slow_gradient (Forward forward, Pass *pass, guint input, guint64 count, const double *dout);

G_END_DECLS
