/* SPDX-License-Identifier: Apache-2.0 */
/* A norm by its model's kind, of layers and of the head. */
#include "config.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"

void
plan_lower_norm (PlanLower *self, PlanRef out, PlanRef stats, PlanRef in, PlanTensorRole weight,
                 PlanTensorRole bias, PlanTensorRole feeds, PlanLowerUnit unit, gint64 rows)
{
  const gint64 cols = (gint64)plan_lower_tensor (self, weight).rows;
  const PlanRef scale = plan_lower_site_scale (self, feeds, PLAN_QUANTIZER_INPUT, unit);
  const PlanRef amax = plan_lower_site_amax (self, feeds, PLAN_QUANTIZER_INPUT, unit);
  const PlanRef gain = plan_lower_weight (self, weight, unit);
  if (self->model->norm == PLAN_NORM_LAYERNORM)
    plan_lower_compute (
        self, PLAN_OP_LAYERNORM,
        PLAN_REFS (out, stats, in, gain, plan_lower_weight (self, bias, unit), scale, amax),
        PLAN_DIMS (rows, cols));
  else
    plan_lower_compute (self, PLAN_OP_RMSNORM, PLAN_REFS (out, stats, in, gain, scale, amax),
                        PLAN_DIMS (rows, cols));
}

void
plan_lower_add_norm (PlanLower *self, const PlanRef *refs, const PlanNode *norm, PlanLowerUnit unit)
{
  const PlanRef scale = plan_lower_site_scale (self, norm->feeds, PLAN_QUANTIZER_INPUT, unit);
  const PlanRef amax = plan_lower_site_amax (self, norm->feeds, PLAN_QUANTIZER_INPUT, unit);
  const PlanRef gain = plan_lower_weight (self, norm->weight, unit);
  const gint64 *dims = PLAN_DIMS (norm->rows, norm->cols);
  if (self->model->norm == PLAN_NORM_LAYERNORM)
    plan_lower_compute (self, PLAN_OP_ADD_LAYERNORM,
                        PLAN_REFS (refs[0], refs[1], refs[2], refs[3], refs[4], gain,
                                   plan_lower_weight (self, norm->bias, unit), scale, amax),
                        dims);
  else
    plan_lower_compute (self, PLAN_OP_ADD_RMSNORM,
                        PLAN_REFS (refs[0], refs[1], refs[2], refs[3], refs[4], gain, scale, amax),
                        dims);
}

void
plan_lower_norm_backward (PlanLower *self, PlanRef din, PlanRef dout, PlanRef in, PlanRef stats,
                          PlanTensorRole weight, PlanTensorRole bias, PlanLowerUnit unit,
                          gint64 rows)
{
  plan_lower_norm_backward_add (self, PLAN_REFS (din, dout, in, stats, PLAN_REF_NONE), weight, bias,
                                unit, rows);
}

void
plan_lower_norm_backward_add (PlanLower *self, const PlanRef *refs, PlanTensorRole weight,
                              PlanTensorRole bias, PlanLowerUnit unit, gint64 rows)
{
  const PlanRef din = refs[0], dout = refs[1], in = refs[2], stats = refs[3], add = refs[4];
  const PlanRef gain = plan_lower_weight (self, weight, unit);
  const PlanRef dgain = plan_lower_raw_gradient (self, weight, unit);
  const gboolean has_bias = bias != PLAN_N_TENSORS;
  const gint64 cols = (gint64)plan_lower_tensor (self, weight).rows;
  if (self->model->norm == PLAN_NORM_LAYERNORM)
    plan_lower_compute (
        self, PLAN_OP_LAYERNORM_BWD,
        PLAN_REFS (din, dgain,
                   has_bias ? plan_lower_raw_gradient (self, bias, unit) : PLAN_REF_NONE, dout, in,
                   gain, stats, add),
        PLAN_DIMS (rows, cols));
  else
    plan_lower_compute (self, PLAN_OP_RMSNORM_BWD,
                        PLAN_REFS (din, dgain, dout, in, gain, stats, add), PLAN_DIMS (rows, cols));
  plan_lower_put_gradient (self, weight, unit, FALSE);
  if (has_bias)
    plan_lower_put_gradient (self, bias, unit, FALSE);
}
