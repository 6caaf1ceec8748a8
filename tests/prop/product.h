/* The product: every combination of what a plan says about sharding, formats, gathers, the loss,
 * and recomputation or offloading. Models are small, with experts and without; their parameters
 * divide evenly among ranks, or not; on some points ranks split layers, sequences or experts.
 *
 * A point is a number below product_size; its values are digits, the first dimension's the highest.
 */
#pragma once
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PRODUCT_SHARDS,
  PRODUCT_RANKS,
  PRODUCT_OUTER,
  PRODUCT_STRATEGY,
  PRODUCT_MAIN_PARAMS,
  PRODUCT_MAIN_GRADS,
  PRODUCT_GRAD_COMM,
  PRODUCT_LOSS,
  PRODUCT_COMPUTE,
  PRODUCT_GATHER,
  PRODUCT_RECOMPUTE,
  PRODUCT_N_DIMENSIONS
} ProductDimension;

#define PRODUCT_MAX_RANKS 8
#define PRODUCT_MAX_VALUES 13 /* of a dimension */

guint product_values (ProductDimension dimension);
const char *product_value_name (ProductDimension dimension, guint value);
guint64 product_size (void);

/* Points with the same declaration differ only in how parameters are gathered and in what is
 * recomputed or offloaded, so their arithmetic is the same. */
guint64 product_declaration (guint64 point);
/* About how many times as long as others a plan takes with this value of PRODUCT_COMPUTE. */
guint product_weight (guint compute);
guint product_ranks (guint value); /* of PRODUCT_RANKS */
/* Whether a point has experts, or ranks that split layers or sequences. Pipelines do not count:
 * rules leave so few of their points that all of these may be run. */
gboolean product_is_beyond_dense (guint64 point);
guint product_digit (guint64 point, ProductDimension dimension);
guint64 product_point (const guint digits[PRODUCT_N_DIMENSIONS]);
char *product_name (guint64 point); /* the caller frees */

/* A point as a job of two steps of two micro batches per rank. */
typedef struct
{
  const PlanModel *model;
  const PlanCluster *cluster;
  PlanCase *of; /* NULL where a rule refuses it */
  guint ranks;
  ExecJob job;
} ProductCase;

/* FALSE where a rule refuses the plan, or the runtime. */
gboolean product_case_init (ProductCase *self, guint64 point);
void product_case_clear (ProductCase *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ProductCase, product_case_clear)

/* Whether a rank's losses, norms and shard of the main weights are those of the evaluator; says on
 * stdout what differs. */
gboolean product_case_equals (const ProductCase *self, guint rank, const ExecResult *result,
                              const ExecResult *expected);

G_END_DECLS
