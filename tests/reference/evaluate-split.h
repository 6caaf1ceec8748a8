/* Tensor-parallel ranks: an evaluator each, and what they exchange. */
#pragma once
#include "tests/reference/evaluate-private.h"
G_BEGIN_DECLS

/* Sets a rank's part of the plan's model; reads what its part of a parameter begins with; the
 * manner of ops on its part of the vocabulary. */
void exec_evaluator_split (ExecEvaluator *self, const PlanModel *whole, guint tp_rank);
gboolean exec_evaluator_read (const ExecEvaluator *self, ExecState state, const PlanTensor *part,
                              gint64 layer, guint64 first, guint64 count, float *out,
                              GError **error);
PlanManner exec_evaluator_vocabulary (const ExecEvaluator *self);

/* `parts` has an array of `cols` columns of each rank. sum_parts leaves their sum in all of them,
 * join_rows every row of the rank that computes it. */
void exec_evaluator_sum_parts (const ExecEvaluator *self, const ExecArray *parts, gint64 cols);
void exec_evaluator_join_rows (const ExecEvaluator *self, const ExecArray *parts, gint64 cols);

/* The own rows, under sequence parallelism, of an array of hidden vectors, or of `cols` columns. */
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

/* All-reduce, or all-gather of rows, of an array of each rank of a tensor-parallel group; of hidden
 * vectors, where no number of columns is given. */
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

/* tests/reference/evaluate-reduce.c: keeps a rank's gradients of a micro batch; sums all ranks'
 * where micro batches are, or (`is_step`) sums what is left to be as a step ends. */
void exec_evaluator_keep (ExecEvaluator *self);
void exec_evaluator_reduce (ExecEvaluator *self, gboolean is_step);

/* Adds up the gradients, in each rank's accumulated ones, of the two copies of an embedding that
 * two stages of a pipeline share. */
void exec_evaluator_sum_tables (ExecEvaluator *self);

/* Of parameters that all ranks have whole: sum_alike adds up gradients where ranks saw other tokens
 * or heads; measure counts them once in the norm. */
void exec_evaluator_sum_alike (ExecEvaluator *self);
void exec_evaluator_measure (ExecEvaluator *self);

G_END_DECLS
