/* What Hugging Face transformers calls the parts of our parameters, and how it lays them out:
 * modeling_llama.py, which mistral, qwen2 and qwen3 follow, and modeling_gpt2.py, whose Conv1D
 * keeps matrices the other way round. Reading and writing go by the same list. */
#pragma once
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* What the names of gpt2's inner model begin with, or not. */
#define EXEC_WEIGHT_PREFIX "transformer."

/* A tensor in a file: rows of one parameter that lie together. */
typedef struct
{
  char *name;
  PlanTensorRole role;
  gint64 layer;
  guint64 first_row, rows, cols; /* in the parameter */
  gboolean is_vector;            /* [rows] in the file */
  gboolean is_turned;            /* [cols, rows] in the file */
} ExecWeightName;

/* All of a model's, in the order of a file; INVALID where a parameter has no name. The caller
 * unrefs. */
GArray *exec_weight_names (const PlanModel *model, gboolean is_gpt2, GError **error);

G_END_DECLS
