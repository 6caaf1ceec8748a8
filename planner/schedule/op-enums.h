/* Enums of the op list. */
#pragma once
#include "planner/base/each.h"
#include "planner/schedule/op-list.h"

typedef enum
{
#define X(id, ...) PLAN_OP_##id,
  PLAN_OP_LIST (X)
#undef X
      PLAN_N_OPS,
  PLAN_OP_REPEAT = PLAN_N_OPS, /* structure, not work: never seen through a cursor */
  PLAN_OP_END,
} PlanOpKind;

typedef enum
{
  PLAN_CLASS_MEMORY,
  PLAN_CLASS_HOST,
  PLAN_CLASS_COMPUTE,
  PLAN_CLASS_COLLECTIVE,
} PlanOpClass;

typedef enum
{
#define X(id, key, name) PLAN_WORK_##id,
  PLAN_WORK_LIST (X)
#undef X
      PLAN_N_WORKS
} PlanWork;

typedef enum
{
#define X(id, name) PLAN_COST_##id,
  PLAN_COST_LIST (X)
#undef X
      PLAN_N_COSTS
} PlanCost;

typedef enum
{
#define X(id, name, summary) PLAN_STREAM_##id,
  PLAN_STREAM_LIST (X)
#undef X
      PLAN_N_STREAMS
} PlanStream;

typedef enum
{
#define X(id, name, summary) PLAN_CATEGORY_##id,
  PLAN_CATEGORY_LIST (X)
#undef X
      PLAN_N_CATEGORIES,
  PLAN_CATEGORY_HOST = PLAN_N_CATEGORIES /* memory of the host: in no sum of the device's */
} PlanCategory;

/* Cases of what is no collective: ends a switch over all collectives, without a default. */
#define PLAN_CASES_BUT_COLLECTIVES \
  PLAN_OP_LIST (PLAN_CASE_BUT_COLLECTIVE) \
  case PLAN_OP_REPEAT: \
  case PLAN_OP_END:
#define PLAN_CASE_BUT_COLLECTIVE(id, name, class, ...) PLAN_CASE_OF_##class(id)
#define PLAN_CASE_OF_MEMORY(id) case PLAN_OP_##id:
#define PLAN_CASE_OF_HOST(id) case PLAN_OP_##id:
#define PLAN_CASE_OF_COMPUTE(id) case PLAN_OP_##id:
#define PLAN_CASE_OF_COLLECTIVE(id)

/* Numbers of each op's operands and dims, by their names: op->refs[PLAN_REF_GEMM_a] and
 * op->dims[PLAN_DIM_GEMM_m]; the last part of a name is as the list and schedules spell it. */
#define PLAN_REF_NUMBER(id, ref) PLAN_SPLIT (PLAN_REF_NUMBER_OF, id, ref)
#define PLAN_REF_NUMBER_OF(id, name, ...) PLAN_REF_##id##_##name,
#define PLAN_DIM_NUMBER(id, name) PLAN_DIM_##id##_##name,
#define X(id, op, class, work, cost, summary, dims, flops, refs) \
  enum \
  { \
    PLAN_EACH (PLAN_REF_NUMBER, id, refs) PLAN_N_REFS_##id \
  }; \
  enum \
  { \
    PLAN_EACH (PLAN_DIM_NUMBER, id, dims) PLAN_N_DIMS_##id \
  };
PLAN_OP_LIST (X)
#undef X

/* Numbers of the dims of structure: of a repeat, which is not in the list. */
enum
{
  PLAN_REPEAT_FROM,
  PLAN_REPEAT_COUNT,
  PLAN_REPEAT_STEP,
  PLAN_REPEAT_END,      /* node of its end */
  PLAN_REPEAT_VARIABLE, /* index among variables */
  PLAN_REPEAT_ALONG,    /* elements by which operands that move are further on with each turn */
};

/* Code for several ops uses the names of one of them; these declarations do not compile where
 * operands, or dims, of the others have other numbers. */
#define PLAN_SAME_REF(a, b, name) \
  G_STATIC_ASSERT ((int)PLAN_REF_##a##_##name == (int)PLAN_REF_##b##_##name)
#define PLAN_SAME_DIM(a, b, name) \
  G_STATIC_ASSERT ((int)PLAN_DIM_##a##_##name == (int)PLAN_DIM_##b##_##name)
