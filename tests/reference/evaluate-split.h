/* Tensor-parallel ranks: an evaluator each, and what they exchange. */
#pragma once
#include "tests/reference/evaluate-private.h"
G_BEGIN_DECLS

/* exec_evaluator_split gives a rank its part of the plan's model. exec_evaluator_read reads the
 * initial values of the rank's part of a parameter. exec_evaluator_vocabulary is the manner of ops
 * on the rank's part of the vocabulary. */
void exec_evaluator_split (ExecEvaluator *self, const PlanModel *whole, guint tp_rank);
gboolean exec_evaluator_read (const ExecEvaluator *self, ExecState state, const PlanTensor *part,
                              gint64 layer, guint64 first, guint64 count, float *out,
                              GError **error);
PlanManner exec_evaluator_vocabulary (const ExecEvaluator *self);

/* `parts` has one array of each rank of a tensor-parallel group, of `cols` columns. sum_parts
 * replaces all of them by their sum (all-reduce). join_rows copies each row from the rank that
 * computes it to all others (all-gather). */
void exec_evaluator_sum_parts (const ExecEvaluator *self, const ExecArray *parts, gint64 cols);
void exec_evaluator_join_rows (const ExecEvaluator *self, const ExecArray *parts, gint64 cols);

/* A layer's product or the gradient of its input, of all rows. `operands`: out, a, b, bias. With
 * tp_overlap=async the rows of one rank of the group are made after another's: results should not
 * depend on it, but kernels may round differently for other numbers of rows. */
void exec_evaluator_product (ExecEvaluator *self, PlanTensorRole role, const ExecArray *operands,
                             gint64 cols, gint64 depth, gint64 layout, gboolean is_whole);

/* The rows of an array that this rank computes under sequence parallelism; of an array of hidden
 * vectors, or of one with `cols` columns. */
ExecArray exec_evaluator_own (const ExecEvaluator *self, ExecArray array);
ExecArray exec_evaluator_own_rows (const ExecEvaluator *self, ExecArray array, gint64 cols);

/* Calls a function for each rank that is computed side by side. */
#define EXEC_EACH(self, peer, call) \
  for (guint p = 0; p < (self)->together * (self)->tp; p++) \
    { \
      ExecEvaluator *peer = (self)->peer[p]; \
      call; \
    }

#define EXEC_MAX_PARTS 8

/* An all-reduce (SUM) or an all-gather of rows (JOIN) over each tensor-parallel group. `array` is
 * an expression for the array of rank `peer`. The forms without `cols` are for hidden vectors. */
#define EXEC_JOIN(self, peer, array, cols, join) \
  for (guint first = 0; first < (self)->together * (self)->tp; first += (self)->tp) \
    { \
      ExecArray parts[EXEC_MAX_PARTS]; \
      for (guint p = 0; p < (self)->tp; p++) \
        { \
          const ExecEvaluator *peer = (self)->peer[first + p]; \
          parts[p] = array; \
        } \
      join (self, parts, cols); \
    }
#define EXEC_SUM_COLS(self, peer, array, cols) \
  EXEC_JOIN (self, peer, array, cols, exec_evaluator_sum_parts)
#define EXEC_JOIN_COLS(self, peer, array, cols) \
  EXEC_JOIN (self, peer, array, cols, exec_evaluator_join_rows)
#define EXEC_SUM_PARTS(self, peer, array) EXEC_SUM_COLS (self, peer, array, (self)->model->hidden)
#define EXEC_JOIN_ROWS(self, peer, array) EXEC_JOIN_COLS (self, peer, array, (self)->model->hidden)

/* The statistics of rows that the loss is computed from, over all parts of the vocabulary. */
void exec_evaluator_row_stats (ExecEvaluator *self);

/* tests/reference/evaluate-reduce.c: exec_evaluator_keep keeps a rank's gradients of a micro batch.
 * exec_evaluator_reduce does the reductions over ranks that are due after a micro batch, or
 * (`is_step`) those that are due as the step ends. */
void exec_evaluator_keep (ExecEvaluator *self);
void exec_evaluator_reduce (ExecEvaluator *self, gboolean is_step);

/* Adds up the gradients of the two copies of an embedding that two stages of a pipeline share,
 * among the gradients that each rank has accumulated. */
void exec_evaluator_sum_tables (ExecEvaluator *self);

/* Both are about parameters that all ranks of a tensor-parallel group have whole. sum_alike adds up
 * their gradients where each rank saw only some of the tokens or heads. measure adds all gradients
 * to the norm, and those of such parameters only once. */
void exec_evaluator_sum_alike (ExecEvaluator *self);
void exec_evaluator_measure (ExecEvaluator *self);

G_END_DECLS
