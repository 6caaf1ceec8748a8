/* PlanTensor: one kind of parameter tensor of a model: its role, its shape and what it belongs to.
 *
 * A plain value, made from tensor-list.h by plan_model_tensor and the functions beside it. */
#pragma once
#include "planner/model/tensor-list.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
#define X(id, number, ...) PLAN_TENSOR_##id = number,
  PLAN_TENSOR_LIST (X)
#undef X
#define X(...) +1
      PLAN_N_TENSORS
  = 0 PLAN_TENSOR_LIST (X)
#undef X
} PlanTensorRole;

typedef enum
{
  PLAN_TENSOR_KIND_LINEAR,
  PLAN_TENSOR_KIND_TABLE,
  PLAN_TENSOR_KIND_GAIN,
  PLAN_TENSOR_KIND_BIAS,
  PLAN_TENSOR_KIND_STATE
} PlanTensorKind;

typedef enum
{
  PLAN_PART_EMBEDDING,
  PLAN_PART_POSITIONS,
  PLAN_PART_ATTENTION,
  PLAN_PART_MLP,
  PLAN_PART_NORMS,
  PLAN_PART_BIASES, /* biases of all other parts, where parameters are counted */
  PLAN_PART_ROUTER,
  PLAN_PART_EXPERTS,
  PLAN_PART_SHARED_EXPERTS,
  PLAN_PART_OUTPUT,
  PLAN_N_PARTS
} PlanModelPart;

typedef struct
{
  PlanTensorRole role;
  const char *name;
  PlanModelPart part;
  PlanTensorKind kind;
  guint64 count; /* copies, such as one per expert */
  guint64 rows;  /* dim 0, or a vector's length; 0: the model has none */
  guint64 cols;  /* 1 for a vector */
} PlanTensor;

G_END_DECLS
