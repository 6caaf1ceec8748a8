/* TestNamed: every parameter by name, in the order of the modules: a list as Megatron-LM's DDP
 * walks it. For what plans make of such orders, written without theirs. */
#pragma once
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  PlanTensorRole role;
  gint64 layer; /* -1: none */
  guint64 elements;
} TestNamed;

static inline GArray *
test_name_all (const PlanModel *model, gint64 vocab)
{
  static const PlanTensorRole in_layer[] = { PLAN_TENSOR_PROJ,
                                             PLAN_TENSOR_PROJ_BIAS,
                                             PLAN_TENSOR_ATTENTION_NORM,
                                             PLAN_TENSOR_ATTENTION_NORM_BIAS,
                                             PLAN_TENSOR_QKV,
                                             PLAN_TENSOR_QKV_BIAS,
                                             PLAN_TENSOR_Q_NORM,
                                             PLAN_TENSOR_K_NORM,
                                             PLAN_TENSOR_MLP_NORM,
                                             PLAN_TENSOR_MLP_NORM_BIAS,
                                             PLAN_TENSOR_GATE_UP,
                                             PLAN_TENSOR_GATE_UP_BIAS,
                                             PLAN_TENSOR_DOWN,
                                             PLAN_TENSOR_DOWN_BIAS };
  static const PlanTensorRole first[] = { PLAN_TENSOR_EMBEDDING, PLAN_TENSOR_POSITIONS,
                                          PLAN_TENSOR_EMBED_NORM, PLAN_TENSOR_EMBED_NORM_BIAS };
  static const PlanTensorRole last[]
      = { PLAN_TENSOR_FINAL_NORM, PLAN_TENSOR_FINAL_NORM_BIAS, PLAN_TENSOR_OUTPUT };
  GArray *all = g_array_new (FALSE, FALSE, sizeof (TestNamed));
  for (gint64 layer = -1; layer <= model->layers; layer++)
    {
      const PlanTensorRole *roles = layer < 0 ? first : layer < model->layers ? in_layer : last;
      const guint n = layer < 0               ? G_N_ELEMENTS (first)
                      : layer < model->layers ? G_N_ELEMENTS (in_layer)
                                              : G_N_ELEMENTS (last);
      for (guint i = 0; i < n; i++)
        {
          const PlanTensor tensor = plan_model_tensor (model, roles[i], vocab);
          const TestNamed one
              = { roles[i], layer == model->layers ? -1 : layer, tensor.rows * tensor.cols };
          if (one.elements > 0)
            g_array_append_val (all, one);
        }
    }
  return all;
}

G_END_DECLS
